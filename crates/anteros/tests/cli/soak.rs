//! A daemon under all kinds of readers: right bytes, within its memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;

use anteros_tests::trees::{Random, Tree};
use anteros_tests::{judge, large};
use rustix::fs::Advice;

use crate::{Signal, Workshop, kill, wait_until, wait_until_served};

/// States what the daemon may take, in bytes.
const MEMORY: u64 = 32 << 20;

/// States what a process takes besides that for its threads and for answers under way.
const SLACK: u64 = 4 << 20;

const READS: usize = 150;

/// Tells how a reader goes through a file.
#[derive(Clone, Copy, Debug)]
enum Way {
    InOrder,
    AtRandom,
    InStrides,
}

fn soak(image: &[u8], tree: &Tree, options: &str) {
    let shop = Workshop::new();
    fs::write(shop.path("image"), image).unwrap();
    fs::create_dir(shop.path("mnt")).unwrap();
    let arguments = format!("mount --fuse --foreground --memory {MEMORY} {options} image mnt");
    let mut daemon = shop.command(&arguments).spawn().unwrap();
    wait_until(|| shop.path("mnt/text").exists());
    let before = heap_bytes(&daemon);
    std::thread::scope(|scope| {
        for (seed, way) in (0..).zip([Way::InOrder, Way::AtRandom, Way::InStrides, Way::AtRandom]) {
            let mount = shop.path("mnt");
            scope.spawn(move || read(&mount, tree.path(), way, seed));
        }
    });
    let peak = heap_bytes(&daemon);
    kill(&daemon, Signal::TERM);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{options}");
    assert!(
        peak <= MEMORY + SLACK,
        "{options}: {before} bytes before, {peak} after"
    );
}

/// The most that the process ever had in memory, but for the pages of its program, which are those of a file.
pub fn heap_bytes(daemon: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let kilobytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    (kilobytes("VmHWM:") - kilobytes("RssFile:")) * 1024
}

fn read(mount: &Path, source: &Path, way: Way, seed: u64) {
    let mut random = Random(seed);
    let mut at = 0;
    for name in ["text", "mixed", "repeated"].iter().cycle().take(6) {
        let expected = fs::read(source.join(name)).unwrap();
        let file = File::open(mount.join(name)).unwrap();
        let len = expected.len() as u64;
        for _ in 0..READS / 6 {
            let (offset, count) = match way {
                Way::InOrder => (at % len, 64 << 10),
                Way::InStrides => (3 * at % len, 4096),
                Way::AtRandom => (random.below(len), random.length(200 << 10)),
            };
            at += 64 << 10;
            let count = count.min(len - offset);
            let mut found = vec![0; count as usize];
            file.read_exact_at(&mut found, offset).unwrap();
            let same = found == expected[offset as usize..][..found.len()];
            assert!(same, "{way:?}: {name}: {count} bytes at {offset}");
            // So that the next reader comes to the daemon again.
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}

#[test]
fn readers_of_all_kinds() {
    if !judge::has_fuse() {
        return;
    }
    let tree = large::tree();
    soak(&large::ours(tree.path(), 4096), &tree, "--workers 4");
    soak(
        &large::ours(tree.path(), 1 << 20),
        &tree,
        "--workers 4 --neighbours all",
    );
    for codec in large::THEIR_CODECS {
        if let Some(image) = large::theirs(tree.path(), codec, 1 << 20) {
            soak(&image, &tree, "--workers 4");
        }
    }
}

/// The index of a file costs memory for what is read of it, whatever its length (EROFS paper, §4.3).
#[test]
fn a_huge_sparse_file_takes_no_memory() {
    const HUGE: u64 = 1 << 40;
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    let source = File::create(shop.path("src/huge")).unwrap();
    source.set_len(HUGE).unwrap();
    source.write_all_at(b"the end", HUGE - 7).unwrap();
    shop.good("mkfs image src");
    let mut daemon = shop
        .command("mount --fuse --foreground image mnt")
        .spawn()
        .unwrap();
    wait_until_served(&shop.path("mnt"));
    let file = File::open(shop.path("mnt/huge")).unwrap();
    let mut piece = vec![1; 1 << 20];
    for offset in (0..HUGE).step_by(1 << 34) {
        file.read_exact_at(&mut piece, offset).unwrap();
        assert!(piece.iter().all(|&byte| byte == 0), "at {offset}");
    }
    file.read_exact_at(&mut piece[..7], HUGE - 7).unwrap();
    assert_eq!(&piece[..7], b"the end");
    let peak = heap_bytes(&daemon);
    drop(file);
    wait_until(|| shop.run("umount mnt").status == Some(0));
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(peak < 8 << 20, "{peak} bytes");
}
