//! Tests what goes wrong, what is said about it, and what is left behind.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anteros_tests::judge;
use anteros_tests::trees::{mixed, noise};

use crate::{Signal, Workshop, kill, run, same, wait_until_heeding};

#[test]
fn arguments_that_make_no_sense_are_usage_errors_and_change_nothing() {
    let shop = Workshop::new();
    for (arguments, said) in [
        ("", "Usage: anteros"),
        ("chekc image", "similar subcommand exists: 'check'"),
        ("mkfs", "<IMAGE>"),
        ("mkfs image", "<SOURCE>"),
        (
            "mkfs image src -zlz5",
            "lz4, lz4hc, lzma, deflate and zstd are known",
        ),
        ("mkfs image src -zzstd,23", "1 to 22"),
        ("mkfs image src -zlzma,dictsize=1K", "4K to 8M"),
        ("mkfs image src -zzstd:gzip", "zstd are known, and none"),
        ("mkfs image src -zlz4hc,13", "1 to 12"),
        ("mkfs image src -zlz4 -C5000", "multiples of 4096"),
        ("mkfs image src -znone -C4096", "-C has no meaning without"),
        ("mkfs image src -b3000", "powers of two"),
        ("mkfs image src -zlz4:lz4hc --quick 5", "another algorithm"),
        ("mkfs image src -zlz4 --quick 101", "101 is not in 0..=100"),
        ("mkfs image src --xattr-prefix=over.", "extends none of"),
        ("mkfs image src --xattr-prefix=user.", "extends none of"),
        ("mkfs image src -znone -m4096", "no codec for metadata"),
        ("mkfs image src -m4096:1", "-z has no codec 1"),
        ("mkfs image src -m4096:gzip", "zstd are known, and none"),
        ("mkfs image src -m5000", "multiples of 4096"),
        ("mkfs image src -Efragments=2M", "up to 1048576"),
        ("mkfs image src -Efragments=5000", "multiples of 4096"),
        ("mkfs image src -E^fragdedupe", "always stored once"),
        ("mkfs image src -Enonsense", "no such extended option"),
        ("mkfs image src -Unonsense", "a UUID looks like"),
        ("mkfs image", "SOURCE"),
        ("mkfs image src --tar=f", "is a directory, not an archive"),
        ("mkfs image src --aufs", "for archives alone"),
        ("mkfs image src --ovlfs-strip=1", "for archives alone"),
        ("mkfs image src --ovlfs-strip=2", "invalid value '2'"),
        (
            "mkfs image src --tar=headers",
            "is a directory, not an archive",
        ),
        (
            "mkfs image src --content=refer",
            "sources that are images, and these have 0 devices",
        ),
        (
            "mkfs image src --device src/hello",
            "no source has this device",
        ),
        (
            "mkfs image src --content=zero --xattr-inode-digest",
            "digests of content are wished, and none is read",
        ),
        ("mkfs image src -L1234567890123456", "15 bytes"),
        ("mkfs image src --exclude-regex (", "the exclusion `(`"),
        ("mkfs src src/hello", "the image comes first"),
        ("mkfs src/image src", "lies inside the source"),
        ("mkfs image src --workers 0", "0 is not in 1..=1024"),
        ("mount image --kernel --fuse x", "cannot be used with"),
    ] {
        let said_so = shop.bad(2, arguments);
        assert!(said_so.contains(said), "{arguments}: {said_so}");
    }
    assert_eq!(shop.left(), [""; 0]);
    assert!(!shop.path("src/image").exists());
}

#[test]
fn what_is_missing_or_no_image_is_named() {
    let shop = Workshop::new();
    shop.good("mkfs image src");
    fs::write(
        shop.path("text"),
        "no image, but longer than a superblock ".repeat(100),
    )
    .unwrap();
    for (status, arguments, said) in [
        (5, "mkfs new missing", "missing: No such file"),
        (
            3,
            "mkfs new src/hello",
            "hello: the member at byte 0: this is no tar archive",
        ),
        (
            5,
            "mkfs missing/new src",
            "missing/new: cannot create the image",
        ),
        (5, "check missing", "missing: No such file"),
        (5, "check src", "an image is a file"),
        (3, "check text", "no EROFS image: the magic is 0x"),
        (5, "ls image missing", "image: missing: no such file"),
        (2, "cat image sub", "sub is a directory"),
        (
            5,
            "extract image out --path missing",
            "missing: no such file",
        ),
        (5, "verify image missing", "missing: /: No such file"),
        (5, "mount image missing", "missing: not a directory"),
        (5, "umount src", "src"),
    ] {
        let said_so = shop.bad(status, arguments);
        assert!(said_so.contains(said), "{arguments}: {said_so}");
    }
}

