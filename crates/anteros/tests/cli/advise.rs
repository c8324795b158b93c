//! Tests `anteros advise`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anteros_tests::judge;
use anteros_tests::trees::{noise, words};
use serde_json::Value;

use crate::{Signal, Workshop, kill, run, wait_until, wait_until_heeding};

/// A workshop whose source has some megabytes: words, and what does not compress.
fn shop(files: u64) -> Workshop {
    let shop = Workshop::new();
    fs::create_dir(shop.path("tmp")).unwrap();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(shop.path("tmp"), everybody).unwrap();
    for n in 0..files {
        let content = match n % 3 {
            0 => noise(n, 30_000),
            _ => words(n, 60_000),
        };
        fs::write(shop.path(&format!("src/{n}.{}", n % 5)), content).unwrap();
    }
    shop
}

/// The program with temporary files in `tmp`.
fn command(shop: &Workshop, arguments: &str) -> std::process::Command {
    let mut command = shop.heeding(arguments);
    command.env("TMPDIR", shop.path("tmp"));
    command
}

#[track_caller]
fn json(shop: &Workshop, arguments: &str) -> Value {
    let run = run(&mut command(shop, arguments));
    assert_eq!((run.status, &run.err[..]), (Some(0), ""), "{arguments}");
    assert!(nothing_left(shop), "{arguments}");
    serde_json::from_str(&run.out).unwrap()
}

