//! Tests images of more hard links than memory has notes of.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::{Workshop, run};

/// More than are kept in memory.
const FILES: u64 = 4500;

#[test]
fn hard_links_beyond_those_in_memory_are_extracted_and_archived() {
    let shop = Workshop::new();
    let (first, second) = (shop.path("tree/a"), shop.path("tree/b"));
    fs::create_dir_all(&first).unwrap();
    fs::create_dir_all(&second).unwrap();
    for n in 0..FILES {
        fs::write(first.join(n.to_string()), "").unwrap();
        fs::hard_link(first.join(n.to_string()), second.join(n.to_string())).unwrap();
    }
    shop.good("mkfs image tree");
    shop.good("extract image out");
    let inode = |path: &str, n: u64| {
        let found = fs::metadata(shop.path(path).join(n.to_string())).unwrap();
        (found.ino(), found.nlink())
    };
    for n in 0..FILES {
        let found = inode("out/a", n);
        assert_eq!((found.1, found), (2, inode("out/b", n)));
    }
    shop.good("tar image -o archive");
    let mut list = Command::new("tar");
    list.arg("--list").arg("--verbose").arg("--file");
    let listed = run(list.arg(shop.path("archive"))).out;
    for n in 0..FILES {
        let link = format!(" b/{n} link to a/{n}\n");
        assert!(listed.contains(&link), "{n}");
    }
    let told = shop.good("dump --statistics --json image");
    assert!(told.contains("\"hard_links\": 4500"), "{told}");
}
