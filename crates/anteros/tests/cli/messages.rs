//! Messages to people and scripts: of what is no image, of times, of what was left undone.

use std::fs;
use std::process::{Command, Stdio};

use anteros_tests::judge;
use serde_json::Value;

use crate::{Signal, Workshop, kill, run, wait_until, wait_until_heeding};

/// Each command that takes an image, with what it takes besides.
const COMMANDS: [(&str, &str); 9] = [
    ("ls", ""),
    ("ls -R", ""),
    ("cat", "hello"),
    ("dump", ""),
    ("check", ""),
    ("extract", "out"),
    ("tar -o archive", ""),
    ("verify", "src"),
    ("mount --fuse", "mnt"),
];

#[track_caller]
#[test]
fn what_is_there_instead_of_an_image_is_named() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::write(shop.path("empty"), "").unwrap();
    fs::write(shop.path("zeros"), [0; 8192]).unwrap();
    let mut squashfs = vec![0; 8192];
    squashfs[..4].copy_from_slice(b"hsqs");
    fs::write(shop.path("squashfs"), squashfs).unwrap();
    shop.good("log mkfs log --size 64M");
    for (file, said) in [
        ("empty", "empty: an empty file is no EROFS image\n"),
        (
            "zeros",
            "zeros: holds nothing but zeros, and no EROFS image\n",
        ),
        (
            "squashfs",
            "squashfs: a squashfs file system, and no EROFS image\n",
        ),
        (
            "log",
            "log: a log, and no EROFS image\nhint: `anteros log mount log DIRECTORY`",
        ),
    ] {
        for (command, more) in COMMANDS {
            let told = shop.bad(3, &format!("{command} {file} {more}"));
            assert!(
                told.starts_with(&format!("error: {said}")),
                "{command} {file}: {told}"
            );
        }
    }
    assert!(!shop.path("out").exists());
}

#[test]
fn an_image_without_its_end_is_named_by_every_command() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    // Inline data that leaves no room for metadata in the block of the superblock: so it comes last.
    fs::write(shop.path("src/inline"), vec![7; 3000]).unwrap();
    shop.good("mkfs image src --quiet -znone");
    let whole = fs::read(shop.path("image")).unwrap();
    fs::write(shop.path("cut"), &whole[..whole.len() - 4096]).unwrap();
    let (has, of) = (whole.len() - 4096, whole.len());
    let words = format!("cut: the image is cut off: it has {has} bytes of {of}");
    for (command, more) in COMMANDS {
        let told = shop.run(&format!("{command} cut {more}"));
        let status = match command {
            "dump" => 0,
            "check" => 1,
            _ => 3,
        };
        assert_eq!(told.status, Some(status), "{command}: {told:?}");
        match command {
            "check" => assert!(told.out.contains("the image is cut off"), "{told:?}"),
            _ => assert_eq!(told.err.matches(&words).count(), 1, "{command}: {told:?}"),
        }
    }
}

#[test]
fn the_version_says_what_is_in() {
    let shop = Workshop::new();
    let version = concat!("anteros ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(shop.good("-V"), version);
    let long = shop.good("--version");
    assert!(
        long.starts_with(version) && long.contains("All commands; LZ4"),
        "{long}"
    );
}

#[test]
fn a_broken_root_inode_gives_one_status_everywhere() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mkfs image src --quiet -Enosbcrc -znone");
    let root = shop.json("dump image --json")["superblock"].clone();
    let field = |name: &str| root[name].as_u64().unwrap();
    let at = field("meta_block") * field("block_bytes") + field("root_nid") * 32;
    let mut bytes = fs::read(shop.path("image")).unwrap();
    // A layout that this version does not know, and a mode of no kind of file.
    for (offset, value, status) in [(0, 0x0e, 4), (5, 0x30, 3)] {
        let at = at as usize + offset;
        let was = std::mem::replace(&mut bytes[at], value);
        fs::write(shop.path("image"), &bytes).unwrap();
        bytes[at] = was;
        for (command, more) in COMMANDS {
            if !matches!(command, "dump" | "check") {
                let told = shop.bad(status, &format!("{command} image {more}"));
                assert!(told.contains("image: "), "{command}: {told}");
            }
        }
    }
}

#[test]
fn swapped_arguments_are_noticed() {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    for (command, usage) in [
        ("mkfs src", "mkfs IMAGE SOURCE"),
        ("mount src", "mount IMAGE DIRECTORY"),
        ("extract src", "extract IMAGE DIRECTORY"),
        ("verify src", "verify IMAGE SOURCE"),
    ] {
        for other in ["image", "missing"] {
            let told = shop.bad(2, &format!("{command} {other}"));
            assert!(told.contains("src: is a directory, not an image"), "{told}");
            let hint = format!("the image comes first: anteros {usage}");
            assert!(told.contains(&hint), "{command} {other}: {told}");
        }
    }
}

