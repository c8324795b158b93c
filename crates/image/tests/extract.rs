//! Extracts images and compares what is there with the image, and with the fixtures' manifest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Once};

use anteros_core::{Device, FileDevice, FileKind};
use anteros_format::Nid;
use anteros_format::dirent::RawDirent;
use anteros_format::inode::RawCompactInode;
use anteros_format::superblock::RawSuperblock;
use anteros_image::{
    Difference, ExtractError, ExtractObserver, ExtractOptions, ExtractProblem, ExtractSummary,
    Image, ImageText, Mismatch, OpenOptions, Source, VerifyOptions, VerifyReport, Warning,
    XattrScope, extract, verify,
};
use anteros_tests::{judge, nobody};
use tempfile::TempDir;
use zerocopy::{FromZeros, IntoBytes};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn fixture_names() -> Vec<String> {
    let names = fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut names: Vec<_> = names
        .filter_map(|name| name.strip_suffix(".erofs").map(String::from))
        .collect();
    names.sort();
    names
}

fn open_fixture(name: &str) -> Image {
    let device = |name| Arc::new(FileDevice::open(fixtures().join(name)).unwrap()) as _;
    let extra = if name == "blobdev" {
        vec![device("blobdev.blob".to_owned())]
    } else {
        vec![]
    };
    Image::open(
        device(format!("{name}.erofs")),
        extra,
        OpenOptions::default(),
    )
    .unwrap()
}

fn open_bytes(bytes: Vec<u8>) -> Image {
    Image::open(Arc::new(bytes), vec![], OpenOptions::default()).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn try_extract(
    image: &Image,
    from: &str,
    target: &Path,
    options: &ExtractOptions,
) -> Result<ExtractSummary, ExtractError> {
    extract(
        image,
        from.as_bytes(),
        target,
        options,
        &(),
        &AtomicBool::new(false),
    )
}

fn extract_all(image: &Image, target: &Path) -> ExtractSummary {
    try_extract(image, "", target, &ExtractOptions::default()).unwrap()
}

/// Returns what this user can extract can also be compared.
fn verify_options() -> VerifyOptions<'static> {
    let all = VerifyOptions::default();
    if is_root() {
        return all;
    }
    VerifyOptions {
        owner: &|_| None,
        xattrs: XattrScope::User,
        ..all
    }
}

fn compare(image: &Image, source: &Path, options: &VerifyOptions<'_>) -> VerifyReport {
    verify(image, source, options, &(), &AtomicBool::new(false)).unwrap()
}

fn differences(image: &Image, source: &Path, options: &VerifyOptions<'_>) -> Vec<String> {
    let report = compare(image, source, options);
    assert_eq!(report.difference_count, report.differences.len() as u64);
    report
        .differences
        .iter()
        .map(Difference::to_string)
        .collect()
}

/// Differences between a fixture and what a user gets of it: devices and set-id bits are left out, and of a file that nobody may
/// read there is nothing to compare.
const UNLIKE: [&str; 7] = [
    "/modes/0000: the data cannot be read in the source: Permission denied (os error 13)",
    "/modes/2755: mode 2755 in the image, 0755 in the source",
    "/modes/4755: mode 4755 in the image, 0755 in the source",
    "/modes/6711: mode 6711 in the image, 0711 in the source",
    "/nodes/disk: only in the image",
    "/nodes/large: only in the image",
    "/nodes/null: only in the image",
];

/// These differences, and those that a whole fixture has for whoever runs the tests.
fn and_unlike(expected: &[&str]) -> Vec<String> {
    let unlike: &[&str] = if is_root() { &[] } else { &UNLIKE };
    if !is_root() {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| judge::say(format_args!("NOT COMPARED (only root can): {UNLIKE:#?}")));
    }
    let mut all: Vec<_> = [expected, unlike].concat();
    all.sort_unstable();
    all.into_iter().map(String::from).collect()
}

/// A whole fixture was extracted.
#[track_caller]
fn assert_same(image: &Image, source: &Path, what: &str) {
    let found = differences(image, source, &verify_options());
    assert_eq!(found, and_unlike(&[]), "{what}");
}

/// Paths below `root`, relative to it, in byte order; the root is empty.
fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    let mut next = 0;
    while next < found.len() {
        let path = root.join(&found[next]);
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                found.push(found[next].join(entry.unwrap().file_name()));
            }
        }
        next += 1;
    }
    found.sort();
    found
}

