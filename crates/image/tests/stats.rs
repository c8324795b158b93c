//! Counting, of images that all hold the same tree.

mod common;

use anteros_core::{Algorithm, FileKind};
use anteros_image::{Statistics, statistics};
use common::{FIXTURES, Fixture};

fn count(name: &str) -> Statistics {
    statistics(&Fixture::read(name).open().unwrap()).unwrap()
}

#[test]
fn every_image_holds_the_same_tree() {
    let plain = count("plain");
    assert_eq!(plain.hard_links, 2);
    assert_eq!(plain.kinds[&FileKind::Fifo], 1);
    assert_eq!(plain.inodes(), 254);
    for name in FIXTURES {
        let counted = count(name);
        assert_eq!(counted.kinds, plain.kinds, "{name}");
        assert_eq!(counted.hard_links, plain.hard_links, "{name}");
        assert_eq!(counted.file_bytes, plain.file_bytes, "{name}");
        assert_eq!(counted.file_sizes, plain.file_sizes, "{name}");
        let files = counted.kinds[&FileKind::Regular];
        assert_eq!(
            counted.compressed_files + counted.uncompressed_files,
            files,
            "{name}"
        );
        assert_eq!(
            counted.extensions.values().map(|e| e.files).sum::<u64>(),
            files,
            "{name}"
        );
        assert_eq!(counted.stored_sizes.values().sum::<u64>(), files, "{name}");
        assert_eq!(
            counted.xattrs_inline + counted.xattrs_shared,
            plain.xattrs_inline + plain.xattrs_shared,
            "{name}"
        );
    }
}

#[test]
fn extents_by_how_they_are_stored() {
    let lz4 = count("lz4");
    assert_eq!(
        lz4.algorithms.keys().copied().collect::<Vec<_>>(),
        [Algorithm::Lz4]
    );
    assert_eq!(lz4.pclusters.keys().copied().collect::<Vec<_>>(), [4096]);
    assert!(lz4.file_bytes_stored < lz4.file_bytes);
    assert!(
        count("lz4hc-64k")
            .pclusters
            .keys()
            .any(|&bytes| bytes > 4096)
    );
    assert!(count("ztailpacking").inline_pclusters > 0);
    let fragments = count("fragments");
    assert!(fragments.fragments.0 > 0 && fragments.packed_bytes.1 < fragments.packed_bytes.0);
    let metabox = count("metabox-lzma");
    assert!(metabox.algorithms.contains_key(&Algorithm::Lzma));
    assert!(metabox.metabox_bytes.1 < metabox.metabox_bytes.0);
}
