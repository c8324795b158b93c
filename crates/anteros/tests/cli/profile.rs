//! Tests access profiles: `anteros profile`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use anteros_tests::judge;

use crate::{Workshop, log, run, wait_until};

const HEADER: &str = "# path\toffset\tlength\tcount\tdigest\n";

/// The digest of `hello\n`.
const HELLO: &str = "6bba86c7e069f56d5a10b435f1c8e49c";

/// The lines of a profile without digests.
fn without_digests(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split('\t').take(4).collect::<Vec<_>>());
    fields.map(|fields| fields.join(" ")).collect()
}

#[test]
fn profiles_are_merged_and_the_core_comes_first() {
    let shop = Workshop::new();
    let one = "# anteros profile, 1 round\n/rare\t0\t10\t1\n/sub/text\t0\t8192\t1\n";
    let two = "# anteros profile, 2 rounds\n/sub/text\t4096\t8192\t2\n/sub/link\t0\t100\t1\n";
    fs::write(shop.path("one"), one).unwrap();
    fs::write(shop.path("two"), two).unwrap();
    let merged = shop.good("profile merge one two");
    let expected = format!(
        "# anteros profile, 3 rounds\n{HEADER}/sub/text\t4096\t4096\t3\n/rare\t0\t10\t1\n\
         /sub/text\t0\t4096\t1\n/sub/text\t8192\t4096\t2\n/sub/link\t0\t100\t1\n"
    );
    assert_eq!(merged, expected);
    assert_eq!(shop.good("profile merge one two -o one"), "");
    assert_eq!(fs::read_to_string(shop.path("one")).unwrap(), expected);

    // With files, there are digests, and what the files do not have is left out.
    let told = shop.run("profile merge one --files src");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(
        told.err.contains("warning: /rare: No such file"),
        "{told:?}"
    );
    let lines = without_digests(&told.out);
    assert!(lines.contains(&"/sub/link 0 6 1".into()), "{told:?}");
    assert_eq!(lines.len(), 4, "{told:?}");
    shop.good("mkfs image src");
    let of_image = shop.run("profile merge one --files image");
    assert_eq!(of_image.out, told.out);
}

