//! Tests lists that tell owners and labels: `--fs-config-file` and `--file-contexts`. Judges are the kernel and `matchpathcon`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::trees::words;
use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use rustix::io::Errno;

use crate::Workshop;

/// Paths of the tree, and the kinds as `matchpathcon` calls them.
const PATHS: [(&str, &str); 9] = [
    ("", "dir"),
    ("bin", "dir"),
    ("bin/sh", "file"),
    ("bin/su", "file"),
    ("bin/link", "lnk"),
    ("etc", "dir"),
    ("etc/a.conf", "file"),
    ("etc/axconf", "file"),
    ("secret", "file"),
];

/// A workshop whose source has these paths; one has a label already.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for file in fs::read_dir(shop.path("src")).unwrap() {
        let path = file.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    for (path, kind) in &PATHS[1..] {
        let path = shop.path(&format!("src/{path}"));
        match *kind {
            "dir" => fs::create_dir(path).unwrap(),
            "lnk" => symlink("sh", path).unwrap(),
            _ => fs::write(path, "content").unwrap(),
        }
    }
    shop
}

/// The value of an attribute, without the zero byte of labels.
fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    match lgetxattr(path, name, &mut value[..]) {
        Ok(len) => Some(value[..len].to_vec()),
        Err(Errno::NODATA) => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

#[test]
fn files_have_the_labels_of_the_policy() {
    if !judge::has_kernel() || !judge::has_program("matchpathcon") {
        return;
    }
    let shop = shop();
    let other = shop.path("src/secret");
    setxattr(&other, "security.selinux", b"other\0", XattrFlags::empty()).unwrap();
    let policy = shop.path("contexts");
    let text = "# of a system\n/.*  u:r:root:s0\n/system(/.*)? u:r:system:s0\n\
                /system/bin/su\tu:r:su:s0\n/system/bin(/.*)? -- u:r:exec:s0\n\
                /system/etc/a\\.conf u:r:conf:s0\n/system/(bin|lib)/l[a-k]?i.* -l u:r:link:s0\n\
                /system/etc -d <<none>>\n/system/secret <<none>>\n";
    fs::write(&policy, text).unwrap();
    fs::write(
        shop.path("contexts.local"),
        "/system/etc/ax.* u:r:local:s0\n",
    )
    .unwrap();
    for (options, point) in [
        ("-znone --mount-point system", "/system"),
        ("-zlz4 -b1024 --mount-point=/system/", "/system"),
        ("-zlz4hc -Ededupe,fragments -x0", ""),
    ] {
        let made = format!("mkfs image src --quiet --verify --file-contexts contexts {options}");
        shop.good(&made);
        shop.good("check image");
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        for (path, kind) in PATHS {
            let file = mount.path().join(path);
            let found = xattr(&file, "security.selinux").map(|label| {
                assert_eq!(label.last(), Some(&0), "{path}");
                String::from_utf8(label[..label.len() - 1].to_vec()).unwrap()
            });
            let at = format!("{point}/{path}");
            let at = match at.trim_end_matches('/') {
                "" => "/",
                at => at,
            };
            let mut judge = Command::new("matchpathcon");
            let judge = judge.arg("-n").arg("-f").arg(&policy);
            let told = judge.args(["-m", kind, at]).output().unwrap();
            let told = String::from_utf8(told.stdout).unwrap();
            let expected = Some(told.trim()).filter(|label| *label != "<<none>>");
            assert_eq!(found.as_deref(), expected, "{options}: {at}");
        }
    }
}

#[test]
fn files_have_the_owners_and_capabilities_of_the_list() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    let list = "/ 0 0 755\nsystem/bin 0 2000 751\nsystem/bin/sh 0 2000 755\nsystem/bin/link 0 0 777\n\
                system/bin/su 1000 2000 4750 selabel=x capabilities=0xc0\nsystem/etc 0 0 755\n\
                system/etc/a.conf 70000 3 0640\nsystem/etc/axconf 0 0 644\nsystem/secret 0 0 0\n\
                system/other 0 0 755\n";
    fs::write(shop.path("list"), list).unwrap();
    let options = "--fs-config-file list --mount-point /system --product-out=.";
    shop.good(&format!("mkfs image src --quiet --verify -zlz4 {options}"));
    shop.good("check image");
    let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
    let capability = |path| xattr(&mount.path().join(path), "security.capability");
    for (path, _) in PATHS {
        let at = match path {
            "" => "/".to_owned(),
            path => format!("system/{path}"),
        };
        let line = list
            .lines()
            .find(|line| line.split(' ').next() == Some(&at));
        let words: Vec<&str> = line.unwrap().split(' ').collect();
        let found = fs::symlink_metadata(mount.path().join(path)).unwrap();
        assert_eq!(found.uid(), words[1].parse::<u32>().unwrap(), "{at}");
        assert_eq!(found.gid(), words[2].parse::<u32>().unwrap(), "{at}");
        let perm = u32::from_str_radix(words[3], 8).unwrap();
        assert_eq!(found.mode() & 0o7777, perm, "{at}");
        assert_eq!(capability(path).is_some(), path == "bin/su", "{at}");
    }
    let expected = [
        1, 0, 0, 2, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(capability("bin/su").unwrap(), expected);
    shop.good(&format!(
        "mkfs forced src --quiet -zlz4 {options} --all-root"
    ));
    let mount = KernelMount::new(&shop.path("forced"), &[]).unwrap();
    let found = fs::metadata(mount.path().join("bin/su")).unwrap();
    assert_eq!(
        (found.uid(), found.gid(), found.mode() & 0o7777),
        (0, 0, 0o4750)
    );
}

/// Names that have characters which are special in lists.
const ODD_NAMES: [&[u8]; 7] = [
    b"a b",
    b"[x]+(y)*{1}?^$|.",
    b"unit\\x2da.slice",
    b"b\\040",
    b"line\n\ttab",
    b"gr\xfcn",
    "gr\u{fc}n".as_bytes(),
];

/// Gives files owners, permissions, capabilities and labels that nobody but root may give.
fn dress(shop: &Workshop) {
    let source = shop.path("src");
    let capability = [
        1, 0, 0, 2, 0xc0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
    ];
    let set = |path: &str, name: &str, value: &[u8]| {
        setxattr(source.join(path), name, value, XattrFlags::empty()).unwrap();
    };
    for (n, name) in ODD_NAMES.iter().enumerate() {
        let path = source.join("etc").join(OsStr::from_bytes(name));
        fs::write(&path, "odd").unwrap();
        let label = format!("u:r:odd{n}:s0\0");
        setxattr(
            &path,
            "security.selinux",
            label.as_bytes(),
            XattrFlags::empty(),
        )
        .unwrap();
        chown(&path, Some(70_000 + n as u32), Some(7)).unwrap();
    }
    fs::hard_link(source.join("secret"), source.join("bin/again")).unwrap();
    for (path, owner, mode) in [
        ("bin/su", 0, 0o4755),
        ("secret", 5, 0),
        ("etc", 6, 0o2300),
        ("etc/a.conf", 7, 0o640),
    ] {
        chown(source.join(path), Some(owner), Some(owner + 1)).unwrap();
        fs::set_permissions(source.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    lchown(source.join("bin/link"), Some(9), Some(9)).unwrap();
    set("bin/su", "security.capability", &capability);
    set("bin/su", "security.selinux", b"u:r:su:s0\0");
    set("secret", "security.selinux", b"u:r:secret:s0:c1,c2\0");
    set("etc", "security.selinux", b"u:r:etc:s0\0");
    set("", "security.selinux", b"u:r:root:s0\0");
    set("bin/sh", "user.note", b"kept");
}

/// An image of what was extracted without root is the first one again, by the lists that were written meanwhile.
#[test]
fn lists_bring_back_what_an_extraction_without_root_loses() {
    if !judge::is_root() {
        judge::missing("root");
        return;
    }
    let shop = shop();
    dress(&shop);
    for (options, point) in [("-zlz4", ""), ("-znone -b512", "/system")] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        let lists =
            format!("--mount-point {point}/ --fs-config-out owners --file-contexts-out labels");
        let run = shop.run_as_nobody(&format!("extract image out --quiet {lists}"));
        assert_eq!((run.status, &run.err[..]), (Some(0), ""));
        let kept = fs::metadata(shop.path("out/bin/su")).unwrap();
        assert_eq!((kept.uid(), kept.mode() & 0o7777), (crate::NOBODY, 0o755));
        let lists =
            format!("--mount-point {point}/ --fs-config-file owners --file-contexts labels");
        let run = shop.run_as_nobody(&format!("mkfs again out --quiet {options} {lists}"));
        assert_eq!((run.status, &run.err[..]), (Some(0), ""));
        let [first, again] = ["image", "again"].map(|name| fs::read(shop.path(name)).unwrap());
        assert!(first == again, "{options}: another image");
        if judge::has_program("matchpathcon") {
            for (n, name) in ODD_NAMES.iter().enumerate() {
                let mut at = format!("{point}/etc/").into_bytes();
                at.extend_from_slice(name);
                let mut judge = Command::new("matchpathcon");
                let judge = judge.args(["-n", "-f"]).arg(shop.path("labels"));
                let judge = judge.args(["-m", "file"]).arg(OsStr::from_bytes(&at));
                let told = String::from_utf8(judge.output().unwrap().stdout).unwrap();
                assert_eq!(
                    told.trim(),
                    format!("u:r:odd{n}:s0"),
                    "{}",
                    at.escape_ascii()
                );
            }
        }
        for name in ["owners", "labels", "again"] {
            fs::remove_file(shop.path(name)).unwrap();
        }
        fs::remove_dir_all(shop.path("out")).unwrap();
    }
}

#[test]
fn what_no_list_can_hold_is_named() {
    if !judge::is_root() {
        judge::missing("root");
        return;
    }
    let shop = shop();
    let value = [
        1, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 232, 3, 0, 0,
    ];
    let file = shop.path("src/bin/sh");
    setxattr(&file, "security.capability", &value, XattrFlags::empty()).unwrap();
    setxattr(
        &file,
        "security.selinux",
        b"two words\0",
        XattrFlags::empty(),
    )
    .unwrap();
    shop.good("mkfs image src --quiet -znone");
    let told = shop.bad(
        6,
        "extract image out --quiet --fs-config-out owners --file-contexts-out labels",
    );
    for expected in [
        "/bin/sh: its capabilities have no form in an fs_config",
        "/bin/sh: its label has no form in a file_contexts",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    let told = shop.bad(
        2,
        "extract image file --path secret --fs-config-out owners --quiet",
    );
    assert!(
        told.contains("/secret: it is a file; lists are of directories"),
        "{told}"
    );
    let told = shop.bad(
        5,
        "extract image more --fs-config-out nowhere/owners --quiet",
    );
    assert!(told.contains("nowhere/owners"), "{told}");
}

/// The blocks that a list names are those that the content lies in, in its order.
#[test]
fn the_list_of_blocks_leads_to_the_content() {
    let shop = shop();
    let content = |name: &str| words(name.len() as u64, 9000 * name.len());
    for name in ["bin/sh", "bin/su", "secret"] {
        fs::write(shop.path(&format!("src/{name}")), content(name)).unwrap();
    }
    for options in [
        "-znone",
        "-znone -E^inline_data",
        "-znone --chunksize 4K",
        "-znone -b512",
    ] {
        shop.good(&format!(
            "mkfs image src --quiet {options} --mount-point /system --block-list-file list"
        ));
        let image = fs::read(shop.path("image")).unwrap();
        let list = fs::read_to_string(shop.path("list")).unwrap();
        let block = if options.contains("512") { 512 } else { 4096 };
        for name in ["bin/sh", "bin/su", "secret", "etc/a.conf"] {
            let start = format!("/system/{name} ");
            let line = list.lines().find_map(|line| line.strip_prefix(&start));
            let mut found = Vec::new();
            for range in line.expect(&list).split(' ') {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let [first, last] = [first, last].map(|n| n.parse::<usize>().unwrap());
                found.extend_from_slice(&image[first * block..(last + 1) * block]);
            }
            let expected = fs::read(shop.path(&format!("src/{name}"))).unwrap();
            let blocks = expected.len() / block * block;
            assert_eq!(found[..blocks], expected[..blocks], "{options}: {name}");
            let rest = &expected[blocks..];
            let is_there = found[blocks..].windows(rest.len()).any(|part| part == rest);
            assert!(is_there, "{options}: {name}");
        }
    }
    for options in [
        "-zlz4 -C64K -Eztailpacking",
        "-zlz4 -Ededupe,48bit",
        "-zlz4 -m4096",
    ] {
        shop.good(&format!(
            "mkfs image src --quiet {options} --block-list-file list"
        ));
        let blocks = fs::metadata(shop.path("image")).unwrap().len() / 4096;
        let list = fs::read_to_string(shop.path("list")).unwrap();
        assert!(list.contains("/secret "), "{options}: {list}");
        let numbers = list
            .split([' ', '-', '\n'])
            .filter_map(|word| word.parse::<u64>().ok());
        assert!(numbers.max().unwrap() < blocks, "{options}: {list}");
    }
    let refused = shop.bad(5, "mkfs other src --quiet --block-list-file nowhere/list");
    assert!(
        refused.contains("nowhere/list: cannot write the list of blocks"),
        "{refused}"
    );
    assert!(!shop.path("other").exists());
}

#[test]
fn lists_that_are_wrong_are_refused_with_their_line() {
    let shop = shop();
    fs::write(shop.path("list"), "/ 0 0 755\nbin 0 x 755\n").unwrap();
    fs::write(shop.path("short"), "/ 0 0 755\nbin 0 0 755\n").unwrap();
    fs::write(shop.path("contexts"), "/.* a\n/(b c\n").unwrap();
    fs::write(shop.path("fine"), "/b.* a\n").unwrap();
    fs::write(shop.path("fine.homedirs"), "/b.*\n").unwrap();
    for (options, status, said) in [
        ("--fs-config-file list", 2, "list: line 2: `x` is no group"),
        ("--fs-config-file nowhere", 5, "nowhere"),
        (
            "--fs-config-file short",
            4,
            "src/etc: the fs_config file has no line for `etc`",
        ),
        (
            "--fs-config-file short --mount-point system",
            4,
            "src/bin: the fs_config file has no line for `system/bin`",
        ),
        (
            "--file-contexts contexts",
            2,
            "contexts: line 2: the expression `/(b`",
        ),
        ("--file-contexts fine", 2, "fine.homedirs: line 1: no label"),
        ("--file-contexts nowhere", 5, "nowhere"),
    ] {
        let run = shop.run(&format!("mkfs image src {options}"));
        assert_eq!(run.status, Some(status), "{options}: {run:?}");
        assert!(run.err.contains(said), "{options}: {run:?}");
        assert!(!shop.path("image").exists(), "{options}");
    }
    fs::remove_file(shop.path("fine.homedirs")).unwrap();
    let run = shop.run("mkfs image src --quiet --file-contexts fine");
    let warning = "no line of the file_contexts gives a label to it and 4 others";
    assert!(run.err.contains(warning), "{run:?}");
}