#[test]
fn a_truncated_image_is_an_error_everywhere() {
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc");
    let whole = fs::read(shop.path("image")).unwrap();
    for len in [0, 1000, 1100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(shop.path("cut"), &whole[..len]).unwrap();
        let check = shop.run("check cut");
        let told = format!("{}{}", check.out, check.err);
        assert!(told.contains("cut: "), "{len} bytes: {check:?}");
        assert!(
            matches!(check.status, Some(1 | 3)),
            "{len} bytes: {check:?}"
        );
        let extract = shop.run("extract cut out --overwrite");
        // The very end may be padding.
        let whole = extract.status == Some(0) && same(&shop.path("src"), &shop.path("out"));
        assert!(
            whole || extract.status == Some(3),
            "{len} bytes: {extract:?}"
        );
    }
}

#[test]
fn a_wrong_checksum_is_refused_unless_told_otherwise() {
    let shop = Workshop::new();
    shop.good("mkfs image src");
    let mut bytes = fs::read(shop.path("image")).unwrap();
    bytes[1024 + 64] ^= 1; // in the volume name
    fs::write(shop.path("image"), bytes).unwrap();
    let said = shop.bad(3, "cat image hello");
    assert!(said.contains("--no-checksum"), "{said}");
    assert_eq!(shop.good("cat --no-checksum image hello"), "hello\n");
    let check = shop.run("check image");
    assert_eq!(check.status, Some(1));
    assert!(check.out.contains("checksum"), "{check:?}");
}

#[test]
fn damaged_data_is_an_error_and_never_other_data() {
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc");
    let mut bytes = fs::read(shop.path("image")).unwrap();
    bytes[4096..8192].fill(0xff);
    fs::write(shop.path("image"), bytes).unwrap();
    let run = shop.run("cat image sub/text");
    assert_eq!((run.status, &run.out[..]), (Some(3), ""), "{run:?}");
    assert!(run.err.contains("sub/text: data of inode"), "{run:?}");
    let run = shop.run("extract image out --keep-going");
    assert_eq!(run.status, Some(6), "{run:?}");
    assert!(
        run.err.contains("image: /sub/text: data of inode"),
        "{run:?}"
    );
    assert_eq!(fs::read(shop.path("out/hello")).unwrap(), b"hello\n");
}

