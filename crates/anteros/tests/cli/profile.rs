//! Tests access profiles: `anteros profile`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::process::{Command, Stdio};

use anteros_tests::judge;
use serde_json::{Value, json};

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
        "# anteros profile, 3 rounds\n{HEADER}/sub/text\t4096\t4096\t3\n/sub/text\t8192\t4096\t2\n\
         /rare\t0\t10\t1\n/sub/text\t0\t4096\t1\n/sub/link\t0\t100\t1\n"
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
    let mut read = [0, 0];
    for line in without_digests(&profile) {
        let fields: Vec<&str> = line.split(' ').collect();
        // The hard link may be found by its other name.
        read[usize::from(fields[0] == "/sub/text")] += fields[2].parse::<u64>().unwrap();
    }
    assert_eq!(read, [6, size], "{profile}");
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

/// The text of a profile that is in a file.
fn recorded(shop: &Workshop, name: &str) -> String {
    fs::read_to_string(shop.path(name)).unwrap()
}

#[test]
fn a_command_is_recorded_on_an_image_without_root() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("mnt")).unwrap();
    let command =
        "profile record --image image --mount mnt --rounds 2 -o p -- head -c 10 mnt/sub/text";
    let told = shop.run(command);
    let printed = "line 0\nlin".repeat(2);
    assert_eq!(
        (told.status, &told.out[..]),
        (Some(0), &printed[..]),
        "{told:?}"
    );
    assert!(told.err.contains("in each of 2 rounds"), "{told:?}");
    let profile = recorded(&shop, "p");
    assert!(
        profile.starts_with("# anteros profile, 2 rounds\n"),
        "{profile}"
    );
    let lines = without_digests(&profile);
    assert!(
        lines[0].starts_with("/sub/text 0 ") && lines[0].ends_with(" 2"),
        "{profile}"
    );
    assert_eq!(lines.len(), 1, "{profile}");
    assert_eq!(shop.left(), ["image", "mnt", "p"]);
    // Without a file, what the command prints does not get into the profile.
    let told = shop.run("profile record --image image --mount mnt -- cat mnt/hello");
    assert_eq!(told.status, Some(0), "{told:?}");
    assert!(
        told.err.contains("hello\n") && !told.out.contains("\nhello"),
        "{told:?}"
    );
    assert!(told.out.contains("\t0\t6\t1\t"), "{told:?}");
    // A command that fails is recorded all the same; one that cannot be started is not.
    let told = shop.run("profile record --image image --mount mnt -- cat mnt/hello mnt/none");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(told.out.contains("\t0\t6\t1\t"), "{told:?}");
    let told = shop.bad(5, "profile record --image image --mount mnt -- ./nothing");
    assert!(told.contains("./nothing: cannot be started"), "{told}");
    let told = shop.bad(2, "profile record --image image -- true");
    assert!(told.contains("--mount"), "{told}");
    assert!(!crate::is_mounted(&shop.path("mnt")));
}

#[test]
fn a_recorder_that_is_asked_to_stop_asks_its_command() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("mnt")).unwrap();
    let arguments = "profile record --image image --mount mnt -o p -- sleep 100";
    let mut recorder = shop.heeding(arguments);
    let mut recorder = recorder.stderr(Stdio::null()).spawn().unwrap();
    crate::wait_until_served(&shop.path("mnt"));
    crate::wait_until_heeding(&recorder);
    crate::kill(&recorder, rustix::process::Signal::TERM);
    assert_eq!(recorder.wait().unwrap().code(), Some(130));
    wait_until(|| !crate::is_mounted(&shop.path("mnt")));
    assert_eq!(shop.left(), ["image", "mnt"]);
}

#[test]
fn a_mount_that_is_recorded_is_its_own_source() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse --readahead 0 --trace rec image mnt");
    fs::read(shop.path("mnt/sub/text")).unwrap();
    let told = shop.run("profile record --mount mnt --rounds 2 -o p -- cat mnt/hello");
    assert_eq!(
        (told.status, &told.out[..]),
        (Some(0), "hello\nhello\n"),
        "{told:?}"
    );
    assert!(
        told.err.contains("the source is the record of this mount"),
        "{told:?}"
    );
    let profile = recorded(&shop, "p");
    assert!(profile.contains("\t0\t6\t2\t"), "{profile}");
    assert!(!profile.contains("text\t"), "{profile}");
    shop.umount("mnt");
}

