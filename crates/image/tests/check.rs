//! Every image that mkfs.erofs made is without fault.

mod common;

use std::sync::atomic::AtomicBool;

use anteros_image::{CheckOptions, check};
use common::{FIXTURES, Fixture};

#[test]
fn sound_images_have_no_faults() {
    for name in FIXTURES {
        let image = Fixture::read(name).open().unwrap();
        let report = check(
            &image,
            &CheckOptions::default(),
            &(),
            &AtomicBool::new(false),
        );
        for finding in &report.findings {
            println!("{name}: {:?} {finding}", finding.severity());
        }
        println!(
            "{name}: {} inodes, {} extents, {} bytes",
            report.inodes, report.extents, report.data_bytes
        );
        assert!(report.is_clean(), "{name}");
        assert_eq!(report.inodes, image.superblock().inodes, "{name}");
    }
}
