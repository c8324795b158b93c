//! Tests hash trees behind images. `veritysetup` is the judge.

use std::fs;
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::trees::words;
use serde_json::Value;

use crate::Workshop;

/// A workshop whose source has some hundred blocks.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for n in 0..20 {
        fs::write(shop.path(&format!("src/words {n}")), words(n, 60_000)).unwrap();
    }
    shop
}

/// Builds an image with a hash tree; answers its root hash and where the tree begins.
fn build(shop: &Workshop, options: &str) -> (String, u64) {
    let told = shop.json(&format!("mkfs image src --json --verity {options}"));
    let verity = &told["verity"];
    let root = verity["root_hash"].as_str().unwrap().to_owned();
    (root, verity["hash_offset"].as_u64().unwrap())
}

/// Returns whether `veritysetup` finds that the tree is the one of the image.
fn is_right(image: &Path, root: &str, start: u64) -> bool {
    let mut judge = Command::new("veritysetup");
    judge.arg("verify").args([image, image]).arg(root);
    let judged = judge.arg(format!("--hash-offset={start}")).output();
    judged.unwrap().status.success()
}

#[test]
fn the_tree_is_the_one_that_veritysetup_reads() {
    if !judge::has_program("veritysetup") {
        return;
    }
    let shop = shop();
    for (options, salt) in [
        ("-znone", None),
        ("-zlz4 -b512", None),
        ("-znone --verity-hash sha512", None),
        ("--small --verity-salt 00ff10", Some("00ff10")),
        ("-zlz4 --verity-salt - --verity-hash=sha512", Some("")),
    ] {
        let (root, start) = build(&shop, options);
        let image = shop.path("image");
        assert!(is_right(&image, &root, start), "{options}");
        assert!(!is_right(&image, &root.replace(['0', '1'], "2"), start));
        let told = shop.good(&format!("check image --verity {root}"));
        assert!(
            told.contains("blocks are the ones that were hashed"),
            "{told}"
        );
        let told = shop.good(&format!(
            "check image --quiet --verity {root} --hash-offset {start}"
        ));
        assert_eq!(told, "");
        let told = shop.good(&format!("mkfs image src {options} --verity --workers 3"));
        assert!(told.contains(&format!("root hash {root}")), "{told}");
        let table = told
            .lines()
            .find(|line| line.contains("dm-verity"))
            .unwrap();
        let sectors = start / 512;
        assert!(
            table.contains(&format!(" 0 {sectors} verity 1 DEVICE DEVICE 4096 4096 ")),
            "{table}"
        );
        if let Some(salt) = salt {
            let end = if salt.is_empty() { "-" } else { salt };
            assert!(table.ends_with(&format!("{root} {end}")), "{table}");
        }
    }
}

/// Without its tree the image is the same, and mounts with it.
#[test]
fn the_tree_lies_behind_the_image() {
    let shop = shop();
    shop.good("mkfs plain src --quiet -zlz4");
    let (root, start) = build(&shop, "-zlz4");
    let (plain, image) = (
        fs::read(shop.path("plain")).unwrap(),
        fs::read(shop.path("image")).unwrap(),
    );
    assert!(image[..start as usize] == plain);
    assert!(image.len() as u64 > start + 4096);
    fs::write(shop.path("device"), vec![7; 8192]).unwrap();
    shop.good("mkfs device src --quiet -zlz4 --verity --offset 8192");
    assert!(fs::read(shop.path("device")).unwrap()[8192..] == image);
    shop.good(&format!(
        "check device --offset 8192 --quiet --verity {root}"
    ));
    shop.good(&format!("extract image out --quiet --verity {root}"));
    let same = |name: &str| fs::read(shop.path(name)).unwrap();
    assert!(same("out/words 3") == same("src/words 3"));
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        let found = fs::read(mount.path().join("words 3")).unwrap();
        assert!(found == same("src/words 3"));
    }
}

