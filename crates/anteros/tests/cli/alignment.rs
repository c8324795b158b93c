//! Tests where content begins and where an image ends, room for attributes, digests as attributes, and owners that become
//! others. Judges are the kernel and `fsck.erofs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::words;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::Workshop;

/// A workshop with some more files: large, small and equal ones.
fn shop() -> Workshop {
    let shop = Workshop::new();
    let write = |name: &str, content: &[u8]| fs::write(shop.path(name), content).unwrap();
    for n in 0..5 {
        write(
            &format!("src/words{n}"),
            &words(n, 30_000 * (n as usize + 1)),
        );
        write(&format!("src/small{n}"), &words(n, 500 * (n as usize + 1)));
    }
    write("src/equal", &words(4, 150_000));
    write("src/empty", b"");
    shop
}

/// The kernel shows the source, and `fsck.erofs` has nothing to say, with an option if there is one.
fn judge_image(shop: &Workshop, option: Option<&str>) {
    shop.good("check image");
    if let Some(peers) = Peers::find() {
        let mut fsck = peers.command("fsck.erofs");
        let told = fsck.args(option).arg(shop.path("image")).output().unwrap();
        // What is packed has no digest of its own.
        let stderr = String::from_utf8_lossy(&told.stderr).into_owned();
        let mut lines = stderr.lines();
        let is_clean = lines.all(|line| line.starts_with("<W> erofs: no digest xattr for nid"));
        assert!(told.status.success() && is_clean, "{told:?}");
    }
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        let mut diff = Command::new("diff");
        let diff = diff.args(["-r", "--no-dereference"]).arg(shop.path("src"));
        let told = diff.arg(mount.path()).output().unwrap();
        assert!(told.status.success() && told.stdout.is_empty(), "{told:?}");
    }
}

#[test]
fn content_begins_where_it_is_told() {
    let shop = shop();
    for (options, unit) in [
        ("-znone", 16),
        ("-znone -E^inline_data", 512),
        ("-znone -b512 --chunksize=4K", 32),
        ("-zlz4", 8),
        ("-zlz4 -C16K -Ededupe,fragments", 16),
        ("-zlz4 -E48bit", 4),
    ] {
        let more = format!("--dsunit={unit} --block-list-file list");
        shop.good(&format!("mkfs image src --quiet --verify {options} {more}"));
        judge_image(&shop, None);
        let list = fs::read_to_string(shop.path("list")).unwrap();
        // Of files that lie behind their inodes, nothing is aligned; neither is what is packed, or shared.
        let large = list.lines().filter(|line| {
            let is_alone = !options.contains("dedupe") || !line.starts_with("/words4 ");
            line.starts_with("/words") && is_alone
        });
        let mut seen = 0;
        for line in large {
            let first = line.split([' ', '-']).nth(1).unwrap();
            assert_eq!(first.parse::<u64>().unwrap() % unit, 0, "{options}: {line}");
            seen += 1;
        }
        assert!(seen >= 3, "{options}: {list}");
    }
    let told = shop.bad(2, "mkfs other src --dsunit=1000000");
    assert!(
        told.contains("aligned to 1000000 blocks of 4096 bytes"),
        "{told}"
    );
}

/// With nothing to align, an image is the one without the option.
#[test]
fn blocks_are_aligned_in_any_case() {
    let shop = shop();
    for options in ["-znone", "-zlz4 -Efragments,dedupe", "-zlz4 -E48bit -m4096"] {
        shop.good(&format!("mkfs image src --quiet {options}"));
        shop.good(&format!(
            "mkfs again src --quiet {options} --dsunit=1 --fsalignblks=1"
        ));
        let [image, again] = ["image", "again"].map(|name| fs::read(shop.path(name)).unwrap());
        assert!(image == again, "{options}");
    }
}

#[test]
fn an_image_ends_where_it_is_told() {
    let shop = shop();
    for (options, blocks, bytes) in [
        ("-znone", 300, 512 * 4096),
        ("-zlz4 -m4096", 64, 64 * 4096),
        ("-znone -b512", 1024, 1024 * 512),
    ] {
        shop.good(&format!(
            "mkfs image src --quiet {options} --fsalignblks={blocks}"
        ));
        judge_image(&shop, None);
        let len = fs::metadata(shop.path("image")).unwrap().len();
        assert_eq!(len % bytes, 0, "{options}");
        let dump = shop.good("dump image");
        assert!(
            dump.contains(&format!("image size            {len} ")),
            "{dump}"
        );
    }
}

#[test]
fn the_root_has_room_for_more_attributes() {
    let shop = shop();
    let root = shop.path("src");
    setxattr(&root, "user.note", b"kept", XattrFlags::empty()).unwrap();
    for options in ["-znone", "-zlz4 -m4096", "-x-1", "-znone -x0"] {
        shop.good(&format!("mkfs plain src --quiet {options}"));
        for bytes in [1, 16, 300, 65_532] {
            let more = format!("--root-xattr-isize={bytes}");
            shop.good(&format!("mkfs image src --quiet --verify {options} {more}"));
            judge_image(&shop, None);
            if judge::has_kernel() {
                let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
                let mut value = [0; 8];
                let found = getxattr(mount.path(), "user.note", &mut value[..]);
                let expected = (options != "-x-1").then_some(4);
                assert_eq!(found.ok(), expected, "{options} {more}");
            }
        }
        let [plain, image] = ["plain", "image"].map(|name| fs::metadata(shop.path(name)).unwrap());
        let is_compressed = options.contains("-m");
        assert!(
            is_compressed || image.len() > plain.len() + 60_000,
            "{options}"
        );
    }
    let told = shop.bad(2, "mkfs image src --root-xattr-isize=65533");
    assert!(told.contains("65532 are the most"), "{told}");
}

