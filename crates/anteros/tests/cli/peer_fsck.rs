//! Tests what the program does under the name of `fsck.erofs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use anteros_tests::peers::Peers;
use rustix::fs::{XattrFlags, setxattr};

use crate::{Run, Workshop, run};

const FSCK: &str = "fsck.erofs";

/// A workshop with an image, and the program by that name.
fn shop() -> Workshop {
    let shop = Workshop::new();
    fs::create_dir(shop.path("src/locked")).unwrap();
    fs::write(shop.path("src/locked/secret"), "secret").unwrap();
    setxattr(
        shop.path("src/locked/secret"),
        "user.key",
        b"value",
        XattrFlags::empty(),
    )
    .unwrap();
    fs::set_permissions(
        shop.path("src/locked/secret"),
        Permissions::from_mode(0o666),
    )
    .unwrap();
    shop.good("mkfs image src --quiet");
    symlink(&shop.program, shop.path(FSCK)).unwrap();
    shop
}

fn fsck(shop: &Workshop, arguments: &str) -> Run {
    let mut command = Command::new(shop.path(FSCK));
    run(command
        .args(arguments.split_whitespace())
        .current_dir(shop.path("")))
}

#[track_caller]
fn good(shop: &Workshop, arguments: &str) -> Run {
    let told = fsck(shop, arguments);
    assert_eq!(told.status, Some(0), "{arguments}: {told:?}");
    told
}

#[test]
fn a_good_image_is_nothing_to_talk_about() {
    let shop = shop();
    for options in [
        "",
        "--extract",
        "-d1",
        "-a -A -y",
        "--path=/locked",
        "--no-sbcrc",
        "--offset=0x0",
    ] {
        let told = good(&shop, &format!("{options} image"));
        assert_eq!((&told.out[..], &told.err[..]), ("", ""), "{options}");
    }
    assert_eq!(good(&shop, "-d9 image").err, "<I> erofs: No errors found\n");
    let ratio = good(&shop, "-p image").out;
    assert!(
        ratio.starts_with("Compression ratio: ") && ratio.ends_with("(%)\n"),
        "{ratio}"
    );
    let version = good(&shop, "-V").out;
    assert!(version.starts_with("fsck.erofs (anteros) "), "{version}");
    assert!(
        good(&shop, "--help")
            .out
            .contains("Usage: fsck.erofs [OPTIONS]")
    );
}

#[test]
fn whatever_is_wrong_has_the_status_1() {
    let shop = shop();
    let image = fs::read(shop.path("image")).unwrap();
    fs::write(shop.path("cut"), &image[..image.len() / 2]).unwrap();
    fs::write(shop.path("text"), "no image").unwrap();
    let mut sum = image;
    sum[1028] ^= 1;
    fs::write(shop.path("sum"), sum).unwrap();
    for (arguments, text) in [
        ("none", "none: "),
        ("text", "text"),
        ("cut", "cut"),
        ("sum", "checksum"),
        ("", "required"),
        ("--nonsense image", "--nonsense"),
        (
            "--xattr-inode-digest image",
            "digests are to be verified, but none are recorded",
        ),
        ("--nid=99999999 image", "inode 99999999"),
        ("--nid=many image", "many"),
        ("--extract=/ image", "--force extracts there"),
        ("--extract=src image", "it exists in the target"),
        ("--extract=out --path=/none image", "none"),
    ] {
        let told = fsck(&shop, arguments);
        assert_eq!(told.status, Some(1), "{arguments}: {told:?}");
        let said = format!("{}{}", told.out, told.err);
        assert!(said.contains(text), "{arguments}: {said}");
    }
    good(&shop, "--no-sbcrc image");
}

/// The permissions of a file, and whether it has its attribute.
fn extracted(shop: &Workshop, options: &str) -> (u32, bool) {
    let _ = fs::remove_dir_all(shop.path("out"));
    good(shop, &format!("--extract=out {options} image"));
    let path = shop.path("out/locked/secret");
    let mut value = [0; 16];
    let has_key = rustix::fs::getxattr(&path, "user.key", &mut value).is_ok();
    (
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        has_key,
    )
}

#[test]
fn what_is_preserved_is_told_by_the_last_option() {
    let shop = shop();
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let masked = 0o666 & !mask.as_raw_mode();
    for (options, expected) in [
        ("--preserve", (0o666, false)),
        ("--preserve-perms --xattrs", (0o666, true)),
        ("--no-preserve-perms", (masked, false)),
        ("--preserve --no-preserve-perms", (masked, false)),
        (
            "--no-preserve --preserve-perms --xattrs --no-xattrs",
            (0o666, false),
        ),
        ("--no-preserve-owner --preserve-perms", (0o666, false)),
    ] {
        assert_eq!(extracted(&shop, options), expected, "{options}");
    }
    assert_eq!(fsck(&shop, "--extract=out image").status, Some(1));
    good(&shop, "--extract=out --overwrite image");
    good(&shop, "--extract=part --path=/locked image");
    assert_eq!(fs::read(shop.path("part/secret")).unwrap(), b"secret");
}

/// The number of the inode of a path.
fn nid(shop: &Workshop, path: &str) -> String {
    let dump = shop.json(&format!("dump --json --path {path} image"));
    dump["inode"]["nid"].to_string()
}

#[test]
fn an_inode_is_extracted_by_its_number() {
    let shop = shop();
    let (locked, secret) = (nid(&shop, "/locked"), nid(&shop, "/locked/secret"));
    good(&shop, &format!("--nid={locked} image"));
    good(&shop, &format!("--extract=part --nid={locked} image"));
    assert_eq!(fs::read(shop.path("part/secret")).unwrap(), b"secret");
    good(&shop, &format!("--extract=file --nid={secret} image"));
    assert_eq!(fs::read(shop.path("file")).unwrap(), b"secret");
    good(
        &shop,
        &format!("--extract=all --nid={} image", nid(&shop, "/")),
    );
    assert!(shop.path("all/locked/secret").exists());
    good(
        &shop,
        &format!("--extract=both --nid={secret} --path=/locked image"),
    );
    assert_eq!(fs::read(shop.path("both/secret")).unwrap(), b"secret");
}

/// Each option in the help of the peer is known here, or refused by name.
#[test]
fn options_of_the_peer_are_known_or_named() {
    let Some(peers) = Peers::find() else { return };
    let shop = shop();
    let help = run(peers.command(FSCK).arg("--help")).out;
    let options = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"));
    let options = options.map(|line| line.split([' ', '=', '[']).next().unwrap());
    let options: Vec<_> = options.filter(|option| !option.is_empty()).collect();
    assert!(options.contains(&"no-sbcrc"), "{options:?}");
    for option in options {
        let value = if option == "device" { "=x" } else { "" };
        let told = fsck(&shop, &format!("--{option}{value} image"));
        assert!(
            !told.err.contains("unexpected argument"),
            "{option}: {told:?}"
        );
    }
}
