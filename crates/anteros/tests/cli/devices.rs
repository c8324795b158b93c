//! Tests images whose content lies on an extra device: a blob, or the archive that they are an index of. Judges are the kernel
//! and `fsck.erofs`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::words;

use crate::{Workshop, run};

/// A workshop whose source has files of equal parts, holes and odd lengths.
fn shop() -> Workshop {
    let shop = Workshop::new();
    let write = |name: &str, content: &[u8]| fs::write(shop.path(name), content).unwrap();
    let text = words(3, 300_000);
    write("src/one", &text);
    write("src/two", &[&text[..200_704], b"another end"].concat());
    write("src/zeros", &[0; 70_001]);
    write("src/empty", b"");
    write("src/block", &text[..4096]);
    let sparse = fs::File::create(shop.path("src/sparse")).unwrap();
    sparse.write_all_at(&text[..10_000], 1 << 20).unwrap();
    sparse.set_len((3 << 20) + 5).unwrap();
    shop
}

/// The kernel shows the source, and neither `check` nor `fsck.erofs` has anything to say.
fn judge_image(shop: &Workshop, device: &str) {
    shop.good(&format!("check image --device {device}"));
    if let Some(peers) = Peers::find() {
        let mut fsck = peers.command("fsck.erofs");
        let option = format!("--device={device}");
        let told = run(fsck.args([&option, "image"]).current_dir(shop.dir.path()));
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{told:?}");
    }
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path("image"), &[shop.path(device)]).unwrap();
        let mut diff = Command::new("diff");
        let diff = diff.args(["-r", "--no-dereference"]).arg(shop.path("src"));
        let told = run(diff.arg(mount.path()));
        assert_eq!((told.status, &told.out[..]), (Some(0), ""), "{told:?}");
    }
}

#[test]
fn a_blob_holds_each_chunk_once() {
    let shop = shop();
    let len = |name: &str| fs::metadata(shop.path(name)).unwrap().len();
    for (options, blob_max) in [
        ("--chunksize=4K", 530_000),
        ("--chunksize=4K -b512 --verify", 530_000),
        ("--chunksize=64K -zlz4 -Efragments,48bit", 750_000),
        ("--chunksize=16K -zlz4 -m4096 --verify", 600_000),
    ] {
        let made = format!("mkfs image src --quiet --blobdev blob {options}");
        shop.good(&made);
        judge_image(&shop, "blob");
        assert!(
            (300_000..blob_max).contains(&len("blob")),
            "{options}: {}",
            len("blob")
        );
        assert!(len("image") < 60_000, "{options}: {}", len("image"));
        let [image, blob] = ["image", "blob"].map(|name| fs::read(shop.path(name)).unwrap());
        let again = made
            .replace("image", "again")
            .replace("blob blob", "blob more");
        let again = again.replace("--blobdev blob", "--blobdev more");
        shop.good(&format!("{again} --workers 1"));
        for (first, name) in [(&image, "again"), (&blob, "more")] {
            assert!(
                *first == fs::read(shop.path(name)).unwrap(),
                "{options}: {name}"
            );
        }
        let told = shop.bad(2, &made);
        assert!(told.contains("blob: holds something already"), "{told}");
        fs::remove_file(shop.path("blob")).unwrap();
        fs::remove_file(shop.path("more")).unwrap();
    }
    let dump = shop.good("mkfs image src --blobdev blob --chunksize 4K --json");
    assert!(dump.contains("\"device_bytes\": "), "{dump}");
    assert!(dump.contains("5.16"), "{dump}");
}

/// Another blob of the same form has another image.
#[test]
fn an_image_knows_its_blob() {
    let shop = shop();
    let build = |name: &str| {
        shop.good(&format!(
            "mkfs image src --quiet -T0 --blobdev {name} --chunksize 4K"
        ));
        fs::read(shop.path("image")).unwrap()
    };
    let first = build("blob");
    fs::write(shop.path("src/one"), words(4, 300_000)).unwrap();
    assert!(first != build("other"));
}

#[test]
fn an_index_leaves_content_in_the_archive() {
    let shop = shop();
    for tar in [
        "tar -c --format=posix -C src .",
        "tar -c --format=gnu --sparse -C src .",
        "tar -c --format=posix --sparse -C src .",
    ] {
        let mut shell = Command::new("sh");
        let script = format!("{tar} > archive");
        let told = run(shell.args(["-c", &script]).current_dir(shop.dir.path()));
        assert_eq!(told.status, Some(0), "{told:?}");
        shop.good("mkfs image archive --quiet --tar=i");
        judge_image(&shop, "archive");
        let len = fs::metadata(shop.path("image")).unwrap().len();
        assert!(len < 30_000, "{tar}: {len}");
        // As a layer of its own it is the same file.
        shop.good("extract image out --device archive --quiet");
        let mut diff = Command::new("diff");
        let told = run(diff.args(["-r", "src", "out"]).current_dir(shop.dir.path()));
        assert_eq!((told.status, &told.out[..]), (Some(0), ""), "{tar}");
        fs::remove_dir_all(shop.path("out")).unwrap();
    }
}

