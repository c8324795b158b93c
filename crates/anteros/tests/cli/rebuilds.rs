//! Tests images of images whose content stays where it is, is left out or filled in later, also under the name of mkfs.erofs.
//! Judges are the kernel and erofs-utils, which makes the same.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::words;

use crate::{Workshop, run};

/// Makes two trees, the second one to lie over the first.
const TREES: &str = r#"
mkdir -p low/d/below low/opaque low/gone low/kept up/d up/opaque up/kept
cp text low/d/text; ln low/d/text low/again; ln -s d/text low/link; mkfifo low/pipe; : >low/empty
echo low >low/d/both; echo g >low/gone/g; echo h >low/opaque/hidden; echo k >low/kept/k; echo o >low/d/below/o
truncate -s 200000 low/sparse; printf end >>low/sparse
echo up >up/d/both; head -c 70000 text >up/d/more; echo shown >up/opaque/shown
chmod 750 up/d; touch -d @7 low/d/text up/kept
"#;
/// Marks what of the lower tree is gone.
const MARKS: &str = "mknod up/gone c 0 0 && setfattr -n trusted.overlay.opaque -v y up/opaque && setfattr -n user.a -v b up/d";

/// A workshop with these trees; `None` if nobody may make whiteouts here.
fn shop() -> Option<Workshop> {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    fs::write(shop.path("text"), words(5, 300_000)).unwrap();
    assert_eq!(shop.script(TREES).status, Some(0));
    (shop.script(MARKS).status == Some(0)).then_some(shop)
}

/// Runs mkfs.erofs of erofs-utils in the workshop.
fn peer(shop: &Workshop, peers: &Peers, arguments: &str) {
    let mut mkfs = peers.command("mkfs.erofs");
    let mkfs = mkfs
        .args(["--quiet", "-T0"])
        .args(arguments.split_whitespace());
    let told = run(mkfs.current_dir(shop.dir.path()));
    assert_eq!(told.status, Some(0), "{arguments}: {told:?}");
}

/// Prints everything of an image as the kernel shows it, but for the properties of the root; `None` without such a kernel.
fn shown(shop: &Workshop, image: &str, devices: &[&str]) -> Option<String> {
    if !judge::has_kernel() {
        return None;
    }
    let devices: Vec<_> = devices.iter().map(|name| shop.path(name)).collect();
    let mount = KernelMount::new(&shop.path(image), &devices).unwrap();
    Some(listed(mount.path()))
}

fn listed(tree: &Path) -> String {
    let text = "find . -mindepth 1 | LC_ALL=C sort | xargs stat -c '%n %F %a %h %s %t:%T %Y'
        find . -type f | LC_ALL=C sort | xargs sha256sum
        find . | LC_ALL=C sort | xargs getfattr -h -d -m -";
    let mut shell = Command::new("sh");
    let told = run(shell.args(["-c", text]).current_dir(tree));
    assert_eq!(told.status, Some(0), "{told:?}");
    told.out
}

#[test]
fn images_of_images_are_those_of_the_peer() {
    let (Some(shop), Some(peers)) = (shop(), Peers::find()) else {
        return;
    };
    let layers = "./mkfs.erofs --quiet -T0 --mkfs-time -E^inline_data";
    // The peer copies no chunks.
    for (options, name) in [("", "img"), ("--holes=compress", "raw")] {
        for tree in ["low", "up"] {
            shop.good_script(&format!("{layers} {options} {tree}.{name} {tree}"));
        }
    }
    shop.good_script(
        "tar -C low -cf low.tar .; tar -C up --xattrs --xattrs-include='*' -cf up.tar .",
    );
    shop.good_script(
        "./mkfs.erofs --quiet --tar=i low.idx low.tar; ./mkfs.erofs --quiet --tar=i up.idx up.tar",
    );
    for (options, sources, devices) in [
        ("", "low.img up.img", &["low.img", "up.img"][..]),
        ("", "low.img", &["low.img"]),
        ("", "low.idx up.idx", &["low.tar", "up.tar"]),
        ("--ovlfs-strip=1", "low.img up.img", &["low.img", "up.img"]),
        ("--aufs --ovlfs-strip=1", "up.img", &["up.img"]),
        ("--clean", "low.raw up.raw", &[]),
        ("--clean=data --ovlfs-strip", "low.raw up.raw", &[]),
        ("--clean=rvsp", "low.img up.img", &[]),
    ] {
        peer(&shop, &peers, &format!("{options} theirs {sources}"));
        shop.good_script(&format!("./mkfs.erofs --quiet {options} ours {sources}"));
        let [theirs, ours] = ["theirs", "ours"].map(|image| shown(&shop, image, devices));
        assert_eq!(theirs, ours, "{options} {sources}");
        let told: String = devices
            .iter()
            .map(|name| format!(" --device {name}"))
            .collect();
        shop.good(&format!("check ours{told}"));
        let mut fsck = peers.command("fsck.erofs");
        let fsck = fsck.args(told.replace("--device ", "--device=").split_whitespace());
        let told = run(fsck
            .args(["--extract", "ours"])
            .current_dir(shop.dir.path()));
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{options}");
    }
    assert!(fs::metadata(shop.path("ours")).unwrap().len() > 300_000);
    // What the upper tree hides of others, were there some below.
    shop.good_script("./mkfs.erofs --quiet ours up.img low.img");
    let devices = "--device up.img --device low.img";
    for (path, is_opaque) in [("gone", true), ("opaque", true), ("d", false)] {
        let told = shop.good(&format!("dump ours --path {path} {devices}"));
        assert_eq!(told.contains("trusted.overlay.opaque"), is_opaque, "{told}");
    }
}

