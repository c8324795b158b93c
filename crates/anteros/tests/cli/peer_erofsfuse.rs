//! Tests what the program does under the name of `erofsfuse`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anteros_tests::judge::has_fuse;

use crate::{Run, Workshop, run};

/// A workshop with an image, also behind 4096 bytes of something else, and the program by that name.
fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    shop.good("mkfs behind src --quiet --offset 4096");
    fs::create_dir(shop.path("mnt")).unwrap();
    symlink(&shop.program, shop.path("erofsfuse")).unwrap();
    shop
}

fn erofsfuse(shop: &Workshop, arguments: &str) -> Run {
    let mut command = Command::new(shop.path("erofsfuse"));
    run(command
        .args(arguments.split_whitespace())
        .current_dir(shop.path("")))
}

#[test]
fn it_mounts_as_scripts_ask_for_it() {
    if !has_fuse() {
        return;
    }
    let shop = shop();
    let content = fs::read(shop.path("src/sub/text")).unwrap();
    for arguments in [
        "image mnt",
        "-s image mnt",
        "image mnt -o ro,nosuid,nodev",
        "-o rw,subtype=erofs,fsname=image,max_threads=3,x-gvfs-hide -o noatime image mnt",
        "--dbglevel=3 --offset=0x1000 behind mnt",
    ] {
        let told = erofsfuse(&shop, arguments);
        let silent = (Some(0), String::new(), String::new());
        assert_eq!((told.status, told.out, told.err), silent, "{arguments}");
        assert_eq!(
            fs::read(shop.path("mnt/sub/text")).unwrap(),
            content,
            "{arguments}"
        );
        shop.good("umount mnt");
    }
}

#[test]
fn whatever_is_wrong_has_the_status_1() {
    let shop = shop();
    fs::write(shop.path("text"), "no image").unwrap();
    for (arguments, text) in [
        ("none mnt", "none: "),
        ("text mnt", "text: "),
        ("image none", "none: "),
        ("image", "required"),
        ("", "required"),
        (
            "image mnt -o nonsense",
            "option -o nonsense is not supported",
        ),
        ("image mnt -o max_threads=many", "many"),
        ("image mnt --nonsense", "--nonsense"),
    ] {
        let told = erofsfuse(&shop, arguments);
        assert_eq!(told.status, Some(1), "{arguments}: {told:?}");
        assert!(told.err.contains(text), "{arguments}: {told:?}");
    }
    let version = erofsfuse(&shop, "-V");
    assert!(version.out.starts_with("erofsfuse "), "{version:?}");
}

/// Arguments behind `--` are no options, also for the daemon that is started.
#[test]
fn a_mount_may_be_told_behind_two_hyphens() {
    if !has_fuse() {
        return;
    }
    let shop = shop();
    shop.good("mount --fuse -- image mnt");
    shop.good("umount mnt");
}

/// The mount stands, as the peer's does, and whoever looks at the root gets the error.
#[test]
fn a_broken_root_is_an_error_of_who_looks_at_it() {
    if !has_fuse() {
        return;
    }
    let shop = shop();
    shop.good("mkfs image src --quiet -Enosbcrc");
    let told = shop.json("dump image --json");
    let number = |name: &str| told["superblock"][name].as_u64().unwrap() as usize;
    let at = number("meta_block") * 4096 + number("root_nid") * 32;
    let mut image = fs::read(shop.path("image")).unwrap();
    image[at..at + 32].fill(0xff);
    fs::write(shop.path("image"), image).unwrap();
    let told = erofsfuse(&shop, "image mnt");
    assert_eq!(told.status, Some(0), "{told:?}");
    assert!(told.err.starts_with("warning: image: inode "), "{told:?}");
    let error = fs::metadata(shop.path("mnt")).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    shop.good("umount mnt");
    let refused = shop.bad(4, "mount --fuse image mnt");
    assert!(refused.starts_with("error: image: inode "), "{refused}");
}
