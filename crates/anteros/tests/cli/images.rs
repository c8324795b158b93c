//! Images made, looked at and unpacked again.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::{Workshop, run, same};

#[test]
fn an_image_is_made_read_checked_extracted_and_verified() {
    let shop = Workshop::new();
    let made = shop.good("mkfs image src -zlz4hc,9 -C16384 --verify");
    assert!(made.starts_with("image: "), "{made}");
    assert!(made.contains("the same as src: 6 names"), "{made}");
    assert_eq!(shop.good("ls image"), "hello\nsub\nsymlink\n");
    assert_eq!(
        shop.good("ls -R image sub"),
        "sub/link\nsub/text\n",
        "paths can be given to other commands"
    );
    assert_eq!(shop.good("ls image sub/text"), "sub/text\n");
    assert_eq!(shop.good("cat image hello /sub/link"), "hello\nhello\n");
    assert!(shop.good("check image").starts_with("image: clean; "));
    shop.good("verify image src");
    shop.good("extract image out");
    assert!(same(&shop.path("src"), &shop.path("out")));
    shop.good("extract image only --path sub/text");
    assert!(same(&shop.path("src/sub/text"), &shop.path("only")));

    fs::write(shop.path("src/hello"), "HELLO\n").unwrap();
    let differing = shop.run("verify image src");
    assert_eq!(differing.status, Some(1));
    assert!(differing.out.contains("/hello: "), "{differing:?}");
}

#[test]
fn times_that_differ_are_told_as_dates() {
    let shop = Workshop::new();
    shop.good("mkfs image src -T1700000000");
    let differing = shop.run("verify image src");
    assert_eq!(differing.status, Some(1));
    let dates = "hello: time 2023-11-14T22:13:20Z in the image instead of 20";
    assert!(differing.out.contains(dates), "{differing:?}");
}

#[test]
fn long_listings_show_what_those_of_ls_show() {
    let shop = Workshop::new();
    shop.good("mkfs image src -T1700000000 --all-root");
    let listing = shop.good("ls -l image");
    let mut lines = listing.lines();
    let hello = lines.next().unwrap();
    assert!(hello.starts_with("-rw"), "{hello}");
    let end = "2     0     0           6 2023-11-14 22:13 hello";
    assert!(hello.ends_with(end), "{hello}");
    assert!(lines.next().unwrap().starts_with("drwx"));
    assert!(lines.next().unwrap().ends_with(" symlink -> sub/text"));
}

#[test]
fn scripts_get_json() {
    let shop = Workshop::new();
    let json = |arguments: &str| shop.json(arguments);
    let made = json("mkfs image src -zlz4 --json");
    assert_eq!(made["files"], 2);
    assert_eq!(made["hard_links"], 1);
    assert_eq!(
        made["image_bytes"],
        fs::metadata(shop.path("image")).unwrap().len()
    );
    let listed = json("ls -R --json image");
    let paths: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["path"])
        .collect();
    assert_eq!(
        paths,
        ["/hello", "/sub", "/symlink", "/sub/link", "/sub/text"]
    );
    let dumped = json("dump -s -S -e --path /sub/text --json image");
    assert_eq!(dumped["superblock"]["inodes"], 5);
    assert_eq!(dumped["superblock"]["uuid"], made["uuid"]);
    assert!(dumped["inode"].is_object() && dumped["statistics"].is_object());
    let extents = dumped["extents"].as_array().unwrap();
    let lens: u64 = extents.iter().map(|e| e["bytes"].as_u64().unwrap()).sum();
    assert_eq!(lens, fs::metadata(shop.path("src/sub/text")).unwrap().len());
    assert_eq!(json("check --json image")["findings"], Value::Array(vec![]));
    assert_eq!(
        json("verify --json image src")["differences"],
        Value::Array(vec![])
    );
    assert_eq!(json("extract --json image out")["files"], 2);
}

#[test]
fn the_same_source_gives_the_same_image() {
    let shop = Workshop::new();
    shop.good("mkfs one src -zlz4hc");
    shop.good("mkfs two src -zlz4hc --workers 3 --memory 1K");
    assert!(same(&shop.path("one"), &shop.path("two")));

    let mut clamped = shop.command("mkfs clamped src");
    clamped.env("SOURCE_DATE_EPOCH", "1000");
    assert_eq!(run(&mut clamped).status, Some(0));
    let listing = shop.good("ls -lR clamped");
    assert_eq!(listing.matches("1970-01-01 00:16").count(), 5, "{listing}");

    let mut nonsense = shop.command("mkfs nonsense src");
    nonsense.env("SOURCE_DATE_EPOCH", "yesterday");
    let nonsense = run(&mut nonsense);
    assert_eq!(nonsense.status, Some(2));
    assert!(nonsense.err.contains("`yesterday`"), "{nonsense:?}");
}

#[test]
fn it_answers_to_the_name_that_scripts_call() {
    let shop = Workshop::new();
    shop.good("mkfs ours src -zlz4hc,12 -C4096 -T0 -Uclear --all-root");
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    let mut called = std::process::Command::new(shop.path("mkfs.erofs"));
    called.current_dir(shop.path(""));
    called.args(
        "-d1 --quiet -zlz4hc,level=12 -T0 --all-time -Uclear --all-root theirs src".split(' '),
    );
    let called = run(&mut called);
    assert_eq!(
        (called.status, &called.out[..]),
        (Some(0), ""),
        "{called:?}"
    );
    assert!(same(&shop.path("ours"), &shop.path("theirs")));
}

#[test]
fn what_is_excluded_is_missing_and_verifies() {
    let shop = Workshop::new();
    let made = shop.good("mkfs image src --exclude-path sub --exclude-regex ^sym --verify");
    assert!(made.contains("2 names"), "{made}");
    assert_eq!(shop.good("ls image"), "hello\n");
}

#[test]
fn images_may_begin_further_on_and_have_more_devices() {
    let shop = Workshop::new();
    shop.good("mkfs image src --offset 8K");
    let hint = shop.bad(3, "ls image");
    assert!(hint.contains("--offset"), "{hint}");
    assert_eq!(shop.good("cat --offset 8K image hello"), "hello\n");

    let fixtures = anteros_tests::fixtures();
    let (image, extra) = fixtures
        .iter()
        .find(|(_, extra)| !extra.is_empty())
        .unwrap();
    let image = image.display();
    let hint = shop.bad(2, &format!("check {image}"));
    assert!(hint.contains("--device"), "{hint}");
    shop.good(&format!("check {image} --device {}", extra[0].display()));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let shop = Workshop::new();
    let help = shop.good("--help");
    let commands: Vec<_> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(|line| line.split(' ').next().unwrap())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() >= 9, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = shop.good(&format!("completions {shell}"));
        assert!(commands.iter().all(|c| script.contains(c)), "{shell}");
    }
    shop.good("manual man");
    for command in commands {
        let page = fs::read_to_string(shop.path(&format!("man/anteros-{command}.1"))).unwrap();
        assert!(page.contains(".TH"), "{command}");
        assert!(shop.good(&format!("{command} --help")).contains("Usage:"));
    }
}
