//! Content of the packed inode that the kernel keeps for the daemon, which gets it back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anteros_tests::judge;
use anteros_tests::trees::{Random, words};

use crate::{Workshop, wait_until, wait_until_served};

/// Files of a few pages each, 12 MiB in all, in an image with clusters of a MiB.
fn shop() -> Option<Workshop> {
    if !judge::has_fuse() {
        return None;
    }
    let shop = Workshop::new();
    for n in 0..400 {
        fs::write(shop.path(&format!("src/text{n}")), words(n, 30_000)).unwrap();
    }
    fs::create_dir(shop.path("mnt")).unwrap();
    // LZMA takes so long to decode that no extent is decoded anew because there is room for all of it.
    shop.good("mkfs --quiet -zlzma,1 -C1M -Eall-fragments image src");
    Some(shop)
}

fn number(shop: &Workshop, name: &str) -> u64 {
    let stat = shop.json("stat --json mnt");
    let value = stat[name].as_f64();
    value.unwrap_or_else(|| panic!("{name}: {stat}")) as u64
}

/// Reads parts of files at random, which the kernel is not to read ahead of, and compares them.
fn read(mount: &Path, source: &Path, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..150 {
        let name = format!("text{}", random.below(400));
        let expected = fs::read(source.join(&name)).unwrap();
        let file = File::open(mount.join(&name)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let offset = random.below(expected.len() as u64);
        let len = (1 + random.below(9000)).min(expected.len() as u64 - offset);
        let mut found = vec![0; len as usize];
        file.read_exact_at(&mut found, offset).unwrap();
        assert!(
            found == expected[offset as usize..][..len as usize],
            "{name}"
        );
    }
}

/// Reads by several threads at the same time.
fn read_by_all(shop: &Workshop, seeds: std::ops::Range<u64>) {
    let (mount, source) = (&shop.path("mnt"), &shop.path("src"));
    std::thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || read(mount, source, seed));
        }
    });
}

#[test]
fn what_one_reader_had_decoded_comes_back_for_the_others() {
    let Some(shop) = shop() else { return };
    shop.good("mount --fuse --memory 16M image mnt");
    read_by_all(&shop, 0..4);
    let (retrieved, decoded) = (
        number(&shop, "retrieved_total"),
        number(&shop, "decoded_bytes_total"),
    );
    // What the kernel gives back comes from /dev/fuse alone.
    if number(&shop, "over_io_uring") == 1 {
        assert_eq!(retrieved, 0);
        return shop.umount("mnt");
    }
    // Each read alone would have MiB decoded. On a busy machine some of that is dropped on its way to the kernel.
    assert!(retrieved > 50, "{retrieved} back, {decoded} bytes decoded");
    assert!(
        decoded < 20 * 12_000_000,
        "{retrieved} back, {decoded} bytes decoded"
    );
    let names = fs::read_dir(shop.path("mnt")).unwrap();
    let hidden = names.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.as_encoded_bytes().starts_with(b".packed")
    });
    assert_eq!(hidden.count(), 0);
    shop.umount("mnt");
}

/// A worker that waits for what comes back needs another one, which receives it.
#[test]
fn a_lone_worker_decodes_by_itself() {
    let Some(shop) = shop() else { return };
    shop.good("mount --fuse --workers 1 image mnt");
    read_by_all(&shop, 0..2);
    assert_eq!(number(&shop, "retrieved_total"), 0);
    shop.umount("mnt");
}

#[test]
fn a_daemon_ends_while_readers_wait() {
    let Some(shop) = shop() else { return };
    for seed in 0..3 {
        let mut daemon = shop.command("mount --fuse --foreground --workers 2 image mnt");
        let mut daemon = daemon.spawn().unwrap();
        wait_until_served(&shop.path("mnt"));
        let (mount, source) = (shop.path("mnt"), shop.path("src"));
        let reader = std::thread::spawn(move || {
            // It ends in the middle, with an error.
            let _ = std::panic::catch_unwind(|| read(&mount, &source, seed));
        });
        wait_until(|| number(&shop, "served_bytes_total") > 100_000);
        shop.good_script("umount -l mnt");
        reader.join().unwrap();
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
    }
}
