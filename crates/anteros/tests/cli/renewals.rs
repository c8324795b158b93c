//! Tests images that are built over older ones. Judges are the kernel, erofs-utils, `check` and `verify`; what stays is told by
//! comparing blocks.

use std::collections::HashSet;
use std::fs;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::{Random, words};

use crate::patches::{CHANGES, listed, shop};
use crate::{Workshop, run};

const BLOCK_BYTES: usize = 4096;

/// Options of images of all forms.
const FORMS: [&str; 9] = [
    "",
    "-zlz4",
    "-zlz4hc -C65536 -Eztailpacking",
    "-zlz4hc -C65536 -Efragments",
    "-zzstd -C32768 -Ededupe",
    "-zlz4 -C16384 -E48bit",
    "-zlz4 -Elegacy-compress",
    "-zdeflate -C8192 -b1024",
    "--chunksize=4096",
];

fn read(shop: &Workshop, name: &str) -> Vec<u8> {
    fs::read(shop.path(name)).unwrap()
}

/// Has all judges look at an image that is to be as a tree.
fn judge_image(shop: &Workshop, image: &str, tree: &str, what: &str) {
    shop.good(&format!("check --quiet {image}"));
    shop.good(&format!("verify {image} {tree}"));
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path(image), &[]).unwrap();
        assert!(listed(mount.path()) == listed(&shop.path(tree)), "{what}");
    }
    if let Some(peers) = Peers::find() {
        let mut fsck = peers.command("fsck.erofs");
        let told = run(fsck.arg("--extract").arg(shop.path(image)));
        assert_eq!(told.status, Some(0), "{what}: {told:?}");
    }
}

/// Blocks of an image that another one does not have at the same place, and that are not empty.
fn differing(old: &[u8], new: &[u8]) -> usize {
    let mut before = old.chunks(BLOCK_BYTES);
    let blocks = new.chunks(BLOCK_BYTES);
    let is_full = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    let moved = blocks.filter(|block| before.next() != Some(block));
    moved.filter(is_full).count()
}

/// Images of all forms, one after the other, each in the room of the one before.
#[test]
fn a_tree_is_built_over_an_older_image() {
    for options in FORMS {
        let shop = shop();
        // What is gone is little beside what stays.
        shop.good_script("cat text text text text text text text text >base/much; cp -a base/much tree; touch -r base/much tree/much");
        shop.good(&format!("mkfs old {options} base --quiet"));
        shop.good("mkfs same --base old base --quiet");
        judge_image(&shop, "same", "base", options);
        let (old, same) = (read(&shop, "old"), read(&shop, "same"));
        // The superblock has another UUID.
        assert!(
            differing(&old, &same) <= 1 && old.len() == same.len(),
            "{options}"
        );
        shop.good_script(CHANGES);
        shop.good("mkfs new --base old tree --quiet");
        judge_image(&shop, "new", "tree", options);
        assert!(read(&shop, "old") == old, "{options}");
        shop.good("mkfs again --base old tree --quiet --workers 1 --memory 1M");
        assert!(read(&shop, "again") == read(&shop, "new"), "{options}");
        // Of some forms, more of it would be empty than may be.
        let told = shop.run("mkfs back --base new base --quiet");
        assert_eq!(told.status, Some(0), "{told:?}");
        judge_image(&shop, "back", "base", options);
    }
}

/// A file in the middle that grows, and one that is gone: all others stay where they are.
#[test]
fn what_is_as_it_was_lies_where_it_did() {
    for options in ["-zlz4 -C16384", "-zlz4 -C16384 -E48bit", "-znone"] {
        let shop = Workshop::new();
        fs::create_dir_all(shop.path("tree/d")).unwrap();
        for number in 0..60 {
            let content = words(number, 40_000 + 3000 * number as usize);
            fs::write(shop.path(&format!("tree/d/{number}")), content).unwrap();
        }
        shop.good(&format!("mkfs old {options} tree --quiet"));
        let text = words(99, 130_000);
        fs::write(shop.path("tree/d/20"), text).unwrap();
        fs::write(shop.path("tree/d/21"), "little").unwrap();
        fs::remove_file(shop.path("tree/d/5")).unwrap();
        fs::write(shop.path("tree/new"), words(98, 30_000)).unwrap();
        shop.good("mkfs new --base old tree --quiet");
        judge_image(&shop, "new", "tree", options);
        shop.good(&format!("mkfs plain {options} tree --quiet"));
        let [old, new, plain] = ["old", "new", "plain"].map(|name| read(&shop, name));
        let known: HashSet<&[u8]> = old.chunks(BLOCK_BYTES).collect();
        let added = plain
            .chunks(BLOCK_BYTES)
            .filter(|block| !known.contains(block));
        // What is new, and some blocks of metadata.
        let (moved, added) = (differing(&old, &new), added.count());
        assert!(
            moved <= added + 4,
            "{options}: {moved} blocks, {added} are new"
        );
        assert!(
            new.len() * 100 <= plain.len() * 103,
            "{options}: {}",
            new.len()
        );
    }
}

