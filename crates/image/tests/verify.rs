//! Comparisons of which a side cannot be read everywhere.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_image::{
    Difference, ExtractOptions, Image, Location, Mismatch, OpenOptions, Side, Source,
    VerifyOptions, VerifyReport, XattrScope, extract, verify,
};
use anteros_tests::faulty::{Call, Faulty, When};
use anteros_tests::nobody;
use common::Fixture;
use rustix::io::Errno;
use tempfile::TempDir;

fn open(device: Arc<Faulty<Vec<u8>>>) -> Image {
    Image::open(device, vec![], OpenOptions::default()).unwrap()
}

/// An image without a fault, and a directory with all that is in it.
fn patient(name: &str) -> (Arc<Faulty<Vec<u8>>>, Image, TempDir) {
    let device = Arc::new(Faulty::new(Fixture::read(name).bytes));
    let image = open(device.clone());
    let source = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        owners: false,
        ..ExtractOptions::default()
    };
    let cancel = AtomicBool::new(false);
    extract(&image, b"", source.path(), &options, &(), &cancel).unwrap();
    (device, image, source)
}

/// Whatever differs without owners is left out.
fn compare(image: &Image, source: &Path) -> VerifyReport {
    let without = |path: &[u8]| path.starts_with(b"nodes/") || path.starts_with(b"modes/");
    let options = VerifyOptions {
        owner: &|_| None,
        xattrs: XattrScope::User,
        excluded: &without,
        ..VerifyOptions::default()
    };
    let mut report = verify(image, source, &options, &(), &AtomicBool::new(false)).unwrap();
    let excluded = |difference: &Difference| without(difference.path.as_bytes());
    report.differences.retain(|found| !excluded(found));
    report
}

fn told(report: &VerifyReport) -> Vec<String> {
    report.differences.iter().map(ToString::to_string).collect()
}

/// Byte of the image at which a file begins.
fn address(image: &Image, path: &[u8]) -> u64 {
    let inode = image.find(path).unwrap();
    let map = image.map(&inode).unwrap();
    match image.extent_at(&inode, &map, 0).unwrap().source {
        Source::Raw(Location::Device { address, .. }) => address,
        _ => panic!("it is plain"),
    }
}

#[test]
fn a_block_of_the_image_that_cannot_be_read_is_a_difference_and_the_rest_is_compared() {
    let (device, image, source) = patient("plain");
    assert_eq!(told(&compare(&image, source.path())), [""; 0]);
    let bad = address(&image, b"data/words") / 4096 * 4096;
    device.inject(Call::Read, When::Touching(bad..bad + 4096), Errno::IO);
    // Behind it in the order of the walk, and elsewhere.
    fs::write(source.path().join("links/hard-1"), "other\n").unwrap();
    fs::write(source.path().join("xattrs/new"), "").unwrap();
    let report = compare(&open(device), source.path());
    assert_eq!(report.unreadable_count, 1);
    let is_of = |path: &str| {
        let of = report.differences.iter();
        of.filter(|d| d.path.as_bytes() == path.as_bytes())
            .collect::<Vec<_>>()
    };
    let words = is_of("data/words");
    let Mismatch::Unreadable { side, part, why } = &words[0].what else {
        panic!("{words:?}")
    };
    assert_eq!((words.len(), *side, *part), (1, Side::Image, "data"));
    assert!(why.contains(&format!("block at byte {bad:#x}: ")), "{why}");
    assert!(!is_of("links/hard-1").is_empty(), "{report:?}");
    assert_eq!(is_of("xattrs/new")[0].what, Mismatch::OnlyInSource);
}

/// Each block of an image in turn: nothing ends the comparison but the superblock and the root.
#[test]
fn no_block_but_the_first_ends_a_comparison() {
    for name in ["plain", "lz4hc-64k", "fragments"] {
        let (device, image, source) = patient(name);
        let root = image.root().unwrap().nid;
        let blocks = fixture_bytes(name) / 4096;
        for block in 0..blocks {
            let range = block * 4096..(block + 1) * 4096;
            device.inject(Call::Read, When::Touching(range), Errno::IO);
            let scratched = Image::open(device.clone(), vec![], OpenOptions::default());
            let has_root = scratched
                .as_ref()
                .is_ok_and(|image| image.inode(root).is_ok());
            if let Some(scratched) = scratched.ok().filter(|_| has_root) {
                let report = compare(&scratched, source.path());
                let is_unread = |d: &Difference| matches!(d.what, Mismatch::Unreadable { .. });
                let found = told(&report);
                assert!(
                    report.differences.iter().all(is_unread),
                    "{name}: {found:?}"
                );
            }
            device.heal();
        }
    }
}

fn fixture_bytes(name: &str) -> u64 {
    Fixture::read(name).bytes.len() as u64
}

/// A file and a directory of the source that let nobody in.
#[test]
fn what_the_source_keeps_from_a_user_is_a_difference_and_the_rest_is_compared() {
    let test = "what_the_source_keeps_from_a_user_is_a_difference_and_the_rest_is_compared";
    let Some(place) = nobody::place(test, &["plain"]) else {
        return;
    };
    let bytes = fs::read(place.join("plain.erofs")).unwrap();
    let image = open(Arc::new(Faulty::new(bytes)));
    let source = tempfile::tempdir_in(&place).unwrap();
    let cancel = AtomicBool::new(false);
    let options = ExtractOptions::default();
    extract(&image, b"", source.path(), &options, &(), &cancel).unwrap();
    let mode = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(source.path().join(name), permissions).unwrap();
    };
    // Neither entered nor listed, entered but not listed, listed but not entered.
    mode("deep", 0);
    mode("many", 0o311);
    mode("links", 0o644);
    mode("data/hello", 0);
    let found = told(&compare(&image, source.path()));
    for (name, mode_of) in [("deep", 0o755), ("many", 0o755), ("links", 0o755)] {
        mode(name, mode_of);
    }
    let denied = "Permission denied (os error 13)";
    for (path, part) in [
        ("/data/hello", "data"),
        ("/deep", "names"),
        ("/links", "names"),
        ("/many", "names"),
    ] {
        let wanted = format!("{path}: the {part} cannot be read in the source: {denied}");
        assert!(found.contains(&wanted), "{wanted}: {found:#?}");
    }
    assert!(
        found.iter().all(|found| !found.contains("only in")),
        "{found:#?}"
    );
}

/// Differences that were kept do not hide what could not be read.
#[test]
fn what_cannot_be_read_is_kept_behind_many_differences() {
    let (device, image, source) = patient("plain");
    let bad = address(&image, b"data/words") / 4096 * 4096;
    device.inject(Call::Read, When::Touching(bad..bad + 4096), Errno::IO);
    let options = VerifyOptions {
        owner: &|(uid, gid)| Some((uid + 1, gid + 1)),
        differences_max: 3,
        ..VerifyOptions::default()
    };
    let scratched = open(device);
    let report = verify(
        &scratched,
        source.path(),
        &options,
        &(),
        &AtomicBool::new(false),
    );
    let report = report.unwrap();
    let kept = told(&report);
    assert_eq!(kept.len() as u64, 3 + report.unreadable_count, "{kept:?}");
    let is_kept = |told: &String| told.starts_with("/data/words: the data cannot be read");
    assert!(kept.iter().any(is_kept), "{kept:?}");
}
