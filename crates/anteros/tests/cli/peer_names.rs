//! The program under the names of other tools: what scripts for these expect of it, and which options it refuses by name.

use std::os::unix::fs::symlink;
use std::process::Command;

use anteros_tests::peers::Peers;
use serde_json::Value;

use crate::{Run, Workshop, run, same};

/// A workshop with a link of this name to the program.
fn called(name: &str) -> Workshop {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path(name)).unwrap();
    shop
}

/// Runs the program under another name.
fn call(shop: &Workshop, name: &str, arguments: &str) -> Run {
    let mut command = Command::new(shop.path(name));
    command
        .args(arguments.split_whitespace())
        .current_dir(shop.path(""))
        .env_remove("SOURCE_DATE_EPOCH");
    run(&mut command)
}

#[test]
fn it_tells_its_version_under_the_name_of_the_peer() {
    let shop = called("mkfs.erofs");
    for option in ["-V", "--version"] {
        let told = call(&shop, "mkfs.erofs", option);
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{told:?}");
        let mut lines = told.out.lines();
        assert!(lines.next().unwrap().starts_with("mkfs.erofs "), "{told:?}");
        let algorithms = "available compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd";
        assert_eq!(lines.next(), Some(algorithms), "{told:?}");
    }
    let help = call(&shop, "mkfs.erofs", "--help");
    assert_eq!(help.status, Some(0));
    assert!(help.out.contains("Usage: mkfs.erofs ["), "{}", help.out);
}

/// Options of mkfs.erofs 1.9.4 that this version has not, as they are given and as they are named.
const MISSING: [(&str, &str); 5] = [
    ("--s3=x", "--s3"),
    ("--oci", "--oci"),
    ("--ungzip=x", "--ungzip=FILE"),
    ("--unxz=x", "--unxz=FILE"),
    ("--gzinfo=x", "--gzinfo"),
];

#[test]
fn each_option_of_the_peer_that_is_missing_is_named() {
    let shop = called("mkfs.erofs");
    for (given, named) in MISSING {
        let refused = call(&shop, "mkfs.erofs", &format!("{given} image src"));
        let said = format!("error: mkfs.erofs: option {named} is not supported yet\n");
        assert_eq!((refused.status, refused.err), (Some(2), said), "{given}");
    }
    let refused = call(&shop, "mkfs.erofs", "--nonsense image src");
    assert!(
        refused.err.contains("there is no option --nonsense"),
        "{refused:?}"
    );
    for nonsense in ["--nonsense image src", "-Enonsense image src", ""] {
        let refused = call(&shop, "mkfs.erofs", nonsense);
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(!refused.err.contains("mkfs.erofs mkfs"), "{refused:?}");
    }
    assert_eq!(shop.left(), ["mkfs.erofs"]);
}