fn escape(bytes: &[u8]) -> String {
    let plain = |b: u8| (b'!'..=b'~').contains(&b) && b != b'%';
    let escaped = |&b: &u8| {
        if plain(b) {
            char::from(b).into()
        } else {
            format!("%{b:02X}")
        }
    };
    bytes.iter().map(escaped).collect()
}

fn sha256(paths: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let output = Command::new("sha256sum")
        .arg("--zero")
        .args(paths)
        .output()
        .unwrap();
    assert!(output.status.success());
    let lines = output
        .stdout
        .split(|&b| b == 0)
        .filter(|line| !line.is_empty());
    let entry = |line: &[u8]| {
        let path = std::ffi::OsStr::from_bytes(&line[66..]);
        (path.into(), String::from_utf8(line[..64].to_vec()).unwrap())
    };
    lines.map(entry).collect()
}

fn xattrs(path: &Path) -> String {
    let mut buf = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut buf[..]).unwrap();
    let list = buf[..len].to_vec();
    let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        let hex: String = value[..len].iter().map(|b| format!("{b:02x}")).collect();
        format!("{}={hex}", escape(name))
    };
    let mut all: Vec<String> = names.map(value).collect();
    all.sort_unstable();
    if all.is_empty() {
        "-".into()
    } else {
        all.join(",")
    }
}

/// The manifest of a tree, in the form of the fixtures' own.
fn manifest(root: &Path) -> Vec<String> {
    let paths = walk(root);
    let is_file = |path: &PathBuf| path.symlink_metadata().unwrap().is_file();
    let files: Vec<_> = paths
        .iter()
        .map(|path| root.join(path))
        .filter(is_file)
        .collect();
    let sums = sha256(&files);
    let line = |path: &PathBuf| {
        let full = root.join(path);
        let meta = full.symlink_metadata().unwrap();
        let kind = meta.file_type();
        let device = || {
            let device = meta.rdev();
            format!(
                "{}:{}",
                rustix::fs::major(device),
                rustix::fs::minor(device)
            )
        };
        let (letter, size, content) = if kind.is_file() {
            ("f", meta.len().to_string(), sums[&full].clone())
        } else if kind.is_symlink() {
            let target = fs::read_link(&full).unwrap();
            (
                "l",
                meta.len().to_string(),
                escape(target.as_os_str().as_bytes()),
            )
        } else if kind.is_dir() {
            ("d", "-".into(), "-".into())
        } else if kind.is_fifo() {
            ("p", "-".into(), "-".into())
        } else if kind.is_socket() {
            ("s", "-".into(), "-".into())
        } else if kind.is_block_device() {
            ("b", "-".into(), device())
        } else {
            ("c", "-".into(), device())
        };
        format!(
            "/{}\t{letter}\t{:04o}\t{}\t{}\t{}.{:09}\t{size}\t{}\t{content}\t{}",
            escape(path.as_os_str().as_bytes()),
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.nlink(),
            xattrs(&full),
        )
    };
    let mut lines: Vec<_> = paths.iter().map(line).collect();
    lines.sort_unstable();
    lines
}

/// With 48-bit addresses mkfs.erofs stores 32 bits of seconds and no fractions.
fn as_stored_in(image: &Image, line: &str) -> String {
    if !image.superblock().has_48bit() {
        return line.into();
    }
    line.replace("-86400.", "4294880896.")
        .replace(".123456789", ".000000000")
}

#[test]
fn every_fixture_extracts_to_the_tree_it_was_made_of() {
    let expected = fs::read_to_string(fixtures().join("tree.manifest")).unwrap();
    let mut expected: Vec<_> = expected.lines().collect();
    expected.sort_unstable();
    for name in fixture_names() {
        let image = open_fixture(&name);
        let target = tempfile::tempdir().unwrap();
        let summary = extract_all(&image, target.path());
        assert_same(&image, target.path(), &name);
        if is_root() {
            assert!(summary.is_complete(), "{name}");
            let found = manifest(target.path());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(*found, as_stored_in(&image, expected), "{name}");
            }
            assert_eq!(found.len(), expected.len(), "{name}");
        }
        assert_eq!((summary.hard_links, summary.symlinks), (2, 6), "{name}");
    }
}

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl ExtractObserver for Warnings {
    fn warning(&self, warning: &Warning) {
        self.0.lock().unwrap().push(warning.to_string());
    }
}

