//! Tests what images ask of Linux: what `mkfs` and `dump` tell, and `mkfs --for`.

use std::fs;
use std::process::Command;

use anteros_format::linux::Version;
use anteros_tests::judge;
use anteros_tests::trees::words;
use serde_json::Value;

use crate::{Workshop, run, same};

/// A workshop whose source has some files that are like each other, and equal ones.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for n in 0..60 {
        fs::write(shop.path(&format!("src/words {n}")), words(n % 50, 9000)).unwrap();
    }
    shop
}

#[track_caller]
fn linux(shop: &Workshop, command: &str) -> Value {
    let told = shop.json(command);
    match told.get("superblock") {
        Some(superblock) => superblock["linux"].clone(),
        None => told["linux"].clone(),
    }
}

/// The version of this machine.
fn running() -> Version {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    release.trim().parse().unwrap()
}

/// Settings of `mkfs`, the oldest Linux that mounts what they make of [`shop`]'s source, and about what its decoders take.
const SETTINGS: [(&str, &str, u64); 16] = [
    ("-znone", "5.4", 0),
    ("-zlz4 -C4K", "5.4", 4 << 10),
    ("", "5.13", 64 << 10),
    ("-zlz4 -C1M", "5.13", 1 << 20),
    ("-znone --chunksize=4K", "5.15", 0),
    ("-zlzma -C16K", "5.16", 64 << 10),
    ("-zlz4 -C4K -Eztailpacking", "5.17", 4 << 10),
    ("--small", "6.1", 4 << 20),
    ("-znone -b512", "6.4", 0),
    ("-zdeflate", "6.6", 45 << 10),
    ("-zlz4 -C4K -b1K", "6.8", 4 << 10),
    ("-zzstd,dictsize=128K", "6.10", 600 << 10),
    ("-znone -E48bit", "6.15", 0),
    ("-znone -Edot-omitted", "6.15", 0),
    ("-zlz4 -C4K -m8K", "6.17", 8 << 10),
    ("-znone -m4096:deflate", "6.17", 45 << 10),
];

#[test]
fn images_tell_which_linux_mounts_them_and_what_decoding_takes_there() {
    let shop = shop();
    fs::create_dir(shop.path("mnt")).unwrap();
    let may_mount = judge::is_root();
    for (settings, oldest, memory) in SETTINGS {
        let built = linux(&shop, &format!("mkfs image src --json {settings}"));
        assert_eq!(built["oldest"], oldest, "{settings}");
        let taken = built["decoder_bytes_per_cpu"].as_u64().unwrap();
        assert!(
            (memory..=memory + memory / 2 + 1).contains(&taken),
            "{settings}: {taken}"
        );
        assert_eq!(built, linux(&shop, "dump image --json"), "{settings}");
        let told = shop.good(&format!("mkfs image src {settings}"));
        assert!(told.contains(&format!("  oldest Linux {oldest}")), "{told}");
        if may_mount && oldest.parse::<Version>().unwrap() <= running() {
            let mut mount = Command::new("mount");
            mount.args(["-t", "erofs", "-o", "ro,loop"]);
            mount.args([shop.path("image"), shop.path("mnt")]);
            assert_eq!(run(&mut mount).status, Some(0), "{settings}");
            let mut umount = Command::new("umount");
            assert_eq!(run(umount.arg(shop.path("mnt"))).status, Some(0));
        }
    }
    if !may_mount {
        judge::missing("a kernel that mounts (root)");
    }
}

#[test]
fn dump_tells_people_why_and_what_the_kernel_is_built_with() {
    let shop = shop();
    shop.good("mkfs image src --small");
    let told = shop.good("dump image");
    for line in [
        "oldest Linux          6.1 (fragments or dedupe)\n",
        "built with            CONFIG_EROFS_FS CONFIG_EROFS_FS_ZIP CONFIG_EROFS_FS_ZIP_LZMA\n",
        "pages of at least     4096\n",
        "its decoders take     about 4.03 MiB for each CPU\n",
    ] {
        assert!(told.contains(line), "{line}{told}");
    }
}

#[test]
fn images_for_a_machine_keep_within_it() {
    let shop = shop();
    for target in [
        "kernel=5.4",
        "kernel=5.12",
        "kernel=5.13",
        "kernel=5.15",
        "kernel=5.16",
        "kernel=5.17",
        "kernel=6.1",
        "kernel=6.18",
        "memory=16K,cpus=1",
        "memory=1M",
        "memory=64M,cpus=64",
        "reads=random",
        "reads=sequential",
        "kernel=5.15,memory=64M,reads=random",
    ] {
        let value = |key: &str| {
            let words = target.split(',').map(|word| word.split_once('=').unwrap());
            words.into_iter().find(|(k, _)| *k == key).map(|(_, v)| v)
        };
        for preset in ["--small", "", "--fast"] {
            let command = format!("mkfs image src {preset} --for {target} --verify --json");
            let built = linux(&shop, &command);
            let oldest: Version = built["oldest"].as_str().unwrap().parse().unwrap();
            if let Some(kernel) = value("kernel") {
                assert!(
                    oldest <= kernel.parse().unwrap(),
                    "{preset} {target}: {oldest}"
                );
            }
            if let Some(memory) = value("memory") {
                let cpus: u64 = value("cpus").unwrap_or("4").parse().unwrap();
                let taken = built["decoder_bytes_per_cpu"].as_u64().unwrap() * cpus;
                let memory = anteros_core::parse_size(memory).unwrap();
                assert!(taken <= memory, "{preset} {target}: {taken}");
            }
            shop.good("check image");
        }
    }
}