#[test]
fn values_are_read_as_the_peer_reads_them() {
    let shop = called("mkfs.erofs");
    let image = |options: &str| {
        let made = call(&shop, "mkfs.erofs", &format!("--quiet {options} image src"));
        assert_eq!((made.status, &made.err[..]), (Some(0), ""), "{options}");
        std::fs::read(shop.path("image")).unwrap()
    };
    for (options, same) in [
        ("-T0x10 -Uclear", "-T16 -Uclear"),
        ("-T020 -Uclear", "-T16 -Uclear"),
        ("-T-5 -Uclear", "-T-0x5 -Uclear"),
        (
            "-T0 -zlz4 --zfeature-bits=18",
            "-T0 -zlz4 -Eztailpacking,dedupe",
        ),
        ("-T0 -zlz4 --zfeature-bits=0x4", "-T0 -zlz4 -Efragments"),
        ("-T0 -zlz4 --zfeature-bits=0", "-T0 -zlz4"),
        ("-T0 --async-queue-limit=1", "-T0"),
        (
            "-T0 --dsunit=0x10 --fsalignblks 060",
            "-T0 --dsunit 16 --fsalignblks=64",
        ),
        ("-T0 --dsunit=0 --fsalignblks=0 --root-xattr-isize=0", "-T0"),
        (
            "-T0 --xattr-inode-digest",
            "-T0 --xattr-inode-digest=erofs.fingerprint.v1",
        ),
        ("-T0 -zlz4 --zD", "-T0 -zlz4 --compress-directories"),
        ("-T0 -zlz4 --zD=1", "-T0 -zlz4 --compress-directories"),
        ("-T0 -zlz4 --zD=0 --MZ --MZ=0 --MZ=i", "-T0 -zlz4"),
        (
            "-T0 --async-queue-limit 0x20 -zlz4 --zfeature-bits 2",
            "-T0 -zlz4 -Eztailpacking",
        ),
    ] {
        assert!(image(options) == image(same), "{options}");
    }
    for (options, text) in [
        ("--zfeature-bits=256", "255 is the most"),
        ("--zfeature-bits=x", "--zfeature-bits=x"),
        ("--async-queue-limit=many", "--async-queue-limit=many"),
        ("-T1x", "1x"),
    ] {
        let refused = call(&shop, "mkfs.erofs", &format!("{options} other src"));
        assert_eq!(refused.status, Some(2), "{options}: {refused:?}");
        assert!(refused.err.contains(text), "{options}: {refused:?}");
    }
}

/// Asks the peer for its own list, so that none is forgotten.
#[test]
fn each_option_in_the_help_of_the_peer_is_known_or_named() {
    let Some(peers) = Peers::find() else { return };
    let shop = called("mkfs.erofs");
    let help = run(peers.command("mkfs.erofs").arg("--help")).out;
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix("--")?;
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .next()
    });
    let options: Vec<_> = options.filter(|option| !option.is_empty()).collect();
    assert!(options.len() > 30, "{help}");
    for option in options {
        let told = call(&shop, "mkfs.erofs", &format!("--{option}"));
        assert!(!told.err.contains("there is no option"), "{told:?}");
    }
}

/// The time of the image and of a file in it, as the program dumps them.
fn times(shop: &Workshop, image: &str) -> (Value, Value) {
    let dump = shop.json(&format!("dump --json -s --path sub/text {image}"));
    (
        dump["superblock"]["built"].clone(),
        dump["inode"]["mtime"].clone(),
    )
}

#[test]
fn the_time_of_the_image_is_the_one_that_the_peer_gives_it() {
    let shop = called("mkfs.erofs");
    let own = 1_000_000;
    let touched = Command::new("touch")
        .args(["-d", "@1000000"])
        .arg(shop.path("src/sub/text"))
        .status();
    assert!(touched.unwrap().success());
    let peers = Peers::find();
    for (options, image, file) in [
        ("-T77 --mkfs-time", 77, own),
        ("-T77 --mkfs-time --all-time", 77, 77),
        ("-T77 --ignore-mtime", 77, 77),
        ("-T77 --mkfs-time --ignore-mtime", 77, 77),
        ("-T77 --mkfs-time -Eforce-inode-compact", 77, 77),
        ("-T77 --mkfs-time -E48bit", 77, own),
        ("-T77 --mkfs-time --ignore-mtime -E48bit", 77, own),
        ("-T77 -E48bit", 77, 77),
    ] {
        let made = call(&shop, "mkfs.erofs", &format!("--quiet {options} ours src"));
        assert_eq!((made.status, &made.err[..]), (Some(0), ""), "{options}");
        assert_eq!(
            times(&shop, "ours"),
            (image.into(), file.into()),
            "{options}"
        );
        let Some(peers) = &peers else { continue };
        let mut theirs = peers.command("mkfs.erofs");
        theirs.args(["--quiet", "-d1"]).args(options.split(' '));
        theirs.current_dir(shop.path("")).args(["theirs", "src"]);
        assert_eq!(run(&mut theirs).status, Some(0), "{options}");
        assert_eq!(times(&shop, "theirs"), times(&shop, "ours"), "{options}");
    }
    // Without a number it is the time of the build, not that of a file.
    for options in ["--ignore-mtime", "-Eforce-inode-compact"] {
        call(&shop, "mkfs.erofs", &format!("{options} ours src"));
        let (image, file) = times(&shop, "ours");
        assert_eq!(image, file, "{options}");
        assert!(image.as_i64().unwrap() > 1_700_000_000, "{options}");
    }
}