/// The test binary runs this part of itself as another user.
#[test]
fn a_user_without_rights_gets_all_that_they_may_have() {
    let test = "a_user_without_rights_gets_all_that_they_may_have";
    let Some(directory) = nobody::place(test, &["lz4"]) else {
        return;
    };
    assert!(!is_root());
    let image = open_bytes(fs::read(directory.join("lz4.erofs")).unwrap());
    let target = tempfile::tempdir_in(&directory).unwrap();
    let summary = extract_all(&image, target.path());
    assert_eq!((summary.devices_omitted, summary.xattrs_omitted), (3, 0));
    assert_eq!(
        differences(&image, target.path(), &verify_options()),
        UNLIKE
    );

    let options = ExtractOptions {
        xattrs: XattrScope::All,
        ..ExtractOptions::default()
    };
    let again = target.path().join("again");
    let (warnings, cancel) = (Warnings::default(), AtomicBool::new(false));
    let summary = extract(&image, b"xattrs", &again, &options, &warnings, &cancel).unwrap();
    let warnings = warnings.0.into_inner().unwrap();
    assert_eq!(summary.xattrs_omitted, warnings.len() as u64);
    assert!(!summary.is_complete());
    for omitted in [
        "/xattrs/far: the attribute trusted.overlay.redirect was left out: ",
        "/xattrs/overlay: the attribute trusted.overlay.opaque was left out: ",
        "/xattrs/soft: the attribute trusted.link was left out: ",
    ] {
        assert!(
            warnings.iter().any(|said| said.starts_with(omitted)),
            "{warnings:?}"
        );
    }

    let options = ExtractOptions {
        owners: true,
        ..ExtractOptions::default()
    };
    let error = try_extract(&image, "owners", &target.path().join("owners-of"), &options);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("cannot set its owner"), "{error}");

    // Directories that will not let their owner in.
    let closed = ["a", "b"].map(|name| Dir { name, perm: 0 });
    let image = open_bytes(chain(&closed));
    let target = target.path().join("closed");
    extract_all(&image, &target);
    assert_eq!(fs::metadata(target.join("a")).unwrap().mode() & 0o7777, 0);
    fs::set_permissions(target.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::metadata(target.join("a/b")).unwrap().mode() & 0o7777, 0);
    fs::set_permissions(target.join("a/b"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::metadata(target.join("a/b/file")).unwrap().nlink(), 2);
}

/// A set-id bit lends the identity of the owner that the image names. Whoever extracts without
/// owners must not lend their own.
#[test]
fn set_id_bits_are_dropped_where_owners_are_not_set() {
    let image = open_fixture("lz4");
    let place = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        owners: false,
        ..ExtractOptions::default()
    };
    let target = place.path().join("modes");
    try_extract(&image, "modes", &target, &options).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    for (name, expected) in [
        ("0644", 0o644),
        ("2755", 0o755),
        ("4755", 0o755),
        ("6711", 0o711),
        ("sticky", 0o1777),
    ] {
        assert_eq!(mode(&target.join(name)), expected, "{name}");
    }
    // One file, and one that replaces what has the bits.
    let alone = place.path().join("alone");
    fs::write(&alone, "").unwrap();
    fs::set_permissions(&alone, fs::Permissions::from_mode(0o6755)).unwrap();
    let options = ExtractOptions {
        overwrite: true,
        ..options
    };
    try_extract(&image, "modes/6711", &alone, &options).unwrap();
    assert_eq!(mode(&alone), 0o711);
    // Directories, and the one that was there.
    let dir = [Dir {
        name: "dir",
        perm: 0o6755,
    }];
    let image = open_bytes(chain(&dir));
    let target = place.path().join("dirs");
    fs::create_dir_all(target.join("dir")).unwrap();
    fs::set_permissions(target.join("dir"), fs::Permissions::from_mode(0o2700)).unwrap();
    try_extract(&image, "", &target, &options).unwrap();
    assert_eq!(mode(&target.join("dir")), 0o755);
}