fn nothing_left(shop: &Workshop) -> bool {
    fs::read_dir(shop.path("tmp")).unwrap().next().is_none()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn sizes_of_a_small_tree_are_those_of_mkfs() {
    let shop = shop(20);
    let told = json(&shop, "advise src --json");
    assert_eq!(told["is_estimate"], false);
    let rows = told["rows"].as_array().unwrap();
    assert!(rows.len() > 10);
    for row in rows {
        let settings = row["settings"].as_str().unwrap();
        shop.good(&format!("mkfs image src {settings}"));
        assert_eq!(row["bytes"], size(&shop.path("image")), "{settings}");
        assert!(row["read_rate"].as_f64().unwrap() > 0.0);
        let dumped = shop.json("dump image --json");
        assert_eq!(row["linux"], dumped["superblock"]["linux"], "{settings}");
    }
    let best: Vec<_> = rows.iter().filter(|row| row["is_best"] == true).collect();
    assert_eq!(best.len(), 1);
    assert_eq!(best[0]["is_front"], true);
    let command = told["command"].as_str().unwrap();
    let settings = best[0]["settings"].as_str().unwrap();
    assert_eq!(command, format!("anteros mkfs IMAGE src {settings}"));
}

#[test]
fn sizes_of_a_larger_tree_are_estimated_from_a_part() {
    let shop = shop(120);
    let told = json(&shop, "advise src --json --sample 2M");
    assert_eq!(told["is_estimate"], true);
    let sampled = told["sampled_bytes"].as_u64().unwrap();
    assert!((3 << 19..=5 << 19).contains(&sampled), "{sampled}");
    let quick = |row: &&Value| {
        ["-zn", "-zlz4 ", "-zlz4hc,9 "]
            .iter()
            .any(|z| row["settings"].as_str().unwrap().starts_with(z))
    };
    let rows = told["rows"].as_array().unwrap().iter().filter(quick);
    for row in rows {
        let settings = row["settings"].as_str().unwrap();
        shop.good(&format!("mkfs image src {settings}"));
        let (told, real) = (
            row["bytes"].as_f64().unwrap(),
            size(&shop.path("image")) as f64,
        );
        assert!(
            (told / real - 1.0).abs() < 0.15,
            "{settings}: {told} of {real}"
        );
    }
}

#[test]
fn what_only_the_latest_kernels_read_is_tried_for_one_of_them() {
    let shop = shop(10);
    let wide = |told: &Value, list: &str| {
        let rows = told[list].as_array().unwrap();
        let settings = rows.iter().map(|row| row["settings"].as_str().unwrap());
        settings
            .filter(|s| s.contains("48bit") || s.contains(" -m"))
            .count()
    };
    let told = json(&shop, "advise src --json");
    assert_eq!(
        (wide(&told, "rows"), wide(&told, "left_out")),
        (0, 3),
        "{told}"
    );
    let told = json(&shop, "advise src --json --for kernel=6.15");
    assert_eq!(
        (wide(&told, "rows"), wide(&told, "left_out")),
        (2, 1),
        "{told}"
    );
    let told = json(&shop, "advise src --json --for kernel=6.17");
    assert_eq!(
        (wide(&told, "rows"), wide(&told, "left_out")),
        (3, 0),
        "{told}"
    );
}

#[test]
fn only_what_the_machine_reads_is_tried() {
    let shop = shop(10);
    let told = json(&shop, "advise src --json --for kernel=5.12,memory=1M");
    for row in told["rows"].as_array().unwrap() {
        assert_eq!(row["linux"]["oldest"], "5.4", "{row}");
    }
    let left_out = told["left_out"].as_array().unwrap();
    let why = |settings: &str| {
        let found = left_out.iter().find(|l| l["settings"] == settings);
        found.unwrap()["because"].as_str().unwrap()
    };
    assert!(why("-zlz4 -C64K").contains("needs Linux 5.13"));
    let command = told["command"].as_str().unwrap();
    let command = command.strip_prefix("anteros mkfs IMAGE ").unwrap();
    shop.good(&format!("mkfs image {command}"));
}

#[test]
fn people_get_a_table_a_drawing_and_a_command() {
    let shop = shop(10);
    let run = run(&mut command(&shop, "advise src --plot plot.svg"));
    assert_eq!((run.status, &run.err[..]), (Some(0), ""));
    for part in [
        "src: ",
        "all of it was tried",
        "b  -zlz4 -C64K ",
        "quicker to read",
        "\nanteros mkfs IMAGE src -z",
    ] {
        assert!(run.out.contains(part), "{part}{}", run.out);
    }
    assert!(
        run.out.lines().any(|line| line.starts_with("> ")),
        "{}",
        run.out
    );
    let svg = fs::read_to_string(shop.path("plot.svg")).unwrap();
    assert!(svg.contains("-zlzma,9"), "{svg}");
}

#[test]
fn what_cannot_be_tried_is_told() {
    let shop = shop(3);
    fs::create_dir(shop.path("empty")).unwrap();
    for (arguments, status, said) in [
        ("empty", 2, "empty: no file in it has content"),
        ("nowhere", 5, "nowhere: No such file or directory"),
        ("src/hello", 5, "src/hello: Not a directory"),
        ("src --for kernal=5.15", 2, "there is no `kernal`"),
        ("src --for kernel=5.3", 2, "Linux 5.3 has no EROFS"),
        ("src --sample 1K", 2, "a sample has at least 1M"),
        ("src --plot src", 2, "src: is no regular file"),
    ] {
        let run = run(&mut command(&shop, &format!("advise {arguments}")));
        assert_eq!(run.status, Some(status), "{arguments}: {run:?}");
        assert!(run.err.contains(said), "{arguments}: {}", run.err);
        assert!(nothing_left(&shop), "{arguments}");
    }
    let run = run(command(&shop, "advise src").env("TMPDIR", "/nowhere"));
    assert_eq!(run.status, Some(5));
    assert!(run.err.contains("/nowhere/anteros-advise-"), "{}", run.err);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let shop = shop(3);
    fs::set_permissions(shop.path("src/1.1"), fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = shop.command("advise src");
    command.env("TMPDIR", shop.path("tmp"));
    if judge::is_root() {
        use std::os::unix::process::CommandExt;
        command.uid(crate::NOBODY).gid(crate::NOBODY);
    }
    let run = run(&mut command);
    assert_eq!(run.status, Some(5), "{run:?}");
    assert!(
        run.err.contains("src/1.1") && run.err.contains("Permission denied"),
        "{}",
        run.err
    );
    assert!(nothing_left(&shop));
}

#[test]
fn too_little_room_is_told_with_its_place() {
    if !judge::is_root() {
        return judge::missing("a small file system (root)");
    }
    let shop = shop(100);
    let script =
        "mount -t tmpfs -o size=2M none tmp; ! TMPDIR=$PWD/tmp ./anteros advise src; ls -A tmp";
    let run = run(&mut shop.apart(script));
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(run.out, "", "something is left");
    let place = shop.path("tmp").canonicalize().unwrap();
    let said = format!(
        "error: {}: 2.00 MiB are free, and temporary files take ",
        place.display()
    );
    assert!(run.err.starts_with(&said), "{}", run.err);
    assert!(
        run.err.contains("hint: a smaller --sample takes less room"),
        "{}",
        run.err
    );
}

#[test]
fn an_interruption_leaves_nothing() {
    let shop = shop(300);
    let mut child = command(&shop, "advise src --sample 8M");
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    wait_until_heeding(&child);
    wait_until(|| !nothing_left(&shop));
    kill(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(nothing_left(&shop));
}