/// SOURCE_DATE_EPOCH takes its number away from `-T`, and files that are older keep their times. Under our own name the
/// option counts more.
#[test]
fn the_time_of_the_environment_counts_more_than_the_option() {
    let shop = called("mkfs.erofs");
    let mut touch = Command::new("touch");
    touch
        .args(["-d", "@1000000"])
        .arg(shop.path("src/sub/text"));
    assert!(touch.status().unwrap().success());
    let peers = Peers::find();
    for (options, epoch, image, file) in [
        ("-T77", 2_000_000, 2_000_000, 1_000_000),
        ("-T77", 900_000, 900_000, 900_000),
        ("-T77 --all-time", 2_000_000, 2_000_000, 1_000_000),
        ("-T77 --mkfs-time", 900_000, 900_000, 900_000),
        ("-T77 --ignore-mtime", 2_000_000, 2_000_000, 2_000_000),
    ] {
        let make = |program: &mut Command| {
            program.env("SOURCE_DATE_EPOCH", format!("{epoch}"));
            program
                .args(["--quiet"])
                .args(options.split(' '))
                .args(["image", "src"]);
            let made = run(program.current_dir(shop.path("")));
            assert_eq!(made.status, Some(0), "{options}: {made:?}");
            times(&shop, "image")
        };
        let ours = make(&mut Command::new(shop.path("mkfs.erofs")));
        assert_eq!(ours, (image.into(), file.into()), "{options}");
        if let Some(peers) = &peers {
            assert_eq!(
                make(peers.command("mkfs.erofs").arg("-d1")),
                ours,
                "{options}"
            );
        }
        let own = make(Command::new(&shop.program).arg("mkfs"));
        assert_eq!(own.0, 77, "{options}");
    }
}

#[test]
fn a_sparse_file_does_not_need_a_newer_kernel_than_the_old_indexes() {
    let shop = called("mkfs.erofs");
    let sparse = std::fs::File::create(shop.path("src/sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    let features = |options: &str| {
        let made = call(&shop, "mkfs.erofs", &format!("{options} image src"));
        assert_eq!(made.status, Some(0), "{made:?}");
        let dump = shop.json("dump --json image");
        dump["superblock"]["incompat"].to_string()
    };
    let legacy = features("-zlz4hc -Elegacy-compress");
    assert_eq!(legacy, "[\"0padding\"]");
    shop.good("verify image src");
    let kept = features("-zlz4hc -Elegacy-compress --holes keep");
    assert!(kept.contains("chunked_file"), "{kept}");
    let unsaid = features("-zlz4hc -Elegacy-compress,^legacy-compress");
    assert!(unsaid.contains("chunked_file"), "{unsaid}");
}

#[test]
fn the_peers_defaults_hold_under_its_name() {
    let shop = called("mkfs.erofs");
    let made = call(&shop, "mkfs.erofs", "--quiet theirs src -C65536");
    assert_eq!((made.status, &made.err[..]), (Some(0), ""), "{made:?}");
    shop.good("mkfs --quiet ours src -znone");
    assert!(same(&shop.path("ours"), &shop.path("theirs")));
    call(&shop, "mkfs.erofs", "--quiet theirs src -zlz4");
    shop.good("mkfs --quiet ours src -zlz4 -C4096");
    assert!(same(&shop.path("ours"), &shop.path("theirs")));
}
