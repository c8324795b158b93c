//! Small files that the daemon has ready before a reader of a tree asks for them.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use anteros_tests::judge;
use anteros_tests::trees::words;
use rustix::io::Errno;

use crate::{Workshop, wait_until};

const FILES: u64 = 150;

/// Two directories of files of all lengths up to 40,000 bytes.
fn shop() -> Option<Workshop> {
    if !judge::has_fuse() {
        return None;
    }
    let shop = Workshop::new();
    for n in 0..2 * FILES {
        let directory = shop.path(&format!("src/dir{}", n / FILES));
        fs::create_dir_all(&directory).unwrap();
        let content = words(n, n as usize * 7919 % 40_000);
        fs::write(directory.join(format!("file{n}")), content).unwrap();
    }
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mkfs --quiet image src");
    Some(shop)
}

fn number(shop: &Workshop, name: &str) -> u64 {
    let stat = shop.json("stat --json mnt");
    let value = stat[name].as_f64();
    value.unwrap_or_else(|| panic!("{name}: {stat}")) as u64
}

fn listed(directory: &Path) -> Vec<DirEntry> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap()).collect()
}

/// Reads all files as directories list them, and gives `see` the path of each below the root.
fn walk(mount: &Path, mut see: impl FnMut(usize, &Path, io::Result<Vec<u8>>)) {
    // The kernel has no inode of a file that is listed before somebody looked one up.
    fs::metadata(mount.join("dir0/file0")).unwrap();
    let directories = ["dir0", "dir1"].map(|name| mount.join(name));
    let files = directories.iter().flat_map(|path| listed(path));
    for (number, file) in files.enumerate() {
        let path = file.path();
        see(number, path.strip_prefix(mount).unwrap(), fs::read(&path));
    }
}

/// Walks through the mount, and compares it with the source. Waits for the daemon to go ahead, if that is to be seen.
fn compare(shop: &Workshop, goes_ahead: bool) -> u64 {
    let mut bytes = 0;
    walk(&shop.path("mnt"), |at, path, found| {
        let found = found.unwrap();
        bytes += found.len() as u64;
        assert!(
            found == fs::read(shop.path("src").join(path)).unwrap(),
            "{path:?}"
        );
        if goes_ahead && at == 10 {
            wait_until(|| number(shop, "neighbour_bytes_total") > 0);
        }
    });
    bytes
}

#[test]
fn a_reader_of_a_tree_asks_for_less_than_it_reads() {
    let Some(shop) = shop() else { return };
    for codec in ["-zlz4hc,9", "-zzstd,3", "-zlzma,1", "-znone"] {
        shop.good(&format!("mkfs --quiet {codec} image src"));
        shop.good("mount --fuse image mnt");
        let bytes = compare(&shop, true);
        let served = number(&shop, "served_bytes_total");
        assert!(served < bytes, "{codec}: {served} of {bytes}");
        shop.umount("mnt");
    }
}

#[test]
fn several_readers_of_a_tree_in_little_memory_read_the_same() {
    let Some(shop) = shop() else { return };
    shop.good("mount --fuse --memory 8M image mnt");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| compare(&shop, false));
        }
    });
    shop.umount("mnt");
}

#[test]
fn what_is_to_be_seen_asked_for_is_not_read_ahead() {
    let Some(shop) = shop() else { return };
    for option in ["--neighbours off", "--trace trace"] {
        shop.good(&format!("mount --fuse {option} image mnt"));
        let bytes = compare(&shop, false);
        assert_eq!(number(&shop, "served_bytes_total"), bytes, "{option}");
        assert_eq!(number(&shop, "neighbour_bytes_total"), 0, "{option}");
        shop.umount("mnt");
    }
}

#[test]
fn damage_shows_as_it_does_without_a_mount() {
    let Some(shop) = shop() else { return };
    let mut image = fs::read(shop.path("image")).unwrap();
    let third = image.len() / 3;
    image[third..2 * third]
        .iter_mut()
        .step_by(997)
        .for_each(|byte| *byte ^= 0x55);
    fs::write(shop.path("image"), image).unwrap();
    shop.good("mount --fuse image mnt");
    let mut broken = 0;
    walk(&shop.path("mnt"), |_, path, found| {
        let mut cat = shop.command(&format!("cat image {}", path.display()));
        let alone = cat.output().unwrap();
        assert_eq!(found.is_ok(), alone.status.success(), "{path:?}");
        match found {
            Ok(found) => assert!(found == alone.stdout, "{path:?}"),
            Err(error) => {
                broken += 1;
                assert_eq!(
                    error.raw_os_error(),
                    Some(Errno::IO.raw_os_error()),
                    "{path:?}"
                );
            }
        }
    });
    assert!(broken > 0 && broken < 2 * FILES, "{broken}");
    shop.umount("mnt");
}