/// Trees that change again and again: no image gets much larger than one that is built anew.
#[test]
fn images_over_images_do_not_grow() {
    let shop = Workshop::new();
    fs::create_dir_all(shop.path("tree/d")).unwrap();
    let mut random = Random(7);
    let mut write = |round: u64, name: u64| {
        let content = words(1000 * round + name, 100 + random.below(120_000) as usize);
        fs::write(shop.path(&format!("tree/d/{name}")), content).unwrap();
    };
    (0..80).for_each(|name| write(0, name));
    shop.good("mkfs image tree --quiet -zlz4hc -C65536");
    let mut anew = 0;
    for round in 1..=4 {
        (0..5).for_each(|n| write(round, (round * 31 + n * 7) % 90));
        let _ = fs::remove_file(shop.path(&format!("tree/d/{}", round * 3)));
        let told = shop.run("mkfs next --base image tree --quiet");
        assert_eq!(told.status, Some(0), "{told:?}");
        anew += usize::from(told.err.contains("is built anew"));
        judge_image(&shop, "next", "tree", "lz4hc");
        shop.good("mkfs plain tree --quiet -zlz4hc -C65536");
        let [next, plain] = ["next", "plain"].map(|name| read(&shop, name).len());
        assert!(
            next * 100 <= plain * 104,
            "round {round}: {next} and {plain} bytes"
        );
        fs::rename(shop.path("next"), shop.path("image")).unwrap();
    }
    assert!(anew < 3, "{anew} of 4 images were built anew");
}

/// An image most of which is gone is built anew, and that is told.
#[test]
fn an_image_that_would_be_empty_is_built_anew() {
    let shop = shop();
    shop.good_script("head -c 300000 /dev/urandom >base/d/noise");
    shop.good("mkfs old base --quiet -zlz4");
    let told = shop.run("mkfs new --base old tree --quiet");
    assert_eq!(told.status, Some(0), "{told:?}");
    assert!(
        told.err.contains("would be empty; the image is built anew"),
        "{told:?}"
    );
    judge_image(&shop, "new", "tree", "anew");
    shop.good("mkfs plain tree --quiet -zlz4 -C4096");
    let [new, plain] = ["new", "plain"].map(|name| read(&shop, name).len());
    assert!(new <= plain + BLOCK_BYTES, "{new} and {plain} bytes");
}

/// Forms that cannot be kept, and options that would change the form, are refused by name; nothing is written.
#[test]
fn what_cannot_be_a_base_is_refused() {
    let shop = shop();
    shop.good("mkfs metabox base --quiet -m4096");
    let told = shop.bad(4, "mkfs new --base metabox tree");
    assert!(told.contains("compressed metadata is no base"), "{told}");
    shop.good("mkfs old base --quiet");
    for (options, said) in [
        ("--small", "a preset cannot be with --base"),
        ("-E48bit", "-E cannot be with --base"),
        ("-b1024", "--block-size cannot be with --base"),
        ("-zlzma", "says nothing of that compression"),
    ] {
        let told = shop.bad(2, &format!("mkfs new --base old tree {options}"));
        assert!(told.contains(said), "{options}: {told}");
    }
    let told = shop.bad(2, "mkfs - --base old tree");
    assert!(told.contains("the image is a file"), "{told}");
    assert!(!shop.path("new").exists());
}

/// A base of which a byte was changed is refused, or what comes of it is the tree.
/// A file whose inode counts more names than there are: its count is set right, even if nothing else changes.
#[test]
fn a_wrong_count_of_names_does_not_stay() {
    // Bytes of an inode at which the count lies: a compact and an extended one.
    for (options, count) in [("-Eforce-inode-compact", 6), ("-Eforce-inode-extended", 44)] {
        let shop = shop();
        shop.good(&format!("mkfs old base --quiet -Enosbcrc {options}"));
        let dump = shop.json("dump old --json --path /text");
        let superblock = shop.json("dump old --json")["superblock"].clone();
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let meta = number(&superblock["meta_block"]) * number(&superblock["block_bytes"]);
        let mut image = read(&shop, "old");
        image[meta + number(&dump["inode"]["nid"]) * 32 + count] ^= 64;
        fs::write(shop.path("old"), &image).unwrap();
        let told = shop.run("check old");
        assert!(
            told.out
                .contains("the link count is 66, but the number of names 2"),
            "{options}: {told:?}"
        );
        shop.good("mkfs new --base old base --quiet");
        judge_image(&shop, "new", "base", options);
        shop.good("patch old --from base --quiet");
        judge_image(&shop, "old", "base", options);
    }
}

#[test]
fn a_hostile_base_is_refused_or_makes_the_tree() {
    let shop = shop();
    shop.good_script("cat text text text text >base/much; cp -a base/much tree");
    shop.good_script(CHANGES);
    shop.good("mkfs old base --quiet -zlz4 -C16384 -Enosbcrc");
    let good = read(&shop, "old");
    let mut random = Random(11);
    let (mut refused, mut made) = (0, 0);
    for number in 0..150 {
        let mut image = good.clone();
        for _ in 0..1 + random.below(3) {
            // Metadata lies at the end, and the superblock at the front.
            let at = match random.below(3) {
                0 => 1024 + random.below(128) as usize,
                _ => image.len() - 1 - random.below(16_000) as usize,
            };
            image[at] ^= 1 << random.below(8);
        }
        fs::write(shop.path("hostile"), &image).unwrap();
        let told = shop.run("mkfs new --base hostile tree --quiet");
        match told.status {
            Some(0) => {
                shop.good("check --quiet new");
                shop.good("verify new tree");
                made += 1;
            }
            Some(1..=4) if !told.err.contains("panicked") => refused += 1,
            _ => panic!("{number}: {told:?}"),
        }
    }
    assert!(refused > 20 && made > 5, "{refused} refused, {made} made");
}
