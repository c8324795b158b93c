//! Tests what holds when nothing else is asked for, and when it is asked for more than once.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use anteros_tests::judge;

use crate::{Workshop, run, same};

#[test]
fn files_are_compressed_unless_told_otherwise() {
    let shop = Workshop::new();
    let told = shop.json("mkfs default src --json");
    assert_eq!(told["compressed_files"], 1, "{told}");
    shop.good("mkfs named src -zlz4hc,9 -C65536");
    assert!(same(&shop.path("default"), &shop.path("named")));
    let told = shop.json("mkfs plain src -znone --json");
    assert_eq!(told["compressed_files"], 0, "{told}");
    let size = |name: &str| fs::metadata(shop.path(name)).unwrap().len();
    assert!(size("default") < size("plain"));
    // Chunks are uncompressed.
    let told = shop.json("mkfs chunks src --chunksize 4096 --json");
    assert_eq!(
        (&told["compressed_files"], &told["chunked_files"]),
        (&0.into(), &1.into())
    );
    let help = shop.good("mkfs --help");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["lz4hc in clusters of 64K", "-znone leaves them as they are"] {
        assert!(help.contains(words), "{help}");
    }
}

#[test]
fn equal_parts_are_shared_with_fragments_unless_told_otherwise() {
    let shop = Workshop::new();
    let mut state = 1u32;
    let mut noise = |len: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(next).collect()
    };
    let mut content = noise(100_000);
    fs::write(shop.path("src/one"), &content).unwrap();
    content[99_000..].copy_from_slice(&noise(1000));
    fs::write(shop.path("src/other"), &content).unwrap();
    let size = |options: &str| {
        shop.good(&format!("mkfs image src -zlz4hc -C4K {options} --verify"));
        fs::metadata(shop.path("image")).unwrap().len()
    };
    let shared = size("-Efragments");
    assert_eq!(shared, size("-Efragments,dedupe"));
    assert!(shared + 80_000 < size("-Efragments,^dedupe"));
    assert!(shared + 80_000 < size("-Eztailpacking"));
}

#[test]
fn a_dump_names_no_algorithm_where_nothing_is_compressed() {
    let shop = Workshop::new();
    shop.good("mkfs plain src -znone");
    shop.good("mkfs compressed src");
    let row = |image: &str| {
        let dump = shop.good(&format!("dump {image}"));
        let mut rows = dump
            .lines()
            .filter_map(|line| line.strip_prefix("algorithms"));
        rows.next().unwrap().trim().to_owned()
    };
    assert_eq!(
        (row("plain").as_str(), row("compressed").as_str()),
        ("none", "lz4")
    );
}

#[test]
fn an_empty_tree_is_no_percentage_of_anything() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("empty")).unwrap();
    let told = shop.good("mkfs image empty");
    let first = told.lines().next().unwrap();
    assert!(
        first.starts_with("image: ") && !first.contains('%'),
        "{told}"
    );
    fs::write(shop.path("empty/little"), "x").unwrap();
    let told = shop.good("mkfs image empty");
    assert!(
        told.contains(" of 1 B, in") && !told.contains('%'),
        "{told}"
    );
    assert!(shop.good("mkfs image src").contains(" % of "));
}

#[test]
fn of_a_repeated_option_the_last_one_counts() {
    let shop = Workshop::new();
    shop.good(
        "mkfs twice src --quiet -znone -zlz4 -C8192 -C4096 -T0 -T5 -La -L b --all-root --all-root",
    );
    shop.good("mkfs once src --quiet -zlz4 -C4096 -T5 -L b --all-root");
    assert!(same(&shop.path("once"), &shop.path("twice")));
    assert_eq!(
        shop.good("ls --memory 1M --memory 2M once --json --json"),
        shop.good("ls once --json")
    );
    shop.good("extract once out --workers 1 --workers 2 --quiet --quiet");
    shop.good("log mkfs log --size 1M --size 64M --label a --label b");
    assert_eq!(fs::metadata(shop.path("log")).unwrap().len(), 64 << 20);
    // Each of these counts.
    shop.good("mkfs without src --exclude-path sub --exclude-path symlink --quiet");
    assert_eq!(shop.good("ls without"), "hello\n");
}

#[test]
fn a_new_image_has_the_owner_and_the_permissions_of_the_old_one() {
    let shop = Workshop::new();
    let image = shop.path("image");
    shop.good("mkfs image src --quiet");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o6640)).unwrap();
    let is_root = judge::is_root();
    if is_root {
        chown(&image, Some(1234), Some(5678)).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o6640)).unwrap();
    }
    fs::hard_link(&image, shop.path("further")).unwrap();
    let before = fs::metadata(&image).unwrap();
    shop.good("mkfs image src --quiet -T1");
    let after = fs::metadata(&image).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o640);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    // Whoever reads the old image goes on to.
    assert!(after.ino() != before.ino());
    assert!(!same(&image, &shop.path("further")));
}

/// Scripts that have several names for an image find the new one by all of them, as with erofs-utils.
#[test]
fn an_image_that_has_several_names_keeps_them_under_the_name_of_the_peer() {
    let shop = Workshop::new();
    let (image, further) = (shop.path("image"), shop.path("further"));
    fs::hard_link(&shop.program, shop.path("mkfs.erofs")).unwrap();
    let mkfs = |arguments: &str| {
        let mut mkfs = Command::new(shop.path("mkfs.erofs"));
        mkfs.args(arguments.split(' ')).current_dir(shop.path(""));
        run(&mut mkfs)
    };
    shop.good("mkfs image src --quiet --small");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o6640)).unwrap();
    fs::hard_link(&image, &further).unwrap();
    let before = fs::metadata(&image).unwrap();
    let made = mkfs("--quiet -T1 -Uclear image src");
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
    let after = fs::metadata(&further).unwrap();
    assert_eq!((after.ino(), after.nlink()), (before.ino(), 2));
    assert_eq!(after.mode() & 0o777, 0o640);
    shop.good("mkfs alone src --quiet -znone -T1 -Uclear");
    assert!(same(&further, &shop.path("alone")));
    // What is no image, or is to be read as well, is left alone.
    let refused = mkfs("--quiet --clean=data image further");
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("overwritten while it is read"),
        "{refused:?}"
    );
    assert!(same(&further, &shop.path("alone")));
}

#[test]
fn a_verdict_is_part_of_the_report_for_scripts() {
    let shop = Workshop::new();
    let told = shop.json("mkfs image src --verify --json");
    assert_eq!(told["verify"]["equal"], true, "{told}");
    assert_eq!(told["verify"]["names"], 6, "{told}");
    let told = shop.json("mkfs image src --json");
    assert!(told.get("verify").is_none(), "{told}");
}