/// Tests that the kernel tells which pages are read, where it may be asked.
#[test]
fn a_command_is_recorded_on_a_mount_of_the_kernel() {
    if !judge::has_kernel() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src -znone");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --kernel image mnt");
    let told = shop.run("profile record --mount mnt --rounds 2 -o p -- head -c 10 mnt/sub/text");
    shop.umount("mnt");
    let printed = "line 0\nlin".repeat(2);
    assert_eq!(
        (told.status, &told.out[..]),
        (Some(0), &printed[..]),
        "{told:?}"
    );
    if told.err.contains("the source are files that are opened") {
        return judge::missing("events of the page cache");
    }
    assert!(told.err.contains("pages that the kernel adds"), "{told:?}");
    let lines = without_digests(&recorded(&shop, "p"));
    assert!(
        lines[0].starts_with("/sub/text 0 ") && lines[0].ends_with(" 2"),
        "{lines:?}"
    );
    let instances = fs::read_dir("/sys/kernel/tracing/instances");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    for left in instances.into_iter().flatten().flatten().map(name) {
        let process = left
            .strip_prefix("anteros-")
            .map(|id| format!("/proc/{id}"));
        assert!(
            process.is_none_or(|process| fs::exists(process).unwrap()),
            "{left}"
        );
    }
}

/// Tests that files that are opened are recorded where nothing tells of pages, also without root.
#[test]
fn files_that_are_opened_are_recorded_where_nothing_better_is_to_be_had() {
    let shop = Workshop::new();
    let told =
        shop.run_as_nobody("profile record --mount src -- cat src/sub/text src/hello src/hello");
    assert_eq!(told.status, Some(0), "{told:?}");
    for part in [
        "the source are files that are opened",
        "tracing file system",
    ] {
        assert!(told.err.contains(part), "{told:?}");
    }
    let profile: Vec<&str> = told.out.lines().collect();
    assert!(
        profile[1].starts_with("# files are in the order in which they were opened"),
        "{told:?}"
    );
    // Files of somebody else count as a whole.
    let size = fs::metadata(shop.path("src/sub/text")).unwrap().len();
    let lines = without_digests(&told.out);
    assert_eq!(lines[0], format!("/sub/text 0 {size} 1"), "{told:?}");
    assert!(lines[1].ends_with(" 0 6 1") && lines.len() == 2, "{told:?}");
}

#[test]
fn a_record_without_a_mount_says_why() {
    let shop = Workshop::new();
    let told = shop.bad(2, "profile record --mount src/hello -- true");
    assert!(told.contains("no directory"), "{told}");
    let told = shop.bad(5, "profile record -- ./nothing");
    assert!(told.contains("no such program"), "{told}");
}

/// A profile of which the core are the second half of a file and all of another, and the digest of one range is wrong.
const CORE: &str = "# anteros profile, 2 rounds\n/sub/text\t102400\t999999\t2\n/hello\t0\t6\t2\t6bba86c7e069f56d5a10b435f1c8e49c\n\
    /sub/text\t0\t4096\t2\t6bba86c7e069f56d5a10b435f1c8e49c\n/none\t0\t1\t2\n/sub/text\t4096\t4096\t1\n";

fn warmed(shop: &Workshop, arguments: &str) -> Value {
    let told = shop.run(&format!("profile warm --profile p --json {arguments}"));
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(told.err.contains("warning: /none: "), "{told:?}");
    let mut value: Value = serde_json::from_str(&told.out).unwrap();
    value.as_object_mut().unwrap().remove("seconds");
    value
}