/// Capabilities and devices are root's powers for whoever may execute or open them.
#[test]
fn privileged_attributes_and_devices_are_left_out_where_owners_are_not_set() {
    let image = open_fixture("lz4");
    let target = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        owners: false,
        xattrs: XattrScope::All,
        ..ExtractOptions::default()
    };
    let (warnings, cancel) = (Warnings::default(), AtomicBool::new(false));
    let summary = extract(&image, b"", target.path(), &options, &warnings, &cancel).unwrap();
    assert!(!summary.is_complete());
    assert_eq!(summary.devices_omitted, 3);
    let warnings = warnings.0.into_inner().unwrap();
    for omitted in [
        "/xattrs/capable: the attribute security.capability was left out: owners are not set",
        "/xattrs/labelled: the attribute security.selinux was left out: owners are not set",
        "/xattrs/overlay: the attribute trusted.overlay.opaque was left out: owners are not set",
        "/nodes/disk: the device was left out: owners are not set",
    ] {
        assert!(
            warnings.iter().any(|said| said.starts_with(omitted)),
            "{omitted}: {warnings:?}"
        );
    }
    assert_eq!(xattrs(&target.path().join("xattrs/capable")), "-");
    assert_ne!(xattrs(&target.path().join("xattrs/one")), "-");
    let nodes = fs::read_dir(target.path().join("nodes")).unwrap();
    for node in nodes {
        let kind = node.unwrap().file_type().unwrap();
        assert!(!kind.is_block_device() && !kind.is_char_device());
    }
}

#[test]
fn one_file_or_one_directory() {
    let image = open_fixture("lz4hc-64k");
    let place = tempfile::tempdir().unwrap();
    let target = |name: &str| place.path().join(name);
    let options = ExtractOptions::default();
    try_extract(&image, "/data/words", &target("renamed"), &options).unwrap();
    try_extract(&image, "data/words-part", place.path(), &options).unwrap();
    let words = fs::read(target("renamed")).unwrap();
    assert_eq!(words.len(), 28131);
    assert!(words.starts_with(&fs::read(target("words-part")).unwrap()));
    let summary = try_extract(&image, "links", &target("links"), &options).unwrap();
    assert_eq!(
        (summary.directories, summary.files, summary.hard_links),
        (0, 1, 1)
    );
    assert_eq!(
        fs::read_link(target("links/soft")).unwrap(),
        Path::new("../data/hello")
    );
    try_extract(&image, "links/dangling", place.path(), &options).unwrap();
    assert_eq!(
        fs::read_link(target("dangling")).unwrap(),
        Path::new("nowhere")
    );

    let absent = try_extract(&image, "data/nothing", &target("x"), &options).unwrap_err();
    assert_eq!(
        absent.to_string(),
        "/data/nothing: no such file or directory"
    );
    let nowhere = try_extract(&image, "data", &target("x/y"), &options).unwrap_err();
    assert!(
        matches!(nowhere.problem, ExtractProblem::Target { .. }),
        "{nowhere}"
    );
}

#[test]
fn what_exists_is_an_error_or_replaced() {
    let image = open_fixture("plain");
    let target = tempfile::tempdir().unwrap();
    extract_all(&image, target.path());
    let again = try_extract(&image, "", target.path(), &ExtractOptions::default()).unwrap_err();
    assert!(matches!(again.problem, ExtractProblem::Exists), "{again}");
    assert_same(&image, target.path(), "");

    let words = target.path().join("data/words");
    fs::remove_file(&words).unwrap();
    fs::write(&words, "else").unwrap();
    let overwrite = ExtractOptions {
        overwrite: true,
        ..ExtractOptions::default()
    };
    try_extract(&image, "", target.path(), &overwrite).unwrap();
    assert_same(&image, target.path(), "");

    fs::remove_file(&words).unwrap();
    fs::create_dir(&words).unwrap();
    let in_the_way = try_extract(&image, "", target.path(), &overwrite).unwrap_err();
    assert!(
        matches!(in_the_way.problem, ExtractProblem::DirectoryInTheWay),
        "{in_the_way}"
    );
    assert_eq!(in_the_way.path.as_bytes(), b"data/words");
    let go_on = ExtractOptions {
        keep_going: true,
        ..overwrite
    };
    let summary = try_extract(&image, "", target.path(), &go_on).unwrap();
    assert_eq!((summary.error_count, summary.errors.len()), (1, 1));
    let kind = "/data/words: a file in the image, a directory in the source";
    assert_eq!(
        differences(&image, target.path(), &verify_options()),
        and_unlike(&[kind])
    );
}

