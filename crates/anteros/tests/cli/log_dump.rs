//! Values, not text, in what `log dump --json` tells scripts.

use std::fs;
use std::sync::Arc;

use anteros_core::MemoryDevice;
use anteros_log::{Log, Options, system_clock};
use serde_json::Value;

use crate::Workshop;
use crate::log::{mount, shop, unmount};
use crate::unreadable_log::noise;
use anteros_tests::judge;

fn dumped(shop: &Workshop, arguments: &str) -> Value {
    shop.json(&format!("log dump --json log {arguments}"))
}

#[test]
fn what_a_log_says_about_itself_are_values() {
    let shop = shop("64M");
    let told = dumped(&shop, "");
    let superblock = &told["superblock"];
    assert_eq!(superblock["blocks"], 64 << 8, "{told}");
    let generation = superblock["generation"].as_u64();
    let copies = told["superblocks"].as_array().unwrap();
    assert_eq!(copies.len(), 2, "{told}");
    assert!(
        copies
            .iter()
            .any(|copy| copy["counts"] == true && copy["generation"].as_u64() == generation)
    );
    let checkpoint = &told["checkpoint"];
    assert_eq!(checkpoint["clean"], true, "{told}");
    assert!(checkpoint["time"]["seconds"].is_i64() && checkpoint["valid_blocks"].is_u64());
    let heads = checkpoint["heads"].as_array().unwrap();
    let is_head = |head: &Value| {
        head["segment"].is_u64() && head["next"].is_u64() && head["kind"].is_string()
    };
    assert!(!heads.is_empty() && heads.iter().all(is_head), "{told}");
    let packs = told["packs"].as_array().unwrap();
    assert_eq!(
        packs.iter().filter(|pack| pack["counts"] == true).count(),
        1
    );
    assert_eq!(told["recovery"]["mountable"], true, "{told}");
    assert_eq!(told["recovery"]["groups_to_replay"], 0, "{told}");

    let root = &dumped(&shop, "--path /")["inode"];
    assert_eq!(root["kind"], "directory", "{root}");
    assert_eq!(root["mode"], 0o755, "{root}");
    assert_eq!(root["names"], 0, "{root}");
}

/// Shows what a log keeps for itself, which nothing else does.
#[test]
fn the_record_that_a_log_keeps_for_itself_is_told_and_checked() {
    let shop = shop("64M");
    assert_eq!(dumped(&shop, "")["checkpoint"]["record_inode"], 0);
    let device = Arc::new(MemoryDevice::new(fs::read(shop.path("log")).unwrap()));
    let log = Log::open(device.clone(), Options::new(system_clock)).unwrap();
    log.keep_record(b"record").unwrap();
    log.close().unwrap();
    fs::write(shop.path("log"), device.to_vec()).unwrap();
    let told = dumped(&shop, "");
    assert_eq!(told["superblock"]["ro_compat"], 1, "{told}");
    let ino = told["checkpoint"]["record_inode"].as_u64().unwrap();
    let inode = &dumped(&shop, &format!("--inode {ino}"))["inode"];
    assert_eq!((&inode["own"], &inode["size"]), (&true.into(), &6.into()));
    let text = shop.good(&format!("log dump log --inode {ino}"));
    assert!(text.contains("the log's own"), "{text}");
    let text = shop.good("log dump log");
    assert!(text.contains(&format!("inode {ino}")), "{text}");
    let text = shop.good("log check log");
    assert!(text.contains("clean"), "{text}");
}

#[test]
fn of_inodes_and_blocks_all_are_values() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "");
    fs::write(shop.path("mnt/file"), noise(7, 5 * 4096)).unwrap();
    unmount(&shop, daemon);
    let told = dumped(&shop, "--path file --block 0 --groups");
    assert_eq!(told["groups"], Value::Array(Vec::new()), "{told}");
    assert_eq!(told["block"]["area"], "superblock", "{told}");
    let inode = &told["inode"];
    assert_eq!(inode["size"], 5 * 4096, "{inode}");
    let runs = inode["content"].as_array().unwrap();
    let blocks: u64 = runs.iter().map(|run| run["count"].as_u64().unwrap()).sum();
    assert_eq!(blocks, 5, "{inode}");
    let (ino, run) = (&inode["ino"], &runs[0]);
    assert_eq!((&run["kind"], &run["lblk"]), (&"plain".into(), &0.into()));

    let block = &dumped(&shop, &format!("--block {}", run["block"]))["block"];
    assert_eq!(block["area"], "main", "{block}");
    assert_eq!(block["valid"], true, "{block}");
    assert_eq!(&block["owner"]["ino"], ino, "{block}");
    assert_eq!(block["owner"]["agrees"], true, "{block}");
    let node = &inode["nodes"][0];
    assert_eq!((&node["nid"], &node["kind"]), (ino, &"inode".into()));
    let block = &dumped(&shop, &format!("--block {}", node["block"]))["block"];
    assert_eq!(block["content"]["kind"], "packed", "{block}");
    let slot = &block["content"]["slots"][node["slot"].as_u64().unwrap() as usize];
    assert_eq!((&slot["kind"], &slot["ino"]), (&"node".into(), ino));
}

/// A group behind the checkpoint, record by record.
#[test]
fn records_are_values() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "");
    let file = fs::File::create(shop.path("mnt/file")).unwrap();
    std::io::Write::write_all(&mut &file, &[7; 3 * 4096]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    crate::log::kill_daemon(&shop, daemon);
    let told = dumped(&shop, "--groups");
    let groups = told["groups"].as_array().unwrap();
    assert!(!groups.is_empty(), "{told}");
    assert_eq!(told["recovery"]["groups_to_replay"], groups.len(), "{told}");
    let records = groups
        .iter()
        .flat_map(|group| group["records"].as_array().unwrap());
    let records: Vec<_> = records.collect();
    let found = |name: &str| records.iter().find(|record| record["record"] == name);
    let added = found("name added").unwrap();
    assert_eq!(added["name"], "file", "{told}");
    let map = found("map").unwrap();
    assert_eq!((&map["ino"], &map["count"]), (&added["ino"], &3.into()));
    assert!(map["place"]["block"].is_u64(), "{told}");
}