/// The parity is the one that `veritysetup` makes, and repairs what was damaged.
#[test]
fn the_parity_is_the_one_that_veritysetup_reads() {
    if !judge::has_program("veritysetup") {
        return;
    }
    let shop = shop();
    for (roots, options) in [
        (2, "-znone"),
        (24, "-zlz4 --verity-hash sha512 --workers 3"),
    ] {
        let told = shop.json(&format!(
            "mkfs image src --json --verity {options} --verity-fec {roots}"
        ));
        let told = &told["verity"];
        let number = |value: &Value| value.as_u64().unwrap();
        let (start, fec) = (number(&told["hash_offset"]), &told["fec"]);
        let offset = number(&fec["offset"]);
        let table = told["table"].as_str().unwrap();
        let blocks = &fec["blocks"];
        let end = format!(
            " 8 use_fec_from_device DEVICE fec_roots {roots} fec_blocks {blocks} fec_start {}",
            offset / 4096
        );
        assert!(table.ends_with(&end), "{table}");
        let root = told["root_hash"].as_str().unwrap();
        shop.good(&format!("check image --quiet --verity {root}"));

        let image = shop.path("image");
        let made = fs::read(&image).unwrap();
        fs::write(shop.path("theirs"), &made[..offset as usize]).unwrap();
        let veritysetup = |image: &Path, arguments: &[&str]| {
            let mut judge = Command::new("veritysetup");
            judge
                .arg(arguments[0])
                .args([image, image])
                .args(&arguments[1..]);
            judge.arg(format!("--hash-offset={start}"));
            judge
                .arg("--fec-device")
                .arg(image)
                .arg(format!("--fec-offset={offset}"));
            let done = judge.arg(format!("--fec-roots={roots}")).output().unwrap();
            let said =
                String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
            (done.status.success(), said.into_owned())
        };
        let salt = format!("--salt={}", told["salt"].as_str().unwrap());
        let hash = format!("--hash={}", told["algorithm"].as_str().unwrap());
        let data = format!("--data-blocks={}", start / 4096);
        let theirs = shop.path("theirs");
        let (made_theirs, said) = veritysetup(&theirs, &["format", &salt, &hash, &data]);
        assert!(made_theirs, "{said}");
        let theirs = fs::read(theirs).unwrap();
        assert!(theirs[offset as usize..] == made[offset as usize..]);

        let mut damaged = made.clone();
        damaged[5 * 4096 + 100..5 * 4096 + 900].fill(0x5a);
        fs::write(&image, &damaged).unwrap();
        shop.bad(1, &format!("check image --quiet --verity {root}"));
        let (_, said) = veritysetup(&image, &["verify", root]);
        assert!(said.contains("repairable errors"), "{said}");
    }
    let refused = shop.bad(2, "mkfs image src --verity --verity-fec 25");
    assert!(refused.contains("2..=24"), "{refused}");
    shop.bad(2, "mkfs image src --verity-fec 2");
}

#[test]
fn what_was_changed_is_never_read() {
    let shop = shop();
    for options in [
        "-znone",
        "-zlz4hc -C16K",
        "-zlzma -C64K -Eall-fragments,48bit",
    ] {
        let (root, start) = build(&shop, options);
        let image = fs::read(shop.path("image")).unwrap();
        for n in 0..30 {
            let mut changed = image.clone();
            let at = n * 7919 * 61 % image.len();
            changed[at] ^= 1 << (n % 8);
            fs::write(shop.path("changed"), &changed).unwrap();
            let found = shop.run(&format!("check changed --verity {root}"));
            // Behind the fields of the tree's superblock there is nothing.
            let is_filling = (start as usize + 344..start as usize + 4096).contains(&at);
            assert_eq!(
                found.status == Some(0),
                is_filling,
                "{options}: {at}: {found:?}"
            );
            let block = at as u64 / 4096;
            if at < start as usize {
                let said = format!("block {block} is not the one that was hashed");
                assert!((found.out + &found.err).contains(&said), "{options}: {at}");
            }
            shop.run(&format!(
                "extract changed out --quiet --keep-going --verity {root}"
            ));
            for file in fs::read_dir(shop.path("out")).into_iter().flatten() {
                let file = file.unwrap().path();
                let source = shop.path("src").join(file.file_name().unwrap());
                if file.is_file() {
                    let (found, source) = (fs::read(&file).unwrap(), fs::read(source).unwrap());
                    // A file that is broken is written up to there.
                    assert!(source.starts_with(&found), "{options}: {at}");
                }
            }
            let _ = fs::remove_dir_all(shop.path("out"));
        }
    }
}