#[test]
fn presets_give_up_no_more_than_the_machine_asks_for() {
    let shop = shop();
    for (one, other) in [
        ("--small --for kernel=6.1", "--small"),
        ("--small --for kernel=6.14,memory=64M", "--small"),
        ("--small --for memory=64M", "--small"),
        (
            "--small --for kernel=6.15,memory=64M",
            "--small -E48bit,dot-omitted",
        ),
        (
            "--small --for kernel=6.18,memory=64M",
            "--small -E48bit,dot-omitted -m32K",
        ),
        ("--for kernel=5.13.7-generic,memory=256K", "--balanced"),
        ("--small --for kernel=6.0", "-zlzma,9 -C1M -Eztailpacking"),
        ("--small --for kernel=5.16", "-zlzma,9 -C1M"),
        (
            "--small --for memory=2M",
            "-zlzma,9,dictsize=256K -C1M -Eall-fragments,dedupe,ztailpacking --compress-directories",
        ),
        ("--small --for kernel=5.15", "-zlz4hc,12 -C1M"),
        (
            "--small --for kernel=5.10",
            "-zlz4hc,12 -C4K --holes compress",
        ),
        ("--fast --for kernel=5.10", "-zlz4 -C4K --holes compress"),
        ("--for memory=64K", "-zlz4hc,9 -C16K"),
        ("--for reads=random", "-zlz4hc,9 -C16K"),
        ("--fast --for reads=sequential", "-zlz4 -C128K"),
        ("--for reads=sequential -C256K", "-C256K"),
        ("-znone --for reads=random,memory=1", "-znone"),
    ] {
        shop.good(&format!("mkfs one src {one}"));
        shop.good(&format!("mkfs other src {other}"));
        assert!(same(&shop.path("one"), &shop.path("other")), "{one}");
    }
}

#[test]
fn what_contradicts_the_machine_is_refused_by_name() {
    let shop = shop();
    for (options, said) in [
        (
            "kernel=5.15 -zlzma",
            "--for kernel=5.15: -zlzma needs Linux 5.16",
        ),
        (
            "kernel=6.5 -zdeflate",
            "--for kernel=6.5: -zdeflate needs Linux 6.6",
        ),
        (
            "kernel=6.9 -zzstd",
            "--for kernel=6.9: -zzstd needs Linux 6.10",
        ),
        (
            "kernel=5.12 -C8K",
            "--for kernel=5.12: a cluster (-C) of several blocks needs Linux 5.13",
        ),
        (
            "kernel=5.16 -Eztailpacking",
            "--for kernel=5.16: -Eztailpacking needs Linux 5.17",
        ),
        (
            "kernel=6.0 -Efragments",
            "--for kernel=6.0: -Efragments, -Ededupe or --compress-directories needs Linux 6.1",
        ),
        (
            "kernel=5.14 --chunksize 4K",
            "--for kernel=5.14: --chunksize, or --holes other than compress, needs Linux 5.15",
        ),
        (
            "kernel=5.14 --holes keep",
            "--for kernel=5.14: --chunksize, or --holes other than compress, needs Linux 5.15",
        ),
        (
            "kernel=6.7 -b1K",
            "--for kernel=6.7: a block size (-b) below 4K needs Linux 6.8",
        ),
        (
            "kernel=6.14 -E48bit",
            "--for kernel=6.14: -E48bit or -Edot-omitted needs Linux 6.15",
        ),
        (
            "kernel=6.16 -m4096",
            "--for kernel=6.16: -m needs Linux 6.17",
        ),
        (
            "memory=1M -zlzma,dictsize=8M",
            "--for memory=1.00 MiB: decoders take about 32.12 MiB on 4 CPUs",
        ),
        (
            "memory=1K",
            "--for memory=1.00 KiB: decoders take about 16.00 KiB on 4 CPUs",
        ),
        (
            "reads=random -C64K",
            "--for reads=random: a cluster (-C) of 64.00 KiB; 16.00 KiB is the most",
        ),
        (
            "reads=random -Efragments=32K",
            "--for reads=random: a cluster (-C) of 32.00 KiB; 16.00 KiB is the most",
        ),
        (
            "reads=sequential -C16K",
            "--for reads=sequential: a cluster (-C) of 16.00 KiB; 128.00 KiB is the least",
        ),
    ] {
        let told = shop.bad(2, &format!("mkfs image src --for {options}"));
        assert!(
            told.starts_with(&format!("error: {said}\n")),
            "{options}: {told}"
        );
    }
    assert!(!shop.path("image").exists());
}

#[test]
fn machines_that_there_are_not_are_refused() {
    let shop = shop();
    for (target, said) in [
        (
            "kernal=5.15",
            "there is no `kernal`; kernel=, memory=, cpus= and reads= are known",
        ),
        ("", "there is no ``"),
        ("kernel=5.15,", "there is no ``"),
        ("kernel", "`kernel`"),
        ("kernel=new", "`new`: a version of Linux looks like 5.15"),
        ("kernel=5.3", "Linux 5.3 has no EROFS; 5.4 is the first"),
        ("kernel=5.15,kernel=6.1", "`kernel` is told twice"),
        ("memory=lots", "memory"),
        (
            "memory=1M,cpus=0",
            "`0` is no number of cpus; 1 to 8192 are",
        ),
        ("cpus=4", "cpus have no meaning without memory"),
        (
            "reads=often",
            "`often` is no way to read; random and sequential are",
        ),
    ] {
        let told = shop.bad(2, &format!("mkfs image src --for={target}"));
        assert!(told.contains("--for"), "{target}: {told}");
        let expected = match target {
            "kernel" => "a version of Linux looks like 5.15",
            "memory=lots" => "lots",
            _ => said,
        };
        assert!(told.contains(expected), "{target}: {told}");
    }
}
