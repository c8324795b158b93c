//! Sources that are neither directories nor archives alone: other images, logs, and all of one tree beside each other.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anteros_tests::judge;

use crate::{Run, Workshop, run};

/// Runs a script of the shell's in the workshop.
fn script(shop: &Workshop, script: &str) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).current_dir(shop.path(""));
    run(shell.env_remove("SOURCE_DATE_EPOCH").env_remove("TMPDIR"))
}

fn made(shop: &Workshop, commands: &str) {
    let made = script(shop, commands);
    assert_eq!((made.status, &made.err[..]), (Some(0), ""), "{commands}");
}

fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        judge::missing(program);
    }
    has
}

/// Fills `src` with one of everything; times are whole seconds, as cpio has them.
const TREE: &str = "
    cd src
    mkdir -m 1777 dir; mkfifo -m 640 fifo
    head -c 300000 /dev/urandom >noise
    ln noise dir/noise
    [ $(id -u) != 0 ] || { mknod null c 1 3; mknod disk b 259 70000; chown 7:70000 hello; }
    find . -exec touch -h -d @1600000000 {} +";

/// The options with which all sources of a tree tell the same of it.
const OPTIONS: [&str; 4] = [
    "-znone -x-1",
    "-zlz4hc -C16384 -Efragments,dedupe -x-1",
    "--small --workers=3 -x-1",
    "--fast --chunksize=8192 -znone -x-1",
];

#[test]
fn all_sources_of_a_tree_give_the_same_image() {
    if !["bsdtar", "cpio", "tar"].iter().all(|program| has(program)) {
        return;
    }
    let shop = Workshop::new();
    made(&shop, TREE);
    made(
        &shop,
        "tar -cf tar --format=posix -C src .
        cd src
        find . | cpio --quiet -o -H newc >../cpio
        keys=type,mode,uid,gid,size,time,link,device,nlink,inode,resdevice,sha256
        bsdtar -c --format=mtree --options=\"mtree:!all,use-set,$keys\" . >../mtree
        cd ..; mkdir lower upper; cp -a src/. lower
        echo old >lower/noise; chmod 700 lower/dir; cp -a src/. upper
        touch -h -d @1600000000 lower upper",
    );
    for options in OPTIONS {
        shop.good(&format!("mkfs expected src {options}"));
        shop.good("mkfs other src -zlzma -Eall-fragments --holes=compress");
        let expected = fs::read(shop.path("expected")).unwrap();
        for source in [
            "tar",
            "cpio",
            "mtree:mtree --content-root src",
            "expected",
            "other",
            "lower upper",
            "other cpio",
            "lower mtree:mtree tar --content-root src",
            "lower expected",
        ] {
            shop.good(&format!("mkfs image {source} {options}"));
            let found = fs::read(shop.path("image")).unwrap();
            assert!(found == expected, "{source} {options}");
        }
    }
}

#[test]
fn an_image_is_made_anew_with_other_options() {
    let shop = Workshop::new();
    made(&shop, TREE);
    made(
        &shop,
        "truncate -s 4M src/sparse; echo data | dd of=src/sparse bs=1 seek=3000000 conv=notrunc status=none
        touch -d @1600000000.123456789 src/hello; touch -h -d @5.000000007 src/symlink
        [ $(id -u) != 0 ] || { setfattr -n user.a -v value src/hello; setfattr -h -n trusted.b -v x src/symlink
            setfacl -m u:7:r-x,d:g:9:rwx src/dir; }",
    );
    let all = [
        "-znone",
        "--balanced --holes=keep",
        "--small --holes=keep",
        "-b512 -znone",
    ];
    for old in all {
        shop.good(&format!("mkfs old src {old}"));
        for new in all {
            shop.good(&format!("mkfs expected src {new}"));
            shop.good(&format!("mkfs image old {new}"));
            let (expected, found) = ["expected", "image"]
                .map(|name| fs::read(shop.path(name)).unwrap())
                .into();
            assert!(found == expected, "{old}, then {new}");
        }
    }
    // Also in its own place, where it is complete or not there.
    shop.good("mkfs image image --small --holes=keep");
    shop.good("mkfs expected src --small --holes=keep");
    assert!(fs::read(shop.path("image")).unwrap() == fs::read(shop.path("expected")).unwrap());
}

