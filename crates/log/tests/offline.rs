//! Work on logs that are not mounted.

mod support;

use anteros_log::{Inspector, check, repair, repair_going_back};
use support::surgeon::Surgeon;
use support::*;

#[test]
fn an_attribute_node_beyond_the_node_address_table_is_told_and_the_rest_repaired() {
    for ino in [1_u32, 2] {
        let device = device(64 * MIB);
        let tree = open_plainly(device.clone());
        tree.put("f", &bytes(1, 50_000)).unwrap();
        assert_eq!(tree.ino("f").unwrap().0, 2);
        tree.0.close().unwrap();
        drop(tree);
        let surgeon = Surgeon::new(device.clone());
        for nid in [surgeon.superblock.nids, u32::MAX] {
            surgeon.change_inode(ino, |inode| inode.xattr_nid = nid);
            assert!(check(device.clone(), options()).unwrap().fault_count > 0);
            let repaired = repair(device.clone(), options()).unwrap();
            assert!(
                repaired.left.iter().any(|left| left.contains("attributes")),
                "{:?}",
                repaired.left
            );
            repair_going_back(device.clone(), options()).unwrap();
            let mut inspector = Inspector::open(device.clone(), &options()).unwrap();
            assert!(!inspector.inode(ino).unwrap().faults.is_empty());
            let tree = open_to_read(device.clone());
            assert_eq!(tree.read("f").unwrap(), bytes(1, 50_000));
        }
    }
}