#[test]
fn the_core_of_a_profile_is_read_ahead_of_those_who_need_it() {
    let shop = Workshop::new();
    fs::write(shop.path("p"), CORE).unwrap();
    let size = fs::metadata(shop.path("src/sub/text")).unwrap().len();
    let core = size - 102_400 + 6 + 4096;
    let expected = json!({
        "directory": "src", "profile": "p", "order": "files", "ranges": 3, "bytes": core, "image_bytes": 0, "requests": 3,
        "missing_ranges": 1, "changed_ranges": 1, "failed_ranges": 0, "bytes_left_out": 0,
    });
    assert_eq!(warmed(&shop, "src"), expected);
    let all = warmed(&shop, "src --all");
    // What was read in one round only continues what all have read.
    assert_eq!(
        (&all["bytes"], &all["requests"]),
        (&json!(core + 4096), &json!(3))
    );
    let little = warmed(&shop, "src --limit 8K");
    assert_eq!(little["bytes"], 4102, "{little}");
    assert_eq!(little["bytes_left_out"], size - 102_400, "{little}");
    let told = shop.run("profile warm src --profile p");
    assert!(
        told.out.starts_with("src: ") && told.out.contains("3 requests for 3 ranges"),
        "{told:?}"
    );
    assert!(told.err.contains("1 ranges have other content"), "{told:?}");
    let told = shop.bad(3, "profile warm src/hello --profile p");
    assert!(told.contains("src/hello"), "{told}");
    let told = shop.bad(2, "profile warm src/hello --profile p --image image");
    assert!(told.contains("src/hello: no directory"), "{told}");
    let told = shop.bad(5, "profile warm nowhere --profile p");
    assert!(told.contains("nowhere"), "{told}");
    shop.good("mkfs --offset 8192 image src");
    let runs = warmed(&shop, "image --offset 8K");
    assert_eq!(
        (&runs["order"], &runs["ranges"]),
        (&json!("image"), &json!(3))
    );
    let size = fs::metadata(shop.path("image")).unwrap().len();
    let bytes = runs["bytes"].as_u64().unwrap();
    assert!((4096..=size).contains(&bytes), "{runs}");

    if !judge::has_fuse() {
        return;
    }
    fs::remove_file(shop.path("image")).unwrap();
    shop.good("mkfs image src");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse image mnt");
    let mounted = warmed(&shop, "mnt");
    assert_eq!(
        (&mounted["order"], &mounted["bytes"]),
        (&json!("image"), &json!(core))
    );
    // What the image has of all ranges, and inodes and directories.
    let of_image = mounted["image_bytes"].as_u64().unwrap();
    let size = fs::metadata(shop.path("image")).unwrap().len();
    assert!((4096..=size).contains(&of_image), "{mounted}");
    let named = warmed(&shop, "src --image image");
    assert_eq!(
        (&named["order"], &named["image_bytes"]),
        (&json!("image"), &json!(0))
    );
    let wrong = shop.run("profile warm src --profile p --image src/hello");
    assert!(wrong.out.contains("in the order of the files"), "{wrong:?}");
    assert!(
        wrong.err.contains("ranges are read file by file"),
        "{wrong:?}"
    );
    shop.umount("mnt");
}

fn shown(shop: &Workshop, arguments: &str) -> Value {
    let told = shop.run(&format!("profile show --json {arguments}"));
    assert!(matches!(told.status, Some(0 | 6)), "{told:?}");
    serde_json::from_str(&told.out).unwrap()
}

#[test]
fn costs_of_a_profile_are_told_of_each_image() {
    let shop = Workshop::new();
    shop.good("mkfs plain src -znone");
    shop.good("mkfs small src -zlz4 -C4096");
    shop.good("mkfs large src -zlz4 -C65536");
    // Pages 2 and 30, in this order back to front.
    let profile =
        "# anteros profile, 2 rounds\n/sub/text\t122880\t4096\t1\n/sub/text\t8192\t4096\t2\n";
    fs::write(shop.path("p"), profile).unwrap();
    let all = shown(&shop, "plain small large --profile p");
    let [plain, small, large] = &all["images"].as_array().unwrap()[..] else {
        panic!("{all}");
    };
    for image in [plain, small, large] {
        let told = ["ranges", "missing_ranges", "bytes", "pages"].map(|name| &image[name]);
        assert_eq!(told, [2, 0, 8192, 2].map(Value::from).each_ref(), "{image}");
    }
    assert_eq!(
        (&plain["device_bytes"], &plain["runs"], &plain["requests"]),
        (&json!(8192), &json!(2), &json!(2))
    );
    assert_eq!(plain["dar"], Value::Null);
    let extents = small["extents"].as_u64().unwrap();
    // A page may lie in two of them.
    assert!((2..=4).contains(&extents), "{small}");
    assert_eq!(small["device_bytes"], 4096 * extents);
    let dar = |image: &Value| image["dar"].as_f64().unwrap();
    // An extent of a few pages comes along with one of them, or an extent of more.
    assert!(1.0 < dar(small) && dar(small) < dar(large), "{all}");
    assert!(
        large["device_bytes"].as_u64() > small["device_bytes"].as_u64(),
        "{all}"
    );
    let core = shown(&shop, "small --core --profile p");
    assert!(
        core["images"][0]["extents"].as_u64().unwrap() < extents,
        "{core}"
    );

    // A profile with all of a file wants all that is decoded.
    fs::write(shop.path("p"), "/sub/text\t0\t999999999\t1\n").unwrap();
    let whole = shown(&shop, "large --profile p");
    assert_eq!(
        (&whole["images"][0]["dar"], &whole["images"][0]["runs"]),
        (&json!(1.0), &json!(1))
    );
    let text = shop.good("profile show small large --profile p");
    let dar = text.lines().last().unwrap().split_whitespace();
    assert_eq!(dar.collect::<Vec<_>>(), ["DAR", "1.00", "1.00"], "{text}");
}

