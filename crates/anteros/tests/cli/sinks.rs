//! Tests where an image may go besides into a file: Android's sparse form, pipes, and the descriptor of a disk. Judges are
//! `simg2img`, `mkfs.erofs` and the bytes of the image in a file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use anteros_tests::judge;
use anteros_tests::peers::Peers;
use anteros_tests::trees::words;

use crate::{Workshop, run};

fn bytes(shop: &Workshop, name: &str) -> Vec<u8> {
    fs::read(shop.path(name)).unwrap()
}

/// A shell that runs a script where the program lies.
fn shell(shop: &Workshop, script: &str) -> crate::Run {
    let mut shell = Command::new("bash");
    run(shell.args(["-uc", script]).current_dir(shop.dir.path()))
}

#[test]
fn a_sparse_image_becomes_the_image_again() {
    let shop = Workshop::new();
    fs::write(shop.path("src/zeros"), vec![0; 300_000]).unwrap();
    fs::write(shop.path("src/sevens"), vec![7; 70_000]).unwrap();
    fs::write(shop.path("src/words"), words(1, 3_000_000)).unwrap();
    for options in [
        "-znone --holes=compress",
        "-zlz4",
        "-znone -b512",
        "-znone -b64K",
        "-zlz4 -m4096 --fsalignblks=1024",
        "-znone --verity",
    ] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        for _ in 0..2 {
            shop.good(&format!(
                "mkfs sparse src --quiet --android-sparse {options}"
            ));
        }
        let [image, sparse] = ["image", "sparse"].map(|name| bytes(&shop, name));
        assert_eq!(sparse[..4], [0x3a, 0xff, 0x26, 0xed], "{options}");
        if options.contains("none") || options.contains("fsalign") {
            assert!(sparse.len() + 64_000 < image.len(), "{options}");
        }
        if !judge::has_program("simg2img") {
            continue;
        }
        let mut simg2img = Command::new("simg2img");
        let told = run(simg2img
            .args(["sparse", "raw"])
            .current_dir(shop.dir.path()));
        assert_eq!(told.status, Some(0), "{options}: {told:?}");
        assert!(bytes(&shop, "raw") == image, "{options}: another image");
        fs::remove_file(shop.path("raw")).unwrap();
    }
    assert_eq!(shop.left(), ["image", "sparse"]);
}

#[test]
fn a_sparse_image_is_called_by_its_name() {
    let shop = Workshop::new();
    shop.good("mkfs sparse src --quiet --android-sparse");
    for command in [
        "check sparse",
        "mount sparse src",
        "ls sparse",
        "dump sparse",
    ] {
        let told = shop.bad(3, command);
        let expected = "sparse: a sparse image of Android, and no EROFS image\n\
                        hint: `simg2img sparse IMAGE` makes an image of it";
        assert!(told.contains(expected), "{command}: {told}");
    }
    let told = shop.bad(2, "mkfs sparse src --quiet");
    assert!(
        told.contains("holds something already: a sparse image"),
        "{told}"
    );
    let told = shop.bad(2, "mkfs other src --android-sparse --offset 4096");
    assert!(told.contains("has no offset"), "{told}");
    let told = shop.bad(2, "mkfs other src --android-sparse --verify");
    assert!(told.contains("cannot be used with"), "{told}");
    assert_eq!(shop.left(), ["sparse"]);
}

/// Whatever takes the bytes gets those of the image in a file, also of an archive that comes from a pipe.
#[test]
fn a_pipe_gets_the_bytes_of_the_image() {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    shop.good("mkfs sparse src --quiet --android-sparse");
    let tar = "tar -c --format=posix -C src .";
    for (script, expected) in [
        ("./anteros mkfs - src | cat > got", "image"),
        ("./anteros mkfs - src > got", "image"),
        ("./anteros mkfs /dev/stdout src | cat > got", "image"),
        (
            "./anteros mkfs - src --android-sparse | cat > got",
            "sparse",
        ),
        (&format!("{tar} | ./anteros mkfs - - | cat > got"), "image"),
        (
            "mkfifo fifo; ./anteros mkfs fifo src --quiet & cat fifo > got; wait",
            "image",
        ),
        (
            "echo before > got; ./anteros mkfs - src >> got; sed -i 1d got",
            "image",
        ),
    ] {
        let told = shell(&shop, script);
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{script}");
        assert!(bytes(&shop, "got") == bytes(&shop, expected), "{script}");
        fs::remove_file(shop.path("got")).unwrap();
    }
}

