//! Tests patches of files that change a little: what did not change stays where it is. Judges are the kernel, erofs-utils, which makes
//! images to patch as well, and `verify`.

use std::fs;
use std::os::unix::fs::FileExt;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::{Random, words};

use crate::Workshop;
use crate::patches::{judge_image, make};

/// Bytes of the file that changes.
const SIZE: usize = 9 << 20;

/// A form of images: options, the longest cluster, and whether each extent has an entry of its own.
struct Form {
    options: &'static str,
    cluster: u64,
    encoded: bool,
}

const fn form(options: &'static str, cluster: u64, encoded: bool) -> Form {
    Form {
        options,
        cluster,
        encoded,
    }
}

const FORMS: [Form; 9] = [
    form("-zlz4 -C4096", 4096, false),
    form("-zlz4 -C65536", 65536, false),
    form("-zzstd,1 -C65536 -Eztailpacking", 65536, false),
    form("-zlzma,1 -C1048576", 1 << 20, false),
    form("-zlz4 -C65536 -Efragments", 65536, false),
    form("-zlz4 -C32768 -Eall-fragments", 65536, false),
    form("-zlz4 -C16384 -Ededupe", 16384, false),
    form("-zlz4 -C65536 -E48bit", 65536, true),
    form("-zdeflate,1 -C16384 -E48bit,all-fragments", 1 << 17, true),
];

/// Text, with parts that do not shrink.
fn content() -> Vec<u8> {
    let mut random = Random(9);
    let mut content = words(5, SIZE);
    for at in (0..SIZE - 70_000).step_by(900_000) {
        let len = random.below(60_000) as usize;
        content[at..at + len].fill_with(|| random.next() as u8);
    }
    content
}

/// Changes of the file, by what they are.
fn changed(before: &[u8], how: &str) -> Vec<u8> {
    let half = SIZE / 2 + 77;
    match how {
        "a byte" => [&before[..half], &[!before[half]], &before[half + 1..]].concat(),
        "an append" => [before, b"and something at the end"].concat(),
        "a truncation" => before[..half].to_vec(),
        "an insertion" => [&before[..half], b"something", &before[half..]].concat(),
        "a removal" => [&before[..half], &before[half + 100..]].concat(),
        _ => [&before[half..], &before[..half]].concat(),
    }
}

const CHANGES: [&str; 6] = [
    "a byte",
    "an append",
    "a truncation",
    "an insertion",
    "a removal",
    "an exchange",
];

/// A workshop with such a file beside a small one.
fn shop(content: &[u8]) -> Workshop {
    let shop = Workshop::new();
    std::os::unix::fs::symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    fs::create_dir(shop.path("tree")).unwrap();
    fs::write(shop.path("tree/small"), "small").unwrap();
    fs::write(shop.path("tree/large"), content).unwrap();
    shop
}

/// Patches the image, and has judges look at it; tells by how much it has grown.
fn grown(shop: &Workshop, peers: Option<&Peers>, what: &str) -> u64 {
    fs::copy(shop.path("before"), shop.path("image")).unwrap();
    let len = || fs::metadata(shop.path("image")).unwrap().len();
    let before = len();
    shop.good("patch image --from tree --quiet");
    judge_image(shop, peers, "tree", what);
    shop.good("patch image --from tree --quiet"); // nothing is left to do
    len() - before
}

/// A change of a few bytes takes a few clusters and the index, in images of all forms and of both tools.
#[test]
fn what_did_not_change_stays() {
    let before = content();
    let peers = Peers::find();
    for form in FORMS {
        for theirs in [false, true] {
            let shop = shop(&before);
            if !make(
                &shop,
                peers.as_ref(),
                ("before", "tree"),
                form.options,
                theirs,
            ) {
                continue;
            }
            for change in CHANGES {
                let what = format!("{} {theirs} {change}", form.options);
                fs::write(shop.path("tree/large"), changed(&before, change)).unwrap();
                let grown = grown(&shop, peers.as_ref(), &what);
                let index = match form.encoded {
                    true => 0,
                    false => 8 * SIZE as u64 / 4096,
                };
                // Ends of segments are short, and may find no place of their own in the index of a file that was shifted.
                let ends = match change {
                    "an exchange" => 128 << 10,
                    _ => 24 << 10,
                };
                let most = 3 * form.cluster + index + ends;
                assert!(grown <= most, "{what}: {grown}, {most} at most");
            }
        }
    }
}