/// All devices behind each other are one disk, as a descriptor lists them.
#[test]
fn a_disk_has_all_devices_behind_the_image() {
    let Some(shop) = shop() else { return };
    let layers = "mkfs --quiet -znone -E^inline_data";
    shop.good(&format!("{layers} low.img low"));
    shop.good(&format!("{layers} up.img up"));
    shop.good_script("tar -C low -cf low.tar .");
    for (arguments, devices) in [
        (
            "--content=refer image low.img up.img",
            &["low.img", "up.img"][..],
        ),
        ("--chunksize=4096 --blobdev=blob image low", &["blob"]),
        ("--tar=i image low.tar", &["low.tar"]),
    ] {
        shop.good(&format!("mkfs --quiet --vmdk-desc vmdk {arguments}"));
        let descriptor = fs::read_to_string(shop.path("vmdk")).unwrap();
        let mut disk = fs::File::create(shop.path("disk")).unwrap();
        let extents = descriptor.lines().filter(|line| line.starts_with("RW "));
        let mut names = Vec::new();
        for extent in extents {
            let words: Vec<&str> = extent.split(' ').collect();
            let bytes = words[1].parse::<usize>().unwrap() * 512;
            let name = words[3].trim_matches('"');
            let mut content = fs::read(shop.path(name)).unwrap();
            content.resize(bytes, 0);
            disk.write_all(&content).unwrap();
            names.push(name.to_owned());
        }
        assert_eq!(names[0], "image", "{descriptor}");
        assert_eq!(names[1..], *devices, "{descriptor}");
        let apart = shown(&shop, "image", devices);
        assert_eq!(shown(&shop, "disk", &[]), apart, "{arguments}");
        let _ = fs::remove_file(shop.path("blob"));
    }
}

/// Content without a place that an image can refer to is stored in it; compressed content is refused.
#[test]
fn content_stays_where_that_can_be() {
    let Some(shop) = shop() else { return };
    let tree = |out: &str, options: &str| {
        shop.good(&format!("extract image {out} --quiet {options}"));
        let text = listed(&shop.path(out));
        fs::remove_dir_all(shop.path(out)).unwrap();
        text
    };
    shop.good("mkfs image low up --quiet -T7 --ovlfs-strip=0");
    let expected = tree("out", "");
    for (low, up) in [
        ("-znone", "-znone"),
        ("-znone -b512", "-znone -b4096 -E^inline_data"),
        ("-znone --chunksize=8K", "-znone -b1024 -m4096:lz4"),
    ] {
        shop.good(&format!("mkfs low.img low --quiet -T7 {low}"));
        shop.good(&format!("mkfs up.img up --quiet -T7 {up}"));
        for sources in ["low.img up.img", "low up.img", "low.img up"] {
            let refer = "mkfs image --quiet --content=refer --ovlfs-strip=0 -T7";
            shop.good(&format!("{refer} {sources}"));
            let devices: String = sources
                .split(' ')
                .filter(|name| name.ends_with(".img"))
                .map(|name| format!(" --device {name}"))
                .collect();
            shop.good(&format!("check image{devices}"));
            assert_eq!(tree("out", &devices), expected, "{low} {up} {sources}");
        }
    }
    shop.good("mkfs low.img low --quiet -zlz4");
    let told = shop.bad(4, "mkfs image low.img --content=refer");
    assert!(
        told.contains("low.img/again: it is compressed")
            || told.contains("low.img/d/text: it is compressed"),
        "{told}"
    );
    shop.good("mkfs up.img up --quiet -znone");
    let told = shop.bad(2, "mkfs up.img up.img --content=refer");
    assert!(told.contains("up.img: is to keep content"), "{told}");
}

