//! Archives: where they go, and what is left when one cannot be written.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use anteros_tests::judge;

use crate::{Workshop, run, same};

fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc --quiet");
    shop
}

/// Unpacks an archive of the workshop into a new directory.
fn unpack(shop: &Workshop, archive: &str, into: &str) {
    fs::create_dir(shop.path(into)).unwrap();
    let mut command = Command::new("tar");
    command
        .args(["--extract", "--file"])
        .arg(shop.path(archive));
    let done = run(command.arg("--directory").arg(shop.path(into)));
    assert_eq!((done.status, &done.err[..]), (Some(0), ""));
}

/// Returns the standard output of the program.
fn streamed(shop: &Workshop, arguments: &str) -> Vec<u8> {
    let output = shop.command(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn an_archive_is_the_same_in_a_file_and_in_a_stream() {
    let shop = shop();
    assert_eq!(shop.good("tar image -o archive"), "");
    let archive = fs::read(shop.path("archive")).unwrap();
    assert!(streamed(&shop, "tar image") == archive);
    assert!(streamed(&shop, "tar image -o -") == archive);
    assert!(streamed(&shop, "tar image -o /dev/stdout") == archive);
    unpack(&shop, "archive", "out");
    assert!(same(&shop.path("src"), &shop.path("out")));
    let inode = |name: &str| fs::metadata(shop.path(name)).unwrap().ino();
    assert_eq!(inode("out/hello"), inode("out/sub/link"));
    shop.good("tar image --path sub -o part");
    unpack(&shop, "part", "below");
    assert!(same(&shop.path("src/sub"), &shop.path("below")));
}

/// Large files are decoded in parts, and an extent may reach from one into the next.
#[test]
fn an_archive_is_the_same_with_any_number_of_workers() {
    let shop = shop();
    let text: String = (0..900_000).map(|n| format!("{n}\n")).collect();
    let hole = fs::File::create(shop.path("src/hole")).unwrap();
    hole.set_len(9 << 20).unwrap();
    hole.write_all_at(text.as_bytes(), (2 << 20) + 4096)
        .unwrap();
    fs::write(shop.path("src/sub/large"), text).unwrap();
    for options in [
        "-znone",
        "-zlz4 -C65536",
        "-zzstd -C1048576",
        "-zlz4 -Eall-fragments",
    ] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        shop.good("tar image --workers 1 -o archive");
        let one = fs::read(shop.path("archive")).unwrap();
        for workers in [2, 5] {
            let several = streamed(&shop, &format!("tar image --workers {workers}"));
            assert!(several == one, "{options}, {workers} workers");
        }
        unpack(&shop, "archive", "out");
        assert!(same(&shop.path("src"), &shop.path("out")), "{options}");
        fs::remove_dir_all(shop.path("out")).unwrap();
        fs::remove_file(shop.path("image")).unwrap();
    }
}

#[test]
fn holes_are_left_out_if_that_is_wished() {
    let shop = shop();
    let make = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = fs::File::create(shop.path("src").join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(offset, len) in data {
            file.write_all_at(&vec![b'x'; len], offset).unwrap();
        }
    };
    make("all", 50 << 20, &[]);
    make("begin", (20 << 20) + 77, &[(20 << 20, 77)]);
    make("end", (30 << 20) + 5, &[(0, 3 << 20)]);
    make(
        "middle",
        9 << 20,
        &[(0, 1), (1 << 20, 5000), ((9 << 20) - 1, 1)],
    );
    make(&"n".repeat(200), 5 << 20, &[(1 << 20, 4096)]);
    let many: Vec<(u64, usize)> = (0..300).map(|n| (n << 16, 4096)).collect();
    make("many", 300 << 16, &many);
    for options in [
        "-znone --holes keep",
        "-znone",
        "-zlz4",
        "-zzstd -C1M -E48bit",
    ] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        shop.good("tar image --sparse -o archive");
        let one = streamed(&shop, "tar image -S --workers 1");
        assert!(one == fs::read(shop.path("archive")).unwrap(), "{options}");
        unpack(&shop, "archive", "out");
        assert!(same(&shop.path("src"), &shop.path("out")), "{options}");
        if options.contains("keep") {
            assert!(one.len() < 10 << 20, "{}", one.len());
            let blocks = fs::metadata(shop.path("out/all")).unwrap().blocks();
            assert_eq!(blocks, 0);
        }
        fs::remove_dir_all(shop.path("out")).unwrap();
        fs::remove_file(shop.path("image")).unwrap();
    }
}