#[test]
fn a_profile_is_drawn_on_a_map_of_its_image() {
    let shop = Workshop::new();
    shop.good("mkfs image src");
    shop.good("mkfs packed src -Eall-fragments -zlz4 -C65536");
    let profile = "/hello\t0\t6\t1\t00000000000000000000000000000000\n/a<b\t0\t1\t1\n/sub/text\t0\t18446744073709551615\t1\n\
        /sub/text\t18446744073709551615\t18446744073709551615\t1\n";
    fs::write(shop.path("p"), profile).unwrap();
    let told = shop.run("profile show image packed --profile p --html map.html");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(
        told.err
            .contains("/hello: 6 bytes at 0 are not those of the profile"),
        "{told:?}"
    );
    let page = fs::read_to_string(shop.path("map.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<svg ").count(), 2, "{page}");
    assert!(page.contains("fetch 1 of "), "{page}");
    assert!(
        !page.contains("http://") || page.matches("http").count() == 2,
        "{page}"
    );
    // Of the packed inode, as of a file.
    let packed = shown(&shop, "packed --profile p");
    assert_eq!(
        (
            &packed["images"][0]["missing_ranges"],
            &packed["images"][0]["changed_ranges"]
        ),
        (&json!(2), &json!(1))
    );
    assert!(
        packed["images"][0]["extents"].as_u64().unwrap() > 0,
        "{packed}"
    );
    // A page is written anew, and nothing else.
    shop.run("profile show image --profile p --html map.html");
    assert!(fs::read_to_string(shop.path("map.html")).unwrap().len() < page.len());
    let told = shop.bad(2, "profile show image --profile p --html src/hello");
    assert!(told.contains("exists and is no page"), "{told}");
    let told = shop.bad(3, "profile show src/hello --profile p");
    assert!(told.contains("src/hello"), "{told}");
}

#[test]
fn a_profile_of_nothing_and_a_log_are_refused_by_name() {
    let shop = Workshop::new();
    shop.good("mkfs image src");
    shop.good("log mkfs log --size 64M");
    fs::write(shop.path("p"), "# anteros profile, 2 rounds\n").unwrap();
    let told = shop.bad(2, "profile show image --profile p");
    assert!(told.contains("profile of p is empty"), "{told}");
    fs::write(
        shop.path("p"),
        "# anteros profile, 2 rounds\n/hello\t0\t6\t1\n",
    )
    .unwrap();
    let told = shop.bad(2, "profile show image --core --profile p");
    assert!(told.contains("core set of p is empty"), "{told}");
    let told = shop.bad(2, "profile show image log --profile p");
    assert!(told.contains("log: a log"), "{told}");
    assert!(told.contains("hint: `anteros log launches`"), "{told}");
}

/// Tests that nobody reads a long hole for the sake of a digest.
#[test]
fn a_hole_of_any_length_is_not_read() {
    let shop = Workshop::new();
    let huge = File::create(shop.path("src/huge")).unwrap();
    huge.set_len(1 << 42).unwrap();
    shop.good("mkfs image src");
    let digest = "\t00000000000000000000000000000000\n";
    let profile = format!("/huge\t0\t18446744073709551615\t1{digest}/hello\t0\t6\t1\n");
    fs::write(shop.path("p"), profile).unwrap();
    let told = shop.run("profile show image --profile p --json");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(told.err.contains("1 ranges have no digest"), "{told:?}");
    let told = shop.run("profile merge p --files image");
    assert_eq!(told.status, Some(6), "{told:?}");
    assert!(
        told.out.contains("/huge\t0\t4398046511104\t1\n"),
        "{told:?}"
    );
    assert!(told.out.contains(HELLO), "{told:?}");
    shop.good("mkfs laid-out src --profile p");
}

/// Tests that an image is found behind an offset, and its extra devices as well.
#[test]
fn a_warmer_reads_in_the_order_of_any_image() {
    let shop = Workshop::new();
    fs::write(shop.path("p"), "/sub/text\t0\t4096\t1\n").unwrap();
    shop.good("mkfs --offset 8192 image src");
    let order = |arguments: &str| {
        let told = shop.run(&format!(
            "profile warm src --profile p --json --image image {arguments}"
        ));
        assert_eq!(told.status, Some(0), "{told:?}");
        let value: Value = serde_json::from_str(&told.out).unwrap();
        value["order"].as_str().unwrap().to_owned()
    };
    assert_eq!(order("--offset 8K"), "image");
    assert_eq!(order(""), "files");
    fs::remove_file(shop.path("image")).unwrap();
    shop.good("mkfs image src --chunksize 4096 --blobdev blob");
    assert_eq!(order("--device blob"), "image");
    assert_eq!(order(""), "files");
}