#[test]
fn a_user_without_rights_is_told_what_is_missing() {
    let shop = Workshop::new();
    fs::set_permissions(shop.path("src/hello"), fs::Permissions::from_mode(0o000)).unwrap();
    let run = shop.run_as_nobody("mkfs image src");
    assert_eq!(run.status, Some(5), "{run:?}");
    assert!(
        run.err.contains("src/hello: ") && run.err.contains("Permission denied"),
        "{run:?}"
    );
    assert_eq!(shop.left(), [""; 0]);

    fs::set_permissions(shop.path("src/hello"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        shop.run_as_nobody("mkfs image src --verify").status,
        Some(0)
    );
    assert_eq!(shop.run_as_nobody("check image").status, Some(0));
    assert_eq!(shop.run_as_nobody("extract image out").status, Some(0));
    let run = shop.run_as_nobody("mount --kernel image src");
    assert_eq!(run.status, Some(5), "{run:?}");
    assert!(run.err.contains("the kernel does not mount it"), "{run:?}");
}

/// Options of `mkfs` that have all its parts at work, one or the other of them.
const EVERYTHING: [&str; 4] = [
    "-znone",
    "-zlz4hc -C64K -Efragments,dedupe,ztailpacking",
    "-zlzma,9 -C1M -Eall-fragments,dedupe,dot-omitted -m32K --order=kind",
    "-zzstd,15 -C16K -Ededupe,48bit",
];

#[test]
fn a_full_disk_is_named_and_nothing_looks_like_an_image() {
    if !judge::is_root() {
        return judge::missing("a small tmpfs (only root can mount)");
    }
    let shop = Workshop::new();
    fs::write(shop.path("src/big"), vec![1; 4 << 20]).unwrap();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("small")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1M", "tmpfs"];
    assert_eq!(
        run(Command::new("mount").args(mount).arg(shop.path("small"))).status,
        Some(0)
    );
    fs::write(shop.path("src/noise"), noise(1, 2 << 20)).unwrap();
    let built = EVERYTHING.map(|options| shop.run(&format!("mkfs small/image src {options}")));
    let extracted = shop.run("extract image small/out");
    let left: Vec<_> = fs::read_dir(shop.path("small"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(
        run(Command::new("umount").arg(shop.path("small"))).status,
        Some(0)
    );
    for run in built.iter().chain([&extracted]) {
        assert_eq!(run.status, Some(5), "{run:?}");
        assert!(
            run.err.contains("small/") && run.err.contains("No space left"),
            "{run:?}"
        );
    }
    assert_eq!(left, ["out"]);
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let shop = Workshop::new();
    let endless = fs::File::create(shop.path("src/endless")).unwrap();
    endless.set_len(1 << 40).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let child = shop
            .heeding("mkfs image src -zlz4 --holes compress")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Whether the work has begun by then or not, the end is the same.
        wait_until_heeding(&child);
        kill(&child, signal);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(said.contains("there is no image"), "{said}");
        assert_eq!(shop.left(), [""; 0]);
    }
}

#[test]
fn a_build_that_waits_for_a_pipe_can_be_interrupted() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("src/spool")).unwrap();
    let pipe = run(Command::new("mkfifo").arg(shop.path("src/pipe")));
    assert_eq!(pipe.status, Some(0));
    for source in ["-", "src -", "mtree:-", "src/pipe", "mtree:src/pipe"] {
        let mut child = shop
            .heeding(&format!("mkfs image {source}"))
            .env("TMPDIR", "src/spool")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let writer = child.stdin.take();
        wait_until_heeding(&child);
        kill(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        drop(writer);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{source}: {said}");
        assert!(said.contains("there is no image"), "{source}: {said}");
        assert_eq!(shop.left(), [""; 0], "{source}");
        assert_eq!(fs::read_dir(shop.path("src/spool")).unwrap().count(), 0);
    }
}

/// A shop whose source has files that are alike in part, and many small ones.
fn shop_of_likes() -> Workshop {
    let shop = Workshop::new();
    let content = mixed(1, 1 << 20);
    for (n, file) in ["a", "b", "c"].iter().enumerate() {
        let other = mixed(n as u64 + 2, 300_000);
        let parts = [&content[n * 100_000..], &other, &content[..400_000]].concat();
        fs::write(shop.path("src").join(file), parts).unwrap();
    }
    for n in 0..100 {
        let small = mixed(n, 3000 + n as usize);
        fs::write(shop.path(&format!("src/small-{n}")), small).unwrap();
    }
    shop
}

#[test]
fn a_build_that_is_interrupted_anywhere_leaves_an_image_or_nothing() {
    const MOMENTS: u32 = 5;
    let shop = shop_of_likes();
    for options in EVERYTHING {
        let build = format!("mkfs image src --quiet {options}");
        let start = Instant::now();
        shop.good(&build);
        let takes = start.elapsed();
        for moment in 0..MOMENTS {
            let _ = fs::remove_file(shop.path("image"));
            let child = shop.heeding(&build).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(takes * moment / MOMENTS);
            wait_until_heeding(&child);
            kill(&child, Signal::INT);
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let place = format!("{options}, {moment} fifths of {takes:?}: {said}");
            match output.status.code() {
                Some(0) => assert_eq!(shop.left(), ["image"], "{place}"),
                Some(130) => assert_eq!(shop.left(), [""; 0], "{place}"),
                other => panic!("{other:?}, {place}"),
            }
        }
    }
}

#[test]
fn a_rebuild_that_is_killed_anywhere_leaves_the_old_image() {
    const MOMENTS: u32 = 4;
    let shop = shop_of_likes();
    for options in EVERYTHING {
        let build = format!("mkfs image src --quiet {options}");
        shop.good("mkfs image src --quiet");
        let start = Instant::now();
        shop.good(&build.replace("image", "other"));
        let takes = start.elapsed();
        let old = fs::read(shop.path("image")).unwrap();
        let new = fs::read(shop.path("other")).unwrap();
        for moment in 0..MOMENTS {
            fs::write(shop.path("image"), &old).unwrap();
            let mut child = shop.command(&build).spawn().unwrap();
            std::thread::sleep(takes * moment / MOMENTS);
            child.kill().unwrap();
            child.wait().unwrap();
            let found = fs::read(shop.path("image")).unwrap();
            let is_whole = found == old || found == new;
            assert!(is_whole, "{options}, {moment} quarters of {takes:?}");
        }
    }
}

#[test]
fn an_interrupted_rebuild_keeps_the_old_image() {
    let shop = Workshop::new();
    shop.good("mkfs image src");
    let old = fs::read(shop.path("image")).unwrap();
    fs::set_permissions(shop.path("src"), fs::Permissions::from_mode(0o755)).unwrap();
    let endless = fs::File::create(shop.path("src/endless")).unwrap();
    endless.set_len(1 << 40).unwrap();
    let mut child = shop
        .command("mkfs image src -zlz4 --holes compress")
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // Nothing can be tidied up after this one.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(shop.path("image")).unwrap(), old);
}

#[test]
fn nobody_reading_is_no_reason_to_complain() {
    let shop = Workshop::new();
    (0..5000).for_each(|n| fs::write(shop.path(&format!("src/name-{n}")), "").unwrap());
    shop.good("mkfs image src");
    let mut child = shop
        .command("ls -l image")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), &said[..]), (Some(141), ""));
}