#[test]
fn images_are_layers() {
    if !judge::is_root() {
        judge::missing("root, to make devices");
        return;
    }
    let shop = Workshop::new();
    made(
        &shop,
        "mkdir -p lower/opaque/old lower/kept upper/opaque upper/kept merged
        touch lower/gone lower/here lower/opaque/x lower/kept/x upper/opaque/new upper/kept/y
        mknod upper/gone c 0 0; setfattr -n trusted.overlay.opaque -v y upper/opaque
        cp -a lower/. upper/. merged; rm -r merged/gone merged/opaque; mkdir merged/opaque; cp -a upper/opaque/new merged/opaque
        touch -r upper/opaque merged/opaque; touch -r upper/kept merged/kept; touch -r upper merged
        ./anteros mkfs --quiet lower.erofs lower; ./anteros mkfs --quiet upper.erofs upper",
    );
    shop.good("mkfs expected merged");
    let expected = fs::read(shop.path("expected")).unwrap();
    for sources in [
        "lower.erofs upper.erofs",
        "lower upper.erofs",
        "lower.erofs upper",
    ] {
        shop.good(&format!("mkfs image {sources}"));
        assert!(
            fs::read(shop.path("image")).unwrap() == expected,
            "{sources}"
        );
    }
    // Alone, the image keeps its whiteouts.
    shop.good("mkfs expected upper");
    shop.good("mkfs image upper.erofs");
    assert!(fs::read(shop.path("image")).unwrap() == fs::read(shop.path("expected")).unwrap());
}

#[test]
fn a_log_gives_the_image_of_what_is_in_it() {
    if !judge::has_fuse() || !judge::is_root() {
        return;
    }
    let shop = Workshop::new();
    made(&shop, TREE);
    shop.good("log mkfs log --size 64M");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("log mount log mnt");
    let copied = script(&shop, "cp -a src/. mnt; touch -d @1600000000 mnt");
    shop.umount("mnt");
    assert_eq!(copied.status, Some(0), "{copied:?}");
    let before = fs::read(shop.path("log")).unwrap();
    shop.good("mkfs image log -zlz4 -x-1");
    assert!(
        fs::read(shop.path("log")).unwrap() == before,
        "nothing is written to it"
    );
    shop.good("mkfs expected src -zlz4 -x-1");
    assert!(fs::read(shop.path("image")).unwrap() == fs::read(shop.path("expected")).unwrap());
}

#[test]
fn what_is_wrong_with_an_image_is_told() {
    let shop = Workshop::new();
    shop.good("mkfs old src -znone --mkfs-time -T0");
    let mut bytes = fs::read(shop.path("old")).unwrap();
    bytes.truncate(8192);
    fs::write(shop.path("cut"), bytes).unwrap();
    for (status, arguments, said) in [
        (2, "mkfs image old --verify", "the source is none"),
        (2, "mkfs image old --aufs", "for archives alone"),
        (
            2,
            "mkfs old old --offset 4096",
            "old: would be overwritten while it is read",
        ),
        (3, "mkfs image cut", "cut: "),
    ] {
        let told = shop.bad(status, arguments);
        assert!(told.contains(said), "{arguments}: {told}");
        assert!(!shop.path("image").exists());
    }
}

/// A user without rights owns all of it in truth, and has made no device.
#[test]
fn owners_and_devices_are_those_that_fakeroot_shows() {
    if !judge::has_program("fakeroot") || !judge::has_program("setfattr") {
        return;
    }
    let shop = Workshop::new();
    let commands = "mkdir faked; cd faked; echo text >file; ln -s file link
        chown -h -R 0:0 .; chown 7:70000 file; chmod 4755 file; mknod -m 600 null c 1 3
        setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 file
        cd ..; ./anteros mkfs --quiet image faked";
    let mut session = Command::new("fakeroot");
    session
        .args(["sh", "-euc", commands])
        .current_dir(shop.path(""));
    if judge::is_root() {
        session.uid(crate::NOBODY).gid(crate::NOBODY);
    }
    let done = run(session.env_remove("SOURCE_DATE_EPOCH"));
    assert_eq!(done.status, Some(0), "{done:?}");
    let listed = shop.good("ls -l image");
    let lines: Vec<Vec<_>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][..4], ["-rwsr-xr-x", "1", "7", "70000"], "{listed}");
    assert_eq!(
        lines[2][..5],
        ["crw-------", "1", "0", "0", "1:3"],
        "{listed}"
    );
    let file = shop.good("dump --json --path file image");
    assert!(file.contains("security.capability"), "{file}");
}