#[test]
fn devices_that_cannot_be_are_refused() {
    let shop = shop();
    let script = "tar -cf archive -C src . && gzip -k archive";
    let mut shell = Command::new("sh");
    assert_eq!(
        run(shell.args(["-c", script]).current_dir(shop.dir.path())).status,
        Some(0)
    );
    let one_archive = "an index is of one archive in a file, and not compressed";
    for (arguments, said) in [
        ("mkfs image archive.gz --tar=i", one_archive),
        ("mkfs image archive archive --tar=i", one_archive),
        ("mkfs image src --tar=i", "is a directory, not an archive"),
        (
            "mkfs image archive --tar=i -b4096",
            "those of archives have 512",
        ),
        ("mkfs image src --blobdev blob", "--chunksize <BYTES>"),
        (
            "mkfs image src --chunksize 4096 --blobdev image",
            "the blob and the image would be one file, image",
        ),
    ] {
        let told = shop.bad(2, arguments);
        assert!(told.contains(said), "{arguments}: {told}");
    }
    assert_eq!(shop.left(), ["archive", "archive.gz"]);
    shop.good("mkfs image archive --quiet --tar=i");
    let told = shop.bad(2, "ls image");
    assert!(told.contains("--device FILE"), "{told}");
}

#[test]
fn a_descriptor_names_the_device() {
    let Some(peers) = Peers::find() else { return };
    let shop = shop();
    let mut tar = Command::new("tar");
    let tar = tar.args(["-cf", "archive", "-C", "src", "."]);
    assert_eq!(run(tar.current_dir(shop.dir.path())).status, Some(0));
    let options = "-U12345678-9abc-def0-0123-456789abcdef --fsalignblks=256 --tar=i";
    shop.good(&format!(
        "mkfs image archive --quiet {options} --vmdk-desc ours"
    ));
    let mut mkfs = peers.command("mkfs.erofs");
    let options = format!("--quiet {options} --vmdk-desc=theirs image archive");
    let told = run(mkfs.args(options.split(' ')).current_dir(shop.dir.path()));
    assert_eq!(told.status, Some(0), "{told:?}");
    let [ours, theirs] =
        ["ours", "theirs"].map(|name| fs::read_to_string(shop.path(name)).unwrap());
    assert!(ours.contains("FLAT \"archive\" 0"), "{ours}");
    assert!(theirs.lines().count() > 10, "{theirs}");
    let rest = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with("RW"))
            .collect::<String>()
    };
    assert_eq!(rest(&ours), rest(&theirs), "{ours}\n{theirs}");
}

/// Extra devices that are files lie on loop devices while the kernel has the image mounted.
#[test]
fn the_kernel_mounts_what_lies_on_files() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    shop.good("mkfs image src --quiet --blobdev blob --chunksize=4K");
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::hard_link(&shop.program, shop.path("mount.erofs")).unwrap();
    let loops = || {
        let listed = run(Command::new("losetup").args(["-ln", "--output=BACK-FILE"]));
        let here = |line: &&str| line.contains(shop.path("").to_str().unwrap());
        listed.out.lines().filter(here).count()
    };
    let mount_erofs = || {
        let mut mount = Command::new(shop.path("mount.erofs"));
        let mount = mount.args(["image", "mnt", "-o", "device=blob"]);
        let told = run(mount.current_dir(shop.dir.path()));
        assert_eq!(told.status, Some(0), "{told:?}");
    };
    let ways: [&dyn Fn(); 2] = [
        &|| drop(shop.good("mount --kernel image mnt --device blob")),
        &mount_erofs,
    ];
    for way in ways {
        way();
        let mut diff = Command::new("diff");
        let diff = diff.args(["-r", "--no-dereference"]).arg(shop.path("src"));
        let told = run(diff.arg(shop.path("mnt")));
        assert_eq!((told.status, &told.out[..]), (Some(0), ""), "{told:?}");
        let umount = run(Command::new("umount").arg(shop.path("mnt")));
        assert_eq!(umount.status, Some(0), "{umount:?}");
        assert_eq!(loops(), 0);
    }
}