#[test]
fn digests_are_those_of_the_content() {
    let shop = shop();
    for (options, name) in [
        ("-znone", "user.digest"),
        ("-zlz4 -Efragments --xattr-prefix=user.dig", "user.digest"),
        ("-zlz4 --xattr-prefix=user.digest -x-1", "user.digest"),
        ("-zlz4hc --verify", ""),
    ] {
        let option = match name {
            "" => "--xattr-inode-digest".to_owned(),
            name => format!("--xattr-inode-digest={name}"),
        };
        shop.good(&format!("mkfs image src --quiet {options} {option}"));
        judge_image(&shop, Some("--xattr-inode-digest"));
        shop.good("check image --digests");
        let dump = shop.good("dump image");
        assert!(dump.contains("ishare_xattrs"), "{dump}");
        assert!(dump.contains("oldest Linux          6.4"), "{dump}");
        if name.is_empty() || !judge::has_kernel() {
            continue;
        }
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        let mut sum = Command::new("sh");
        let sums = sum.args(["-c", "find . -type f -size +0 -exec sha256sum {} +"]);
        let sums = sums.current_dir(shop.path("src")).output().unwrap();
        let sums = String::from_utf8(sums.stdout).unwrap();
        assert!(sums.lines().count() > 10);
        for line in sums.lines() {
            let (digest, path) = line.split_once("  ").unwrap();
            let mut value = [0; 64];
            let len = getxattr(mount.path().join(path), name, &mut value[..]).unwrap();
            let (head, rest) = value[..len].split_at(7);
            let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                (head, &hex[..]),
                (&b"sha256:"[..], digest),
                "{options}: {path}"
            );
        }
        assert!(getxattr(mount.path().join("empty"), name, &mut [0; 64][..]).is_err());
    }
    // Where erofs-utils finds wrong ones.
    shop.good("mkfs image src --quiet --xattr-inode-digest -zlz4 -m4096");
    shop.good("check image --digests");
    let told = shop.bad(2, "mkfs image src --xattr-inode-digest=user.");
    assert!(
        told.contains("`user.` of attributes with digests"),
        "{told}"
    );
}

#[test]
fn owners_become_others() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    for (name, uid, gid) in [("hello", 100_000, 100_050), ("empty", 1000, 165_535)] {
        chown(shop.path(&format!("src/{name}")), Some(uid), Some(gid)).unwrap();
    }
    let maps = "--uid-map 100000:0:65536 --uid-map 1000:70000:1 --uid-map 0:5:1 \
                --gid-map 100000:0:65536 --gid-map 0:6:1";
    shop.good(&format!(
        "mkfs image src --quiet --verify {maps} --gid-offset 1"
    ));
    let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
    for (name, owner) in [
        ("hello", (0, 51)),
        ("empty", (70_000, 65_536)),
        ("small0", (5, 7)),
    ] {
        let found = fs::metadata(mount.path().join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), owner, "{name}");
    }
    shop.good("mkfs image src --quiet --verify --uid-map 7:0:1 --force-uid 9");
    let told = shop.bad(4, "mkfs image src --uid-map 0:0:1");
    let expected = "src/empty: its owner 1000 is in no range of the map";
    assert!(told.contains(expected), "{told}");
    for (map, why) in [
        ("0:0", "FROM:TO:COUNT"),
        ("0:0:0", "0:0:0 is empty"),
        ("0:4294967295:2", "beyond 32 bits"),
        ("x:0:1", "FROM:TO:COUNT"),
    ] {
        let told = shop.bad(2, &format!("mkfs image src --gid-map {map}"));
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn content_beside_its_digest_is_told() {
    let shop = shop();
    shop.good("mkfs image src --quiet -znone --xattr-inode-digest=user.digest");
    let dump = shop.good("dump image --path words3 --extents");
    let at = dump.rsplit("device 0 at 0x").next().unwrap().trim();
    let at = usize::from_str_radix(at, 16).unwrap();
    let mut image = fs::read(shop.path("image")).unwrap();
    let before = image[at];
    image[at] ^= 1;
    fs::write(shop.path("image"), &image).unwrap();
    shop.good("check image");
    let text = "(/words3): the content has the SHA-256 ";
    let told = shop.run("check image --digests");
    assert!(
        told.status == Some(1) && told.out.contains(text),
        "{told:?}"
    );
    // What is no digest, and a file that has none.
    image[at] = before;
    let value = b"sha256:";
    let found = image.windows(7).position(|bytes| bytes == value).unwrap();
    image[found] = b'x';
    fs::write(shop.path("image"), &image).unwrap();
    let told = shop.run("check image --digests");
    let text = "and none of SHA-256";
    assert!(
        told.status == Some(1) && told.out.contains(text),
        "{told:?}"
    );
    shop.good("mkfs image src --quiet");
    let told = shop.run("check image --digests");
    let text = "digests are to be verified, but none are recorded";
    assert!(
        told.status == Some(1) && told.out.contains(text),
        "{told:?}"
    );
    assert!(
        shop.bad(2, "check image --digests --no-data")
            .contains("cannot be used with")
    );
}
