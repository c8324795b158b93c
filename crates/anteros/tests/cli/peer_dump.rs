//! Tests what the program does under the name of `dump.erofs`: line by line as the peer.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anteros_tests::peers::Peers;
use rustix::fs::{XattrFlags, setxattr};

use crate::{Run, Workshop, run};

const DUMP: &str = "dump.erofs";

/// A workshop with a source of files of some kinds, and the program by that name.
fn shop() -> Workshop {
    let shop = Workshop::new();
    let lines = |count: u32| {
        (0..count)
            .map(|n| format!("line {n} of {count}\n"))
            .collect::<String>()
    };
    fs::create_dir(shop.path("src/d")).unwrap();
    for count in [10, 700, 3000] {
        fs::write(shop.path(&format!("src/d/{count}.txt")), lines(count)).unwrap();
    }
    fs::write(shop.path("src/empty"), "").unwrap();
    fs::hard_link(shop.path("src/d/700.txt"), shop.path("src/hard")).unwrap();
    symlink("10.txt", shop.path("src/d/link")).unwrap();
    setxattr(
        shop.path("src/d/700.txt"),
        "user.key",
        b"value",
        XattrFlags::empty(),
    )
    .unwrap();
    symlink(&shop.program, shop.path(DUMP)).unwrap();
    shop
}

fn dump(shop: &Workshop, arguments: &str) -> Run {
    let mut command = Command::new(shop.path(DUMP));
    run(command
        .args(arguments.split_whitespace())
        .current_dir(shop.path("")))
}

#[track_caller]
fn good(shop: &Workshop, arguments: &str) -> String {
    let told = dump(shop, arguments);
    assert_eq!(
        (told.status, &told.err[..]),
        (Some(0), ""),
        "{arguments}: {told:?}"
    );
    told.out
}

#[test]
fn it_says_what_the_peer_says() {
    let Some(peers) = Peers::find() else { return };
    let shop = shop();
    let theirs = |tool: &str, arguments: &str| {
        let mut command = peers.command(tool);
        command.args(arguments.split_whitespace()).env("TZ", "UTC");
        run(command.current_dir(shop.path("")))
    };
    for options in [
        "",
        "-zlz4hc -C16384 -T77 -Lname",
        "-zlzma -Eztailpacking",
        "-zzstd -Efragments",
        "-zlz4 -Elegacy-compress",
    ] {
        let made = theirs("mkfs.erofs", &format!("--quiet {options} image src"));
        assert_eq!(made.status, Some(0), "{made:?}");
        for arguments in [
            "",
            "-s",
            "--path=/",
            "--path=/d --ls",
            "--path=/d/link",
            "--path=/d/10.txt",
            "--path=/d/3000.txt -e",
            "--path=/d/700.txt -e",
            "--path=/empty",
            "--blkid-udev",
            "--path=/d/3000.txt --cat",
        ] {
            let expected = theirs(DUMP, &format!("{arguments} image"));
            let found = good(&shop, &format!("{arguments} image"));
            // Of what takes nothing there is no share.
            let expected = expected.out.replace("-nan%", "0.00%");
            assert_eq!(found, expected, "{options}: {arguments}");
        }
    }
}

#[test]
fn counts_are_those_of_the_peer() {
    let shop = shop();
    for size in [1023, 1024, 1025, 8191, 8192, 33_554_432] {
        let file = fs::File::create(shop.path(&format!("src/{size}.so"))).unwrap();
        file.set_len(size).unwrap();
    }
    for name in [
        ".txt",
        "b.TXT",
        "lib.so.1",
        "a.tar.xml",
        "rc",
        "a.apk",
        "b.odex",
    ] {
        fs::write(shop.path("src").join(name), name).unwrap();
    }
    let peers = Peers::find();
    for options in [
        "",
        "-znone",
        "-zlzma,1 -C1048576",
        "-zlz4 -C65536 -Eztailpacking",
        "-zlz4 --small",
        "-znone --holes keep",
    ] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        let found = good(&shop, "-S image");
        let Some(peers) = &peers else { continue };
        let mut theirs = peers.command(DUMP);
        let theirs = run(theirs.args(["-S", "image"]).current_dir(shop.path("")));
        assert_eq!(found, theirs.out, "{options}");
    }
    assert!(good(&shop, "-V").starts_with("dump.erofs (anteros) "));
    assert!(good(&shop, "--help").contains("Usage: dump.erofs [OPTIONS]"));
}

/// Nothing is divided by the number of files where there is none.
#[test]
fn an_image_without_files_has_histograms() {
    let shop = shop();
    fs::create_dir(shop.path("nothing")).unwrap();
    shop.good("mkfs image nothing --quiet");
    let told = good(&shop, "-S image");
    assert!(told.contains(" 0.00% |"), "{told}");
    assert!(!told.contains("NaN"), "{told}");
}

#[test]
fn whatever_is_wrong_has_the_status_1() {
    let shop = shop();
    shop.good("mkfs image src --quiet");
    for (arguments, text) in [
        ("none", "none: "),
        ("", "required"),
        ("-e image", "-e needs an inode"),
        ("--cat image", "--cat needs a path"),
        ("--path=/none image", "/none"),
        ("--path=/d --cat image", "not a file"),
        ("--path=/empty --ls image", "empty"),
        ("--nid=99999999 image", "inode 99999999"),
        ("--nonsense image", "--nonsense"),
    ] {
        let told = dump(&shop, arguments);
        assert_eq!(told.status, Some(1), "{arguments}: {told:?}");
        assert!(told.err.contains(text), "{arguments}: {told:?}");
    }
}
