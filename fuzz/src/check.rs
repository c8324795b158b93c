//! The target `check`.

use std::sync::atomic::AtomicBool;

use anteros_core::FileKind;
use anteros_format::inode::Inode;
use anteros_image::{CheckOptions, CheckReport, Image, Severity, statistics};

use super::image::{Budget, inodes, open_image};

/// Bytes that a check may look at.
const CHECK_BYTES: u64 = 32 << 20;
/// Findings that are kept.
const FINDINGS_MAX: usize = 100;
/// Bytes that are read of an image without fault, in all and at a time.
const READ_BYTES: u64 = 32 << 20;
const PIECE_BYTES: usize = 50_000;

/// Checks the image. Of one that is without fault, all can be read.
pub fn check(input: &[u8]) {
    let Ok(image) = open_image(input) else { return };
    let report = report(&image);
    let worst = report
        .findings
        .iter()
        .map(|finding| finding.severity())
        .max();
    assert!(worst <= report.worst);
    assert_eq!(report.is_clean(), report.worst <= Some(Severity::Note));
    assert!(
        report
            .findings
            .iter()
            .all(|finding| !finding.to_string().is_empty())
    );
    if report.is_clean() {
        read_all(&image);
    }
}

/// Everything that a check finds.
pub(crate) fn report(image: &Image) -> CheckReport {
    let options = CheckOptions {
        digests: image.superblock().digest_prefix.is_some(),
        workers: 1,
        data: true,
        findings_max: FINDINGS_MAX,
        work_bytes_max: CHECK_BYTES,
        ..CheckOptions::default()
    };
    anteros_image::check(image, &options, &(), &AtomicBool::new(false))
}

fn read_all(image: &Image) {
    statistics(image).expect("statistics of an image without fault");
    let mut budget = Budget(READ_BYTES);
    for inode in inodes(image) {
        read_attributes(image, &inode);
        match inode.kind {
            FileKind::Directory => read_directory(image, &inode),
            FileKind::Symlink => drop(image.read_link(&inode).expect("a sound link")),
            _ => read_content(image, &inode, &mut budget),
        }
    }
}

/// Each attribute that is listed is found by its name.
fn read_attributes(image: &Image, inode: &Inode) {
    for attribute in image.xattrs(inode).expect("sound attributes") {
        let value = image
            .xattr(inode, &attribute.name)
            .expect("sound attributes");
        assert_eq!(value, Some(attribute.value), "{}", inode.nid);
    }
}

/// Each entry that is listed is found by its name, and so is its inode.
fn read_directory(image: &Image, dir: &Inode) {
    for entry in image.read_dir(dir).expect("a sound directory") {
        let found = image.lookup(dir, &entry.name).expect("a sound directory");
        assert_eq!(found.as_ref(), Some(&entry), "{}", dir.nid);
        let inode = image.inode(entry.nid).expect("a sound inode");
        assert_eq!(inode.kind, entry.kind);
    }
}

/// Reads a file piece by piece.
fn read_content(image: &Image, inode: &Inode, budget: &mut Budget) {
    let map = image.map(inode).expect("a sound map");
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < inode.size && budget.spend(PIECE_BYTES as u64) {
        let read = image.read(inode, &map, offset, &mut piece);
        offset += read.expect("sound content") as u64;
    }
}