/// An image of several devices is a source, if these are told, or not read.
#[test]
fn images_of_several_devices_are_sources() {
    let Some(shop) = shop() else { return };
    shop.good("mkfs low.img low --quiet --chunksize=4096 --blobdev low.blob");
    shop.good("mkfs up.img up --quiet --chunksize=4096 --blobdev up.blob");
    let devices = "--device low.blob --device up.blob";
    shop.good(&format!("mkfs image low.img up.img {devices} --quiet"));
    shop.good("mkfs other low up --quiet");
    assert!(fs::read(shop.path("image")).unwrap() == fs::read(shop.path("other")).unwrap());
    let told = shop.bad(2, "mkfs image low.img up.img --device low.blob");
    assert!(
        told.contains("up.img: the image has 1 extra devices, 0 were given"),
        "{told}"
    );
    let told = shop.bad(
        2,
        &format!("mkfs image low.img up.img {devices} --device text"),
    );
    assert!(told.contains("text: no source has this device"), "{told}");
    shop.good("mkfs image low.img up.img --content=refer --quiet");
    shop.good(&format!("check image {devices}"));
    let len = fs::metadata(shop.path("image")).unwrap().len();
    assert!(len < 30_000, "{len}");
}

/// Nothing of an archive is read but its headers.
#[test]
fn headers_alone_make_files_of_zeros() {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    let head = |name: &str, kind: u8, bytes: u64| {
        let mut head = vec![0; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..107].copy_from_slice(b"0000644");
        for at in [108, 116] {
            head[at..at + 7].copy_from_slice(b"0000000");
        }
        head[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
        head[136..147].copy_from_slice(b"00000000007");
        head[156] = kind;
        head[257..265].copy_from_slice(b"ustar\x0000");
        head[148..156].fill(b' ');
        let sum: u64 = head.iter().map(|byte| u64::from(*byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        head
    };
    let mut archive = Vec::new();
    for (name, kind, bytes) in [
        ("d/", b'5', 0),
        ("d/small", b'0', 5),
        ("d/empty", b'0', 0),
        ("large", b'0', (5 << 30) + 7),
    ] {
        archive.extend(head(name, kind, bytes));
    }
    archive.extend([0; 1024]);
    fs::write(shop.path("heads"), &archive).unwrap();
    shop.good_script("./mkfs.erofs --quiet -T7 --tar=headerball image heads");
    shop.good_script("gzip <heads | ./mkfs.erofs --quiet -T7 --tar=headerball piped");
    shop.good("mkfs own heads --tar=headers --quiet -T7");
    let image = fs::read(shop.path("image")).unwrap();
    assert!(image.len() <= 8192, "{}", image.len());
    for other in ["piped", "own"] {
        assert!(fs::read(shop.path(other)).unwrap() == image, "{other}");
    }
    shop.good("check image");
    let listed = shop.good("ls -l image /");
    assert!(listed.contains(" 5368709127 "), "{listed}");
    assert_eq!(shop.good("cat image d/small"), "\0\0\0\0\0");
    if let Some(peers) = Peers::find() {
        peer(&shop, &peers, "--tar=headerball theirs heads");
        shop.good_script("./mkfs.erofs --quiet -T0 --tar=headerball image heads");
        let length = |image: &str| {
            let mount = KernelMount::new(&shop.path(image), &[]).unwrap();
            fs::metadata(mount.path().join("large")).unwrap().len()
        };
        if judge::has_kernel() {
            assert_eq!(["theirs", "image"].map(length), [(5 << 30) + 7; 2]);
        }
    }
    for (line, said) in [
        (
            "--tar=headerball image src",
            "is a directory, not an archive",
        ),
        (
            "--tar=headerball -T0 --xattr-inode-digest image heads",
            "none is read",
        ),
    ] {
        let told = shop.script(&format!("./mkfs.erofs {line}"));
        assert!(
            told.status == Some(2) && told.err.contains(said),
            "{told:?}"
        );
    }
    archive[512 + 156] = b'S';
    archive[512..1024].copy_from_slice(&{
        let mut head = head("d/small", b'S', 5);
        head[483..494].copy_from_slice(b"00000000005");
        head[148..156].fill(b' ');
        let sum: u64 = head.iter().map(|byte| u64::from(*byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        head
    });
    fs::write(shop.path("heads"), &archive).unwrap();
    let told = shop.bad(3, "mkfs image heads --tar=headers");
    assert!(told.contains("a sparse file of GNU tar"), "{told}");
}