#[test]
fn a_symbolic_link_in_the_target_is_never_followed() {
    let image = open_fixture("plain");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "mine").unwrap();
    let victim = outside.path().join("victim");
    for (name, points_to) in [("data", outside.path()), ("data/words", &victim)] {
        for overwrite in [false, true] {
            let target = tempfile::tempdir().unwrap();
            let link = target.path().join(name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(points_to, &link).unwrap();
            let options = ExtractOptions {
                overwrite,
                ..ExtractOptions::default()
            };
            match try_extract(&image, "", target.path(), &options) {
                Ok(_) => {
                    assert!(overwrite);
                    assert_same(&image, target.path(), "");
                }
                Err(error) => {
                    assert!(!overwrite && matches!(error.problem, ExtractProblem::Exists));
                    assert_eq!(fs::read_link(&link).unwrap(), points_to);
                }
            }
            assert_eq!(walk(outside.path()).len(), 2);
            assert_eq!(fs::read(&victim).unwrap(), b"mine");
        }
    }
}

#[test]
fn access_control_lists_are_not_inherited_from_the_target() {
    let image = open_fixture("lz4");
    let target = tempfile::tempdir().unwrap();
    let set = Command::new("setfacl")
        .args(["--modify", "default:user:1234:rwx"])
        .arg(target.path())
        .status()
        .unwrap();
    assert!(set.success());
    extract_all(&image, target.path());
    assert_same(&image, target.path(), "");
}

#[test]
fn a_truncated_image_is_an_error_and_never_zeros() {
    for name in ["plain", "lz4hc-64k", "fragments", "zstd"] {
        let whole = fs::read(fixtures().join(format!("{name}.erofs"))).unwrap();
        let image = open_bytes(whole.clone());
        let metadata = whole.len() / 2;
        for len in (metadata..whole.len()).step_by(8192) {
            let cut = Image::open(
                Arc::new(whole[..len].to_vec()),
                vec![],
                OpenOptions::default(),
            );
            let Ok(cut) = cut else { continue };
            let target = tempfile::tempdir().unwrap();
            let first = target.path().join("first");
            assert!(try_extract(&cut, "", &first, &ExtractOptions::default()).is_err());
            let options = ExtractOptions {
                keep_going: true,
                ..ExtractOptions::default()
            };
            let rest = target.path().join("rest");
            let Ok(summary) = try_extract(&cut, "", &rest, &options) else {
                continue;
            };
            assert!(summary.error_count > 0, "{name} {len}");
            let found = compare(&image, &rest, &verify_options());
            let wrong = |d: &&Difference| matches!(d.what, Mismatch::Data { .. });
            assert_eq!(found.differences.iter().find(wrong), None, "{name} {len}");
        }
    }
}

#[test]
fn a_cancelled_run_says_so() {
    let (image, target) = (open_fixture("lz4"), tempfile::tempdir().unwrap());
    let cancel = AtomicBool::new(true);
    let options = ExtractOptions {
        keep_going: true,
        ..ExtractOptions::default()
    };
    let error = extract(&image, b"", target.path(), &options, &(), &cancel).unwrap_err();
    assert!(matches!(error.problem, ExtractProblem::Cancelled));
    assert_eq!(walk(target.path()).len(), 1);
    extract_all(&image, target.path());
    let verified = verify(&image, target.path(), &verify_options(), &(), &cancel).unwrap_err();
    assert!(
        verified.to_string().ends_with("cancelled here"),
        "{verified}"
    );
}