#[test]
fn a_mount_verifies_what_it_reads() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop();
    let (root, _) = build(&shop, "-znone");
    fs::create_dir(shop.path("mnt")).unwrap();
    let mut image = fs::read(shop.path("image")).unwrap();
    let words = fs::read(shop.path("src/words 7")).unwrap();
    let at = image
        .windows(4096)
        .position(|part| part == &words[8192..][..4096]);
    image[at.unwrap() + 100] ^= 2;
    fs::write(shop.path("image"), image).unwrap();
    let mount = format!("mount image mnt --verity {root} --workers 2 --memory");
    // The least that it says it needs is enough.
    let refused = shop.bad(2, &format!("{mount} 3M"));
    let (_, hint) = refused.split_once("needs --memory ").unwrap();
    let (least, _) = hint.split_once(',').unwrap();
    shop.good(&format!("{mount} {least}"));
    let error = fs::read(shop.path("mnt/words 7")).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    for other in ["words 6", "words 8", "sub/text"] {
        let found = fs::read(shop.path(&format!("mnt/{other}"))).unwrap();
        assert!(found == fs::read(shop.path(&format!("src/{other}"))).unwrap());
    }
    shop.good("umount mnt");
    let refused = shop.bad(2, &format!("mount image mnt --kernel --verity {root}"));
    assert!(refused.contains("--verity"), "{refused}");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let shop = shop();
    shop.good("mkfs plain src --quiet");
    let (root, start) = build(&shop, "");
    let other = root.replace('a', "b").replace('1', "2");
    let long = format!("{root}{root}");
    fs::write(
        shop.path("short"),
        &fs::read(shop.path("image")).unwrap()[..start as usize + 4096],
    )
    .unwrap();
    for (status, arguments, said) in [
        (
            2,
            "ls image --verity 12".to_owned(),
            "64 or 128 hexadecimal digits",
        ),
        (
            2,
            format!("ls image --verity {root} --device x"),
            "cannot be used with",
        ),
        (2, "ls image --hash-offset 4096".into(), "--verity"),
        (
            3,
            format!("ls image --verity {other}"),
            "image: its hash tree has another root hash",
        ),
        (
            3,
            format!("ls image --verity {long}"),
            "whose root hash has 64 hexadecimal digits",
        ),
        (
            3,
            format!("ls plain --verity {root}"),
            "there is no hash tree",
        ),
        (
            3,
            format!("ls image --verity {root} --hash-offset 4096"),
            "byte 4096: there is no hash tree",
        ),
        (
            3,
            format!("ls short --verity {root}"),
            "short: its hash tree is cut off",
        ),
        (2, "mkfs new src --verity-salt 00".into(), "--verity"),
        (
            2,
            "mkfs new src --verity --verity-salt 0".into(),
            "pairs of hexadecimal digits",
        ),
        (
            2,
            format!("mkfs new src --verity --verity-salt {}", "00".repeat(257)),
            "a salt of 257 bytes; 256 are the most",
        ),
        (
            2,
            "mkfs new src --verity --verity-hash md5".into(),
            "sha256",
        ),
    ] {
        let refused = shop.bad(status, &arguments);
        assert!(refused.contains(said), "{arguments}: {refused}");
    }
    assert!(!shop.path("new").exists());
}

#[test]
fn digests_of_files_are_those_of_fsverity() {
    if !judge::has_program("fsverity") {
        return;
    }
    let shop = shop();
    fs::write(shop.path("src/empty"), "").unwrap();
    let sparse = fs::File::create(shop.path("src/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    for options in ["-znone", "--small"] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        let told = shop.good("ls image --digest");
        for name in ["words 3", "words 4", "empty", "sparse"] {
            let judged = Command::new("fsverity")
                .args(["digest", "--compact"])
                .arg(shop.path("src").join(name))
                .output()
                .unwrap();
            let digest = String::from_utf8(judged.stdout).unwrap();
            let line = format!("sha256:{} {name}\n", digest.trim());
            assert!(told.contains(&line), "{options}: {line}{told}");
        }
        assert!(told.lines().any(|line| line == "sub"), "{told}");
    }
    let told = shop.json("ls image --digest --long --json");
    let with_digest = |entry: &&Value| entry["digest"].is_string();
    assert!(told.as_array().unwrap().iter().filter(with_digest).count() > 20);
}