#[test]
fn what_cannot_go_into_a_pipe_is_refused() {
    let shop = Workshop::new();
    for (arguments, status, said) in [
        (
            "mkfs - src --verify",
            2,
            "--verify reads the image back, and the image goes to",
        ),
        (
            "mkfs - src --json",
            2,
            "--json prints on standard output, and the image",
        ),
        ("mkfs - src --vmdk-desc x", 2, "--vmdk-desc names the image"),
        (
            "mkfs - src --offset 512",
            2,
            "an offset has a meaning in files alone",
        ),
        (
            "mkfs /dev/full src",
            5,
            "/dev/full: No space left on device",
        ),
        ("mkfs - nowhere", 5, "nowhere"),
    ] {
        let told = shop.bad(status, arguments);
        assert!(told.contains(said), "{arguments}: {told}");
    }
    let mut mkfs = shop.command("mkfs - src");
    let told = run(mkfs.env("TMPDIR", "/nowhere"));
    assert_eq!(told.status, Some(5));
    let said = "/nowhere: cannot keep the image there until it is complete, of which 0 bytes are";
    assert!(told.err.contains(said), "{told:?}");
    assert!(
        told.err.contains("hint: TMPDIR names another directory"),
        "{told:?}"
    );
    let nobody = shell(&shop, "./anteros mkfs - src | true; echo ${PIPESTATUS[0]}");
    assert_eq!(nobody.err, "");
    assert!(["0\n", "141\n"].contains(&&nobody.out[..]), "{nobody:?}");
    // A link to a pipe is one.
    symlink("/proc/self/fd/1", shop.path("out")).unwrap();
    let mut mkfs = shop.command("mkfs out src --quiet");
    let file = File::create(shop.path("got")).unwrap();
    let mut cat = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .unwrap();
    mkfs.stdout(cat.stdin.take().unwrap());
    assert!(mkfs.status().unwrap().success());
    drop(mkfs);
    assert!(cat.wait().unwrap().success());
    shop.good("mkfs image src --quiet");
    assert!(bytes(&shop, "got") == bytes(&shop, "image"));
}

/// A directory without room for the image is named, and how much of it was kept.
#[test]
fn a_full_directory_is_named() {
    if !judge::is_root() {
        judge::missing("root");
        return;
    }
    let shop = Workshop::new();
    fs::write(shop.path("src/words"), words(1, 4_000_000)).unwrap();
    fs::create_dir(shop.path("full")).unwrap();
    let mount =
        "mount -t tmpfs -o size=1M none full; TMPDIR=$PWD/full ./anteros mkfs - src -znone >got";
    let told = run(&mut shop.apart(&format!("{mount} || exit $?")));
    assert_eq!(told.status, Some(5), "{told:?}");
    assert!(
        told.err.contains("full: cannot keep the image there"),
        "{told:?}"
    );
    assert!(told.err.contains("No space left"), "{told:?}");
    assert!(bytes(&shop, "got").is_empty());
}

#[test]
fn a_descriptor_is_that_of_the_peer() {
    let Some(peers) = Peers::find() else { return };
    let shop = Workshop::new();
    let uuid = "-U12345678-9abc-def0-0123-456789abcdef";
    // Both images have the same length then.
    let options = format!("{uuid} --fsalignblks=1024 --vmdk-desc");
    shop.good(&format!("mkfs image src --quiet -znone {options} ours"));
    let mut mkfs = peers.command("mkfs.erofs");
    let mkfs = mkfs.args(format!("--quiet {options}=theirs image src").split(' '));
    assert_eq!(run(mkfs.current_dir(shop.dir.path())).status, Some(0));
    let [ours, theirs] =
        ["ours", "theirs"].map(|name| fs::read_to_string(shop.path(name)).unwrap());
    assert_eq!(ours, theirs);
}