/// Without compression, a change takes its blocks, and what lies behind an insertion moves unless that is of whole blocks.
#[test]
fn blocks_that_did_not_change_stay() {
    let before = content();
    let peers = Peers::find();
    for options in [
        "",
        "-E^inline_data",
        "--chunksize=4096",
        "--chunksize=1048576",
        "-b1024",
    ] {
        let shop = shop(&before);
        assert!(make(
            &shop,
            peers.as_ref(),
            ("before", "tree"),
            options,
            false
        ));
        for change in ["a byte", "an append", "a truncation"] {
            fs::write(shop.path("tree/large"), changed(&before, change)).unwrap();
            let what = format!("{options} {change}");
            let grown = grown(&shop, peers.as_ref(), &what);
            assert!(grown <= 96 << 10, "{what}: {grown}");
        }
        let blocks = [&before[..4 << 20], &vec![7; 8192], &before[4 << 20..]].concat();
        fs::write(shop.path("tree/large"), blocks).unwrap();
        let grown = grown(&shop, peers.as_ref(), options);
        assert!(grown <= 96 << 10, "{options}: {grown}");
    }
}

/// Holes stay holes, and a file that was one has data now.
#[test]
fn holes_stay() {
    let shop = shop(b"");
    shop.good_script("truncate -s 64M tree/large; printf x | dd of=tree/large bs=1 seek=40M conv=notrunc 2>/dev/null");
    shop.good("mkfs before tree --quiet");
    // The directory has zeros in place of holes.
    shop.good_script("printf y | dd of=tree/large bs=1 seek=20M conv=notrunc 2>/dev/null; cat tree/large >l; cat l >tree/large");
    assert!(grown(&shop, None, "holes") <= 128 << 10);
}

/// A hole of a TiB in both forms of a file is not read, and what changes within it is seen.
#[test]
fn holes_in_both_forms_take_no_time() {
    let write = |at: &str, byte: &str| {
        format!("printf {byte} | dd of=tree/hole bs=1 seek={at} conv=notrunc 2>/dev/null")
    };
    for options in ["", "-znone", "-znone -E48bit --chunksize=1M"] {
        let shop = shop(b"large");
        shop.good_script(&format!("truncate -s 1T tree/hole; {}", write("5G", "x")));
        shop.good(&format!("mkfs image tree --quiet {options}"));
        shop.good_script("echo again >>tree/small");
        let told = shop.good("patch image --from tree");
        let counts = "0 added, 1 replaced, 0 edited";
        assert!(told.contains(counts), "{options}: {told}");
        shop.good_script(&write("700G", "y"));
        let told = shop.good("patch image --from tree --verbose");
        assert!(told.contains("M /hole\n"), "{options}: {told}");
        let len = fs::metadata(shop.path("image")).unwrap().len();
        assert!(len < 64 << 20, "{options}: {len}"); // of the last form, most is tables of chunks
        if !judge::has_kernel() {
            continue;
        }
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        let file = fs::File::open(mount.path().join("hole")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 40);
        for (gib, byte) in [(5, b'x'), (700, b'y'), (300, 0)] {
            let mut found = [1];
            file.read_exact_at(&mut found, gib << 30).unwrap();
            assert_eq!(found, [byte], "{options}: {gib}");
        }
    }
}

/// Files that change time and again: each patch goes on from what those before have left.
#[test]
fn a_file_may_change_many_times() {
    let peers = Peers::find();
    for options in [
        "-zlz4 -C4096",
        "-zlz4 -C65536 -Eall-fragments,dedupe",
        "-zzstd,1 -C65536 -E48bit",
        "-zlz4 -C16384 -Eztailpacking",
        "",
    ] {
        let mut random = Random(4);
        let mut content = words(8, 2 << 20);
        let shop = shop(&content);
        shop.good_script(&format!("./mkfs.erofs --quiet {options} image tree"));
        for round in 0..12 {
            for _ in 0..=random.below(4) {
                let at = random.below(content.len() as u64) as usize;
                let removed = random.length(60_000) as usize - 1;
                let end = (at + removed).min(content.len());
                let added = random.length(60_000) as usize - 1;
                let added: Vec<u8> = match random.below(3) {
                    0 => words(round, added),
                    1 => (0..added).map(|_| random.next() as u8).collect(),
                    _ => content[at.min(content.len() / 2)..][..added].to_vec(),
                };
                content.splice(at..end, added);
            }
            fs::write(shop.path("tree/large"), &content).unwrap();
            shop.good("patch image --from tree --quiet");
            let what = format!("{options}, round {round}");
            judge_image(&shop, None, "tree", &what);
        }
        judge_image(&shop, peers.as_ref(), "tree", options);
        shop.good("patch image --rollback 0 --quiet");
        let first = shop.run("cat image large");
        assert!(first.status == Some(0) && first.out.as_bytes() == words(8, 2 << 20));
    }
}
