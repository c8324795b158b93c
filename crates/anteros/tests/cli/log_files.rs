//! Ordinary files in a log, which are compressed as they are written.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};

use anteros_tests::judge;

use crate::Workshop;
use crate::log::{kill_daemon, mount, mounted, shop, unmount};

/// Shrinks to a third.
fn text(seed: u32, lines: u32) -> Vec<u8> {
    let line = |number: u32| {
        let number = number.wrapping_mul(2_654_435_761).wrapping_add(seed);
        format!("{number:08x} all work and no play\n")
    };
    (0..lines).map(line).collect::<String>().into_bytes()
}

fn used(shop: &Workshop) -> u64 {
    let space = rustix::fs::statvfs(shop.path("mnt")).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

#[test]
fn what_is_synced_is_small_and_there_after_a_crash() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let content = text(1, 40_000);
    let before = used(&shop);
    let mut file = File::create(shop.path("mnt/notes")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    let taken = used(&shop) - before;
    assert!(
        taken < content.len() as u64 / 2,
        "{taken} bytes for {}",
        content.len()
    );
    drop(file);
    kill_daemon(&shop, daemon);
    let daemon = mount(&shop, "");
    assert!(fs::read(shop.path("mnt/notes")).unwrap() == content);
    unmount(&shop, daemon);
    let checked = shop.good("log check --data log");
    assert!(checked.contains("; 0 faults"), "{checked}");
}

/// In little memory, and with files that come and go while others are compressed.
#[test]
fn a_full_log_holds_all_that_was_accepted() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("48M");
    let daemon = mount(&shop, "--memory 4M");
    let mut kept = Vec::new();
    for number in 0_u32.. {
        let path = shop.path(&format!("mnt/{number}"));
        let content = text(number, 1000 + number * 37 % 30_000);
        match fs::write(&path, &content).and_then(|()| File::open(&path)?.sync_all()) {
            Ok(()) if number % 3 == 0 => fs::remove_file(&path).unwrap(),
            Ok(()) => kept.push((path, content)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                // It may not even have been made.
                let _ = fs::remove_file(&path);
                break;
            }
        }
    }
    let bytes: usize = kept.iter().map(|(_, content)| content.len()).sum();
    assert!(bytes > 48 << 20, "{bytes} bytes in 48 MiB");
    let holds = || {
        for (path, content) in &kept {
            assert!(fs::read(path).unwrap() == *content, "{}", path.display());
        }
    };
    holds();
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    holds();
    unmount(&shop, daemon);
    let checked = shop.good("log check --data log");
    assert!(checked.contains("; 0 faults"), "{checked}");
}