#[test]
fn times_are_shown_as_dates() {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet -T1700000000");
    let told = shop.good("dump -s --path hello image");
    assert_eq!(told.matches("2023-11-14T22:13:20Z").count(), 2, "{told}");
    let told = shop.json("dump -s --path hello image --json");
    assert_eq!(told["inode"]["mtime"], 1_700_000_000, "{told}");
    // Where the epoch is not the time that the image was made, both are told.
    shop.good("mkfs image src --quiet -T1700000000 -E48bit");
    let told = shop.good("dump -s --path hello image");
    assert_eq!(told.matches("2023-11-14T22:13:20Z").count(), 3, "{told}");
}

#[test]
fn a_mount_that_nobody_reads_from_has_no_amplification() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse image mnt");
    let told = shop.good("stat mnt");
    let numbers = shop.json("stat --json mnt");
    shop.umount("mnt");
    assert!(
        told.contains("reads: nobody has read the content of a file"),
        "{told}"
    );
    assert_eq!(numbers["amplification"], Value::Null, "{numbers}");
}

#[test]
fn logs_tell_scripts_what_became_of_them() {
    let shop = Workshop::new();
    shop.good("log mkfs log --size 64M");
    let cleaned = shop.json("log gc --json log");
    assert!(cleaned["cleaned_segments"].is_u64(), "{cleaned}");
    let resized = shop.json("log resize --json log --size 96M");
    assert_eq!(resized["old_bytes"], 64 << 20, "{resized}");
    assert_eq!(resized["bytes"], 96 << 20, "{resized}");
}

#[test]
fn values_are_listed_and_hidden_options_are_not_offered() {
    let shop = Workshop::new();
    let help = shop.good("log mount --help");
    let script = shop.good("completions bash");
    shop.good("manual man");
    let page = fs::read_to_string(shop.path("man/anteros-log-mount.1")).unwrap();
    for value in ["fpc-n", "paper", "lzo", "zstd", "threaded"] {
        for text in [&help, &script] {
            assert!(text.contains(value), "{value}: {text}");
        }
        assert!(page.replace('\\', "").contains(value), "{value}: {page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = shop.good(&format!("completions {shell}"));
        assert!(!script.contains("detach"), "{shell}");
        assert!(!script.contains("evicts"), "{shell}");
        assert!(script.contains("policy"), "{shell}");
    }
    let told = shop.bad(2, "log mount log mnt --policy all");
    assert!(told.contains("none, comp, fpc-n"), "{told}");
}

#[test]
fn what_is_said_of_an_interrupted_build_is_so() {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    let old = fs::read(shop.path("image")).unwrap();
    let endless = fs::File::create(shop.path("src/endless")).unwrap();
    endless.set_len(1 << 40).unwrap();
    for (image, said) in [
        (
            "image",
            "image: interrupted; the file that was there before is as it was",
        ),
        ("new", "new: interrupted; there is no image"),
    ] {
        let child = shop
            .heeding(&format!("mkfs {image} src -zlz4 --holes compress"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Whether the work has begun by then or not, the end is the same.
        wait_until_heeding(&child);
        kill(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{told}");
        assert!(told.contains(said), "{told}");
    }
    assert_eq!(fs::read(shop.path("image")).unwrap(), old);
    assert!(!shop.path("new").exists());
}

#[test]
fn what_is_said_of_an_interrupted_extraction_is_so() {
    let shop = Workshop::new();
    // Zeros in compressed form, which take a while to write.
    let long = fs::File::create(shop.path("src/zeros")).unwrap();
    long.set_len(256 << 20).unwrap();
    shop.good("mkfs image src --quiet -zlz4 -C1M --holes compress");
    let child = shop
        .heeding("extract image out --workers 1")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // It heeds signals by then.
    wait_until(|| shop.path("out").exists());
    kill(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    // On a machine that is fast enough, it was done before.
    if output.status.code() != Some(0) {
        assert_eq!(output.status.code(), Some(130), "{told}");
        let said = "out: interrupted; what was extracted until then stays";
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn what_is_said_of_a_full_disk_is_so() {
    if !judge::is_root() {
        return judge::missing("a small tmpfs (only root can mount)");
    }
    let shop = Workshop::new();
    fs::write(shop.path("src/big"), vec![1; 4 << 20]).unwrap();
    shop.good("mkfs image src --quiet");
    fs::create_dir(shop.path("full")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1M", "tmpfs"];
    let mounted = run(Command::new("mount").args(mount).arg(shop.path("full")));
    assert_eq!(mounted.status, Some(0), "{mounted:?}");
    let new = shop.bad(5, "mkfs full/new src -znone");
    fs::copy(shop.path("image"), shop.path("full/old")).unwrap();
    let old = shop.bad(5, "mkfs full/old src -znone");
    let extracted = shop.bad(5, "extract image full/out");
    assert!(new.contains("hint: there is no image"), "{new}");
    assert!(
        old.contains("beside the old one, which is as it was"),
        "{old}"
    );
    let said = "what was extracted until then stays in full/out, and is incomplete";
    assert!(extracted.contains(said), "{extracted}");
}
