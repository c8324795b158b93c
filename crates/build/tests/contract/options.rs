//! Options: what they change, and which are refused.

use std::fs;

use anteros_build::{Compression, Effort, Error, Exclude, InodeForm, Options};
use tempfile::TempDir;

use crate::common::build;
use crate::{lz4, names, superblock};

#[test]
fn times_owners_and_links_as_asked() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::write(source.path().join("a"), vec![1; 9000]).unwrap();
    fs::hard_link(source.path().join("a"), source.path().join("b")).unwrap();
    let once = build(&image, source.path(), &Options::default()).unwrap();
    assert_eq!(
        (once.files, once.hard_links, once.input_bytes),
        (1, 1, 9000)
    );
    let twice = Options {
        hard_dereference: true,
        ..Options::default()
    };
    let twice = build(&image, source.path(), &twice).unwrap();
    assert_eq!(
        (twice.files, twice.hard_links, twice.input_bytes),
        (2, 0, 18000)
    );

    let clamped = Options {
        clamp_time: Some(1000),
        ..Options::default()
    };
    build(&image, source.path(), &clamped).unwrap();
    assert_eq!(
        (superblock(&image).epoch, superblock(&image).fixed_nsec),
        (1000, 0)
    );

    let far = Options {
        force_uid: Some(u32::MAX),
        uid_offset: 1,
        ..Options::default()
    };
    let error = build(&image, source.path(), &far).unwrap_err();
    assert!(error.to_string().contains("4294967295 plus 1"), "{error}");

    let huge = Options {
        force_gid: Some(65_536),
        inode_form: InodeForm::Compact,
        ..Options::default()
    };
    let error = build(&image, source.path(), &huge).unwrap_err();
    assert!(
        matches!(&error, Error::Unstorable { path, .. } if path == source.path()),
        "{error}"
    );
}

#[test]
fn what_is_excluded_is_not_there() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    for path in ["a/keep", "a/x.o", "b/c/d", "b/e"] {
        let path = source.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let count = |exclude: Vec<Exclude>| {
        let options = Options {
            exclude,
            ..Options::default()
        };
        let summary = build(&image, source.path(), &options).unwrap();
        (summary.files, summary.directories)
    };
    assert_eq!(count(vec![]), (4, 4));
    assert_eq!(count(vec![Exclude::Path(b"/b/c/".to_vec())]), (3, 3));
    assert_eq!(
        count(vec![Exclude::Path(b"c".to_vec())]),
        (4, 4),
        "whole paths only"
    );
    assert_eq!(
        count(vec![
            Exclude::pattern(r"\.o$").unwrap(),
            Exclude::pattern("^b").unwrap()
        ]),
        (1, 2)
    );
    assert!(matches!(Exclude::pattern("("), Err(Error::Option(_))));
}

#[test]
fn impossible_options_are_refused() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let with = |change: fn(&mut Compression)| {
        let mut options = lz4(1 << 20);
        change(options.compression.as_mut().unwrap());
        options
    };
    for options in [
        Options {
            block_bits: 8,
            ..Options::default()
        },
        Options {
            block_bits: 17,
            ..Options::default()
        },
        Options {
            label: vec![b'x'; 16],
            ..Options::default()
        },
        Options {
            label: vec![0],
            ..Options::default()
        },
        Options {
            workers: 0,
            ..Options::default()
        },
        Options {
            offset: 100,
            ..Options::default()
        },
        Options {
            chunk_bytes: Some(12_288),
            ..Options::default()
        },
        Options {
            chunk_bytes: Some(2048),
            ..Options::default()
        },
        with(|c| c.pcluster_bytes = 0),
        with(|c| c.pcluster_bytes = 5000),
        with(|c| c.pcluster_bytes = 2 << 20),
        with(|c| c.segment_bytes = 5000),
        with(|c| c.window_bytes = 100),
        with(|c| c.min_gain_percent = 101),
        with(|c| c.codec = Effort::High(13).into()),
    ] {
        let error = build(&image, &source, &options).unwrap_err();
        assert!(matches!(error, Error::Option(_)), "{error} for {options:?}");
        assert_eq!(names(dir.path()), ["source"]);
    }
}