#[test]
fn an_archive_takes_the_place_of_a_file() {
    let shop = shop();
    fs::write(shop.path("old"), "old").unwrap();
    symlink("old", shop.path("link")).unwrap();
    shop.good("tar image -o link");
    let archive = streamed(&shop, "tar image");
    assert!(fs::read(shop.path("old")).unwrap() == archive);
    assert!(shop.path("link").is_symlink());
    for (arguments, status, said) in [
        ("tar image -o image", 2, "image: is an image that is read"),
        ("tar image -o src", 5, "src: Is a directory"),
        ("tar image -o none/archive", 5, "none/archive: No such file"),
        (
            "tar image --path none -o archive",
            5,
            "image: /none: no such file",
        ),
        ("tar none -o archive", 5, "none: No such file"),
        ("tar image -o /dev/full", 5, "/dev/full: No space left"),
    ] {
        let told = shop.bad(status, arguments);
        assert!(
            told.starts_with(&format!("error: {said}")),
            "{arguments}: {told}"
        );
    }
    assert_eq!(shop.left(), ["image", "link", "old"]);
}

#[test]
fn of_a_broken_image_there_is_no_archive() {
    let shop = shop();
    let mut bytes = fs::read(shop.path("image")).unwrap();
    bytes[4096..8192].fill(0xff);
    fs::write(shop.path("image"), bytes).unwrap();
    let told = shop.bad(3, "tar image -o archive");
    assert!(told.contains("image: /sub/text: data of inode"), "{told}");
    assert!(told.contains("anteros check"), "{told}");
    assert_eq!(shop.left(), ["image"]);
    // What has gone into a stream has no end, which readers notice.
    let output = shop.command("tar image").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stdout.ends_with(&[0; 1024]));
}

#[test]
fn a_pipe_that_nobody_reads_is_no_reason_to_complain() {
    let shop = shop();
    fs::write(shop.path("src/large"), vec![7; 4 << 20]).unwrap();
    shop.good("mkfs large src --quiet");
    let mut command = shop.command("tar large");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141));
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn a_terminal_gets_no_archive() {
    if !judge::has_program("script") {
        return;
    }
    let shop = shop();
    let mut command = Command::new("script");
    command.args(["-qec", "./anteros tar image", "/dev/null"]);
    let told = run(command.current_dir(shop.path("")).stdin(Stdio::null()));
    assert_eq!(told.status, Some(2), "{told:?}");
    assert!(
        told.out.contains("-o FILE writes it into a file"),
        "{told:?}"
    );
}

#[test]
fn a_socket_is_left_out_and_named() {
    let shop = Workshop::new();
    let _socket = UnixListener::bind(shop.path("src/socket")).unwrap();
    shop.good("mkfs image src --quiet");
    let told = shop.bad(6, "tar image -o archive");
    assert_eq!(
        told,
        "warning: /socket: the socket was left out: an archive cannot hold it\n"
    );
    unpack(&shop, "archive", "out");
    assert!(!shop.path("out/socket").exists());
    assert!(shop.path("out/sub/link").exists());
}

/// Neither the reader of the image nor the archive needs root, whoever owns what is in it.
#[test]
fn a_user_without_rights_gets_the_same_archive() {
    let shop = shop();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::create_dir(shop.path("place")).unwrap();
    fs::set_permissions(shop.path("place"), everybody).unwrap();
    let told = shop.run_as_nobody("tar image -o place/archive");
    assert_eq!((told.status, &told.err[..]), (Some(0), ""));
    let archive = fs::read(shop.path("place/archive")).unwrap();
    assert!(archive == streamed(&shop, "tar image"));
}