#[test]
fn every_difference_is_found() {
    let image = open_fixture("zstd");
    let target = tempfile::tempdir().unwrap();
    extract_all(&image, target.path());
    let place = |name: &str| target.path().join(name);
    let options = verify_options();
    let find = || differences(&image, target.path(), &options);
    let keep_times = |names: &[&str], change: &dyn Fn()| {
        let times = names
            .iter()
            .map(|name| place(name).metadata().unwrap().modified().unwrap());
        let times: Vec<_> = times.collect();
        change();
        for (name, time) in names.iter().zip(times) {
            fs::File::open(place(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
    };

    keep_times(&["data/words"], &|| {
        let mut data = fs::read(place("data/words")).unwrap();
        data[20_000] ^= 1;
        fs::write(place("data/words"), data).unwrap();
    });
    keep_times(&["data/hole"], &|| {
        let mut data = fs::read(place("data/hole")).unwrap();
        data[5000] = 1;
        fs::write(place("data/hole"), data).unwrap();
    });
    keep_times(&["data/lines"], &|| {
        fs::write(place("data/lines"), "short").unwrap()
    });
    assert_eq!(
        find(),
        and_unlike(&[
            "/data/hole: the data differs at byte 5000",
            "/data/lines: 33600 bytes in the image, 5 in the source",
            "/data/words: the data differs at byte 20000",
        ])
    );

    let target = tempfile::tempdir().unwrap();
    extract_all(&image, target.path());
    let place = |name: &str| target.path().join(name);
    fs::remove_file(place("links/soft")).unwrap();
    symlink("elsewhere", place("links/soft")).unwrap();
    fs::remove_file(place("links/hard-1")).unwrap();
    fs::copy(place("links/hard-2"), place("links/hard-1")).unwrap();
    fs::remove_dir(place("acl/default")).unwrap();
    fs::write(place("acl/new"), "").unwrap();
    fs::remove_file(place("nodes/fifo")).unwrap();
    fs::create_dir(place("nodes/fifo")).unwrap();
    fs::set_permissions(place("data/empty"), fs::Permissions::from_mode(0o600)).unwrap();
    let file = place("xattrs/one");
    rustix::fs::setxattr(&file, "user.comment", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::removexattr(place("xattrs/binary"), "user.binary").unwrap();
    let options = VerifyOptions {
        time: &|_| None,
        ..options
    };
    let expected = [
        "/acl/default: only in the image",
        "/acl/new: only in the source",
        "/data/empty: mode 0644 in the image, 0600 in the source",
        "/links/hard-1: a hard link of /data/hello in the image alone",
        "/links/soft: links to `../data/hello` in the image, to `elsewhere` in the source",
        "/nodes/fifo: a fifo in the image, a directory in the source",
        "/xattrs/binary: attribute `user.binary` only in the image",
        "/xattrs/one: attribute `user.comment` has another value",
    ];
    let found = differences(&image, target.path(), &options);
    assert_eq!(found, and_unlike(&expected));
    let without = |path: &[u8]| path == b"acl" || path == b"links/hard-1";
    let options = VerifyOptions {
        excluded: &without,
        ..options
    };
    let found = compare(&image, target.path(), &options).differences;
    let excluded = found.iter().filter(|d| d.what == Mismatch::OnlyInImage);
    let excluded: Vec<_> = excluded.map(|d| d.path.as_bytes()).collect();
    assert!(
        excluded.starts_with(&[b"acl", b"links/hard-1"]),
        "{excluded:?}"
    );
    let options = VerifyOptions {
        differences_max: 2,
        ..options
    };
    let limited = compare(&image, target.path(), &options);
    assert_eq!(
        limited.differences.len() as u64,
        2 + limited.unreadable_count
    );
    assert_eq!(limited.difference_count, found.len() as u64);
}

#[test]
fn expectations_replace_the_source() {
    let image = open_fixture("lz4");
    let target = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        times: false,
        ..ExtractOptions::default()
    };
    try_extract(&image, "", target.path(), &options).unwrap();
    let options = VerifyOptions {
        owner: &|_| None,
        time: &|_| None,
        ..verify_options()
    };
    let found = differences(&image, target.path(), &options);
    assert_eq!(found, and_unlike(&[]));
    let built = anteros_core::Timestamp {
        secs: 1_700_000_000,
        nanos: 0,
    };
    let time = |_| Some(built);
    let options = VerifyOptions {
        time: &time,
        ..options
    };
    let found = compare(&image, target.path(), &options).differences;
    let paths: Vec<_> = found
        .iter()
        .filter(|d| matches!(d.what, Mismatch::Time { .. }))
        .map(|d| d.path.to_string())
        .collect();
    let times = ["before-1970", "later", "nanoseconds", "old"];
    assert_eq!(paths, times.map(|name| format!("/times/{name}")));
    let options = VerifyOptions {
        owner: &|_| Some((0, 0)),
        time: &|_| None,
        ..options
    };
    let found = compare(&image, target.path(), &options).differences;
    let owned = found
        .iter()
        .filter(|d| matches!(d.what, Mismatch::Owner { .. }));
    assert_eq!(
        owned.map(|d| d.path.to_string()).collect::<Vec<_>>().len(),
        3
    );
    assert_eq!(ImageText(b"a\n".to_vec()).to_string(), "`a\\n`");
}

/// A directory of a chain.
#[derive(Clone, Copy)]
struct Dir<'a> {
    name: &'a str,
    perm: u16,
}

/// An image with a block for each inode: a root, directories inside each other, and a file that is
/// linked from the innermost one and from the root. The file is a hole of `FILE_BYTES`.
fn chain(dirs: &[Dir<'_>]) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let nid = |index: usize| ((index + 1) * BLOCK / 32) as u64;
    let file = dirs.len() + 1;
    let mut image = vec![0; (file + 2) * BLOCK];
    let mut sb = RawSuperblock::new_zeroed();
    sb.magic = 0xE0F5_E1E2.into();
    sb.blkszbits = 12;
    sb.rootnid_2b = (nid(0) as u16).into();
    image[1024..1152].copy_from_slice(sb.as_bytes());
    for index in 0..=dirs.len() {
        let mut entries = vec![
            (".", nid(index), 2),
            ("..", nid(index.saturating_sub(1)), 2),
        ];
        entries.extend(dirs.get(index).map(|dir| (dir.name, nid(index + 1), 2)));
        if index == 0 || index == dirs.len() {
            entries.push(("file", nid(file), 1));
        }
        let perm = if index == 0 {
            0o755
        } else {
            dirs[index - 1].perm
        };
        let data = directory(&entries);
        put_inode(
            &mut image[(index + 1) * BLOCK..],
            0o040_000 | perm,
            2,
            2,
            &data,
        );
    }
    put_inode(&mut image[(file + 1) * BLOCK..], 0o100_644, 0, 2, &[]);
    let size = &mut image[(file + 1) * BLOCK + 8..][..4];
    size.copy_from_slice(&FILE_BYTES.to_le_bytes());
    image
}

const FILE_BYTES: u32 = 100 << 20;

fn put_inode(at: &mut [u8], mode: u16, layout: u16, nlink: u16, data: &[u8]) {
    let mut inode = RawCompactInode::new_zeroed();
    inode.i_format = (layout << 1).into();
    inode.i_mode = mode.into();
    inode.i_nb = nlink.into();
    inode.i_size = (data.len() as u32).into();
    inode.i_u = u32::MAX.into();
    at[..32].copy_from_slice(inode.as_bytes());
    at[32..32 + data.len()].copy_from_slice(data);
}

fn directory(entries: &[(&str, u64, u8)]) -> Vec<u8> {
    let (mut table, mut names) = (Vec::new(), Vec::new());
    for &(name, nid, file_type) in entries {
        let nameoff = (entries.len() * size_of::<RawDirent>() + names.len()) as u16;
        let (nid, nameoff) = (nid.into(), nameoff.into());
        table.extend_from_slice(
            RawDirent {
                nid,
                nameoff,
                file_type,
                reserved: 0,
            }
            .as_bytes(),
        );
        names.extend_from_slice(name.as_bytes());
    }
    table.append(&mut names);
    table
}

#[test]
fn trees_may_be_deeper_than_paths_may_be_long() {
    let name = "d".repeat(200);
    let dirs = vec![
        Dir {
            name: &name,
            perm: 0o755
        };
        200
    ];
    let image = open_bytes(chain(&dirs));
    let target = tempfile::tempdir().unwrap();
    let summary = extract_all(&image, target.path());
    assert_eq!(
        (summary.directories, summary.files, summary.hard_links),
        (200, 1, 1)
    );
    assert_eq!(summary.bytes, 0);
    let report = compare(&image, target.path(), &verify_options());
    assert_eq!((report.names, report.bytes), (203, u64::from(FILE_BYTES)));
    let found: Vec<_> = report.differences.iter().map(ToString::to_string).collect();
    assert_eq!(found, [""; 0]);
    let file = fs::metadata(target.path().join("file")).unwrap();
    assert_eq!((file.len(), file.blocks()), (FILE_BYTES.into(), 0));
    // Its path is too long for the usual ways to remove it.
    assert!(
        Command::new("rm")
            .arg("-r")
            .arg(target.path())
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_directory_that_contains_itself_is_refused() {
    let dirs = ["a", "b"].map(|name| Dir { name, perm: 0o755 });
    let mut bytes = chain(&dirs);
    // What `b` names is now the root, which `a` lies in.
    let name_of_b = 2 * 4096 + 32 + 2 * 12;
    let root = bytes[1024 + 14..][..2].to_vec();
    bytes[name_of_b..name_of_b + 2].copy_from_slice(&root);
    let image = open_bytes(bytes);
    assert_eq!(image.root().unwrap().nid, Nid(128));
    let target = tempfile::tempdir().unwrap();
    let error = try_extract(&image, "", target.path(), &ExtractOptions::default()).unwrap_err();
    assert!(
        matches!(
            error.problem,
            ExtractProblem::DirectoryTwice { nid: Nid(128) }
        ),
        "{error}"
    );
    assert!(error.problem.is_corrupt());
    assert_eq!(
        error.to_string(),
        "/a/b: directory inode 128 has a second name, or contains itself"
    );
}

#[test]
fn a_file_of_impossible_size_is_an_error() {
    let mut bytes = chain(&[]);
    // An extended inode says 2^62 bytes.
    let at = 2 * 4096;
    bytes[at] |= 1;
    bytes[at + 8..at + 16].copy_from_slice(&(1u64 << 62).to_le_bytes());
    let image = open_bytes(bytes);
    let target = tempfile::tempdir().unwrap();
    let error = try_extract(&image, "", target.path(), &ExtractOptions::default()).unwrap_err();
    assert!(
        matches!(&error.problem, ExtractProblem::Image(_)) && error.problem.is_corrupt(),
        "{error}"
    );
}

#[test]
fn a_file_of_which_little_is_there_is_given_up() {
    let mut bytes = chain(&[]);
    // An extended inode says 2^44 bytes, as they are, from block 1 on.
    let at = 2 * 4096;
    bytes[at] |= 1;
    bytes[at + 8..at + 16].copy_from_slice(&(1u64 << 44).to_le_bytes());
    bytes[at + 16..at + 20].copy_from_slice(&1u32.to_le_bytes());
    let image = open_bytes(bytes);
    let target = tempfile::tempdir().unwrap();
    for keep_going in [false, true] {
        let options = ExtractOptions {
            keep_going,
            overwrite: true,
            ..ExtractOptions::default()
        };
        match try_extract(&image, "", target.path(), &options) {
            Err(error) => assert!(!keep_going && error.problem.is_corrupt(), "{error}"),
            Ok(summary) => {
                assert!(keep_going && summary.error_count > 256);
                assert!(summary.error_count < 1000, "{}", summary.error_count);
                assert!(!summary.is_complete());
            }
        }
    }
}

#[test]
fn a_broken_extent_is_named_by_its_path() {
    let mut bytes = fs::read(fixtures().join("lz4hc-64k.erofs")).unwrap();
    let image = open_bytes(bytes.clone());
    let inode = image.find(b"data/words").unwrap();
    assert_eq!(inode.kind, FileKind::Regular);
    let map = image.map(&inode).unwrap();
    let extent = image.extent_at(&inode, &map, 0).unwrap();
    let Source::Pcluster(pcluster) = extent.source else {
        panic!("it is compressed")
    };
    let at = pcluster.location.address() as usize;
    bytes[at..at + pcluster.bytes as usize].fill(0xff);
    assert_eq!(bytes.size(), bytes.len() as u64);
    let (image, target) = (open_bytes(bytes), tempfile::tempdir().unwrap());
    let options = ExtractOptions {
        keep_going: true,
        ..ExtractOptions::default()
    };
    let summary = try_extract(&image, "", target.path(), &options).unwrap();
    let errors: Vec<_> = summary.errors.iter().map(|e| e.path.to_string()).collect();
    assert!(errors.contains(&"/data/words".to_owned()), "{errors:?}");
    assert!(summary.errors.iter().all(|e| e.problem.is_corrupt()));
    remove(target);
}

fn remove(target: TempDir) {
    target.close().unwrap();
}