#[test]
fn what_is_no_profile_is_neither_read_nor_overwritten() {
    let shop = Workshop::new();
    fs::write(shop.path("good"), "/a\t0\t1\t1\n").unwrap();
    fs::write(shop.path("bad"), "/a\t0\t1\n").unwrap();
    let large = File::create(shop.path("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    let told = shop.bad(2, "profile merge good bad");
    assert!(told.contains("bad: line 1: 3 fields"), "{told}");
    let told = shop.bad(2, "profile merge good large");
    assert!(told.contains("large: more than 268435456 bytes"), "{told}");
    let told = shop.bad(2, "profile merge good -o src/hello");
    assert!(told.contains("exists and is no profile"), "{told}");
    assert_eq!(
        fs::read_to_string(shop.path("src/hello")).unwrap(),
        "hello\n"
    );
    let told = shop.bad(5, "profile merge good nothing");
    assert!(told.contains("nothing: No such file"), "{told}");
    assert_eq!(shop.left(), ["bad", "good", "large"]);
}

#[test]
fn lists_of_other_programs_are_converted() {
    let shop = Workshop::new();
    fs::write(shop.path("paths"), "sub/text\n./hello\nsub/text\n").unwrap();
    fs::write(shop.path("sort"), "hello -5\nsub/text 10\n").unwrap();
    let record = "{\"path\":\"sub/text\",\"layerIndex\":0}\n{\"path\":\"hello\"}\n";
    fs::write(shop.path("record"), record).unwrap();
    let size = fs::metadata(shop.path("src/sub/text")).unwrap().len();
    let expected = [format!("/sub/text 0 {size} 1"), "/hello 0 6 1".into()];
    for list in [
        "paths",
        "--from paths paths",
        "--from dwarfs paths",
        "--from sort sort",
        "--from estargz record",
    ] {
        let profile = shop.good(&format!("profile convert --files src {list}"));
        assert_eq!(without_digests(&profile), expected, "{list}");
        assert!(
            profile.contains(&format!("/hello\t0\t6\t1\t{HELLO}\n")),
            "{profile}"
        );
    }
    let all = shop.good("profile convert paths");
    assert!(
        all.contains("/hello\t0\t18446744073709551615\t1\n"),
        "{all}"
    );
    let told = shop.bad(2, "profile convert --from estargz sort");
    assert!(told.contains("sort: line 1: no entry"), "{told}");
    fs::write(shop.path("sort"), "hello high\n").unwrap();
    let told = shop.bad(2, "profile convert --from sort sort");
    assert!(told.contains("sort: line 1: a path, a blank"), "{told}");
}

/// Tests that a profile does not lead out of a directory, nor to what answers when it is opened.
#[test]
fn only_files_below_a_directory_are_read() {
    let shop = Workshop::new();
    let made = run(Command::new("mkfifo").arg(shop.path("src/pipe")));
    assert_eq!(made.status, Some(0), "{made:?}");
    symlink("..", shop.path("src/up")).unwrap();
    let list = "../src/hello\nup/src/hello\nsymlink\npipe\nsub\nhello/below\n\u{1}\nhello\n";
    fs::write(shop.path("list"), list).unwrap();
    shop.good("mkfs image src");
    for files in ["src", "image"] {
        let told = shop.run(&format!("profile convert list --files {files}"));
        assert_eq!(told.status, Some(6), "{told:?}");
        assert_eq!(without_digests(&told.out), ["/hello 0 6 1"], "{told:?}");
        assert_eq!(told.err.lines().count(), 7, "{told:?}");
        assert!(told.err.contains("/pipe: no regular file"), "{told:?}");
    }
    // Of many, some are named.
    let many: String = (0..100).map(|n| format!("none/{n}\n")).collect();
    fs::write(shop.path("list"), many).unwrap();
    let told = shop.run("profile convert list --files image");
    assert!(
        told.err.ends_with("warning: 90 more ranges do not fit\n"),
        "{told:?}"
    );
}

#[test]
fn a_record_of_reads_is_converted() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse --readahead 0 --trace rec image mnt");
    let size = fs::metadata(shop.path("src/sub/text")).unwrap().len();
    assert_eq!(fs::read(shop.path("mnt/hello")).unwrap(), b"hello\n");
    assert_eq!(
        fs::read(shop.path("mnt/sub/text")).unwrap().len() as u64,
        size
    );
    shop.umount("mnt");
    wait_until(|| {
        shop.good("trace --json rec")
            .contains("\"is_closed\": true")
    });
    let profile = shop.good("profile convert rec --files image");
    assert!(
        profile.starts_with("# anteros profile, 1 round\n"),
        "{profile}"
    );
    let lines = without_digests(&profile);
    // The hard link may be found by its other name.
    assert!(lines[0].ends_with(" 0 6 1"), "{profile}");
    assert_eq!(lines[1..], [format!("/sub/text 0 {size} 1")], "{profile}");
    fs::write(shop.path("cut"), &fs::read(shop.path("rec")).unwrap()[..40]).unwrap();
    let told = shop.run("profile convert cut --files image");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(told.err.contains("cut short"), "{told:?}");
}

#[test]
fn a_record_of_launches_is_converted() {
    if !judge::has_fuse() {
        return;
    }
    let shop = log::shop("64M");
    let daemon = log::mount(&shop, "");
    fs::write(shop.path("mnt/lib.so"), vec![b'x'; 64 * 4096]).unwrap();
    log::unmount(&shop, daemon);
    for blocks in [&[40, 3, 4][..], &[40, 3, 9]] {
        let daemon = log::mount(&shop, "--launches rec");
        let file = File::open(shop.path("mnt/lib.so")).unwrap();
        for block in blocks {
            file.read_exact_at(&mut [0; 100], block * 4096 + 7).unwrap();
        }
        drop(file);
        log::unmount(&shop, daemon);
    }
    let profile = shop.good("profile convert rec --files log");
    assert!(
        profile.starts_with("# anteros profile, 2 rounds\n"),
        "{profile}"
    );
    let expected = [
        "/lib.so 163840 4096 2",
        "/lib.so 12288 4096 2",
        "/lib.so 16384 4096 1",
        "/lib.so 36864 4096 1",
    ];
    assert_eq!(without_digests(&profile), expected);
    let told = shop.bad(2, "profile convert rec");
    assert!(told.contains("names inodes, not paths"), "{told}");

    let daemon = log::mount(&shop, "");
    let mounted = shop.good("profile convert rec --files mnt");
    assert_eq!(mounted, profile);
    fs::write(shop.path("mnt/lib.so"), "new").unwrap();
    log::unmount(&shop, daemon);
    let told = shop.run("profile convert rec --files log");
    assert!(
        told.err.contains("1 files of the record are no more"),
        "{told:?}"
    );
    assert_eq!(without_digests(&told.out), [""; 0]);
}
