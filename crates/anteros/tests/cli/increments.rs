//! Tests images that are appended to, also under the name of mkfs.erofs. Judges are the kernel and erofs-utils, which makes
//! images to append to, and appends to ours.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::words;

use crate::{Run, Workshop, run};

const BASE: &str = r#"
mkdir -p base/d/s base/kept add/d/s add/new more/d
cp text base/text; head -c 70001 text >base/d/part; ln base/text base/d/again; ln -s d/part base/link; mkfifo base/pipe
for n in 1 2 3 4 5 6 7 8 9; do echo $n >base/kept/$n; head -c ${n}001 text >base/d/s/$n; done
truncate -s 1M base/sparse; echo end >>base/sparse; : >base/empty; echo old >base/d/both
setfattr -n user.same -v same base/kept/*; setfattr -n user.one -v one base/d; touch -d @7 base/text base/kept
echo new >add/d/both; tail -c 50000 text >add/d/s/1; echo n >add/new/n; ln add/new/n add/linked; chmod 700 add/d
echo more >more/d/more; cp more/d/more more/text
"#;

/// A workshop with a tree to append to, and two to append.
fn shop() -> Workshop {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    fs::write(shop.path("text"), words(6, 300_000)).unwrap();
    shop.good_script(BASE);
    shop
}

fn peer(shop: &Workshop, peers: &Peers, tool: &str, arguments: &str) -> Run {
    let mut tool = peers.command(tool);
    run(tool
        .args(arguments.split_whitespace())
        .current_dir(shop.dir.path()))
}

/// Prints everything of a tree.
fn listed(tree: &Path) -> String {
    let text = "find . | LC_ALL=C sort | xargs stat -c '%n %F %a %h %u %t:%T %Y'
        find . -type f | LC_ALL=C sort | xargs sha256sum
        find . | LC_ALL=C sort | xargs getfattr -h -d -m -";
    let mut shell = Command::new("sh");
    let told = run(shell.args(["-c", text]).current_dir(tree));
    assert_eq!(told.status, Some(0), "{told:?}");
    told.out
}

/// Prints everything of an image, as the kernel shows it, or else as we do.
fn shown(shop: &Workshop, image: &str) -> String {
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path(image), &[]).unwrap();
        return listed(mount.path());
    }
    shop.good(&format!("extract {image} out --quiet"));
    let text = listed(&shop.path("out"));
    fs::remove_dir_all(shop.path("out")).unwrap();
    text
}

/// The bytes of an image but for its superblock.
fn body(image: &[u8]) -> (&[u8], &[u8]) {
    (&image[..1024], &image[1152..])
}

/// Images of all forms, of both tools: nothing of them changes but the superblock, and the tree is that of layers.
#[test]
fn what_is_there_stays_where_it_is() {
    let shop = shop();
    let peers = Peers::find();
    shop.good("mkfs image base add --ovlfs-strip=0 --quiet");
    let expected = shown(&shop, "image");
    shop.good("mkfs image base add more --ovlfs-strip=0 --quiet");
    let expected_more = shown(&shop, "image");
    shop.good_script("tar -C more -cf more.tar d/more text");
    for options in [
        "",
        "-zlz4",
        "-zlz4hc -C65536",
        "-zlz4hc -C65536 -Eztailpacking",
        "-zlz4hc -C65536 -Efragments",
        "-zlzma -C65536 -Eall-fragments,ztailpacking",
        "-zzstd -C32768 -Ededupe",
        "-zlz4 -C16384 -E48bit",
        "-zlz4 -Elegacy-compress",
        "-zdeflate -C8192 -b1024",
        "-E^inline_data",
        "--chunksize=4096",
        "--chunksize=8192 -Eforce-chunk-indexes",
        "-Eforce-inode-extended -x-1",
    ] {
        for theirs in [false, true] {
            let made = format!("--quiet {options} image base");
            match (&peers, theirs) {
                (None, true) => continue,
                (Some(peers), true) => {
                    let made = peer(&shop, peers, "mkfs.erofs", &made);
                    assert_eq!(made.status, Some(0), "{options}: {made:?}");
                }
                (_, false) => shop.good_script(&format!("./mkfs.erofs {made}")),
            }
            let before = fs::read(shop.path("image")).unwrap();
            shop.good_script("./mkfs.erofs --quiet --incremental=data image add");
            let has_attributes = !options.contains("-x-1");
            let judge = |expected: &str| {
                shop.good("check image");
                if has_attributes {
                    assert_eq!(shown(&shop, "image"), *expected, "{options} {theirs}");
                }
                if let Some(peers) = &peers {
                    let told = peer(&shop, peers, "fsck.erofs", "--extract image");
                    assert_eq!(told.status, Some(0), "{options}: {told:?}");
                }
            };
            judge(&expected);
            let after = fs::read(shop.path("image")).unwrap();
            let (front, old) = body(&before);
            let stays = body(&after).0 == front && body(&after).1.starts_with(old);
            assert!(stays, "{options} {theirs}");
            // Once more, compressed where that can be, of a directory and an archive.
            fs::copy(shop.path("image"), shop.path("copy")).unwrap();
            let compress = options.split(' ').next().unwrap();
            let compress = if compress.starts_with("-z") {
                compress
            } else {
                ""
            };
            shop.good_script(&format!(
                "./mkfs.erofs --quiet --incremental {compress} image more"
            ));
            judge(&expected_more);
            fs::rename(shop.path("copy"), shop.path("image")).unwrap();
            shop.good_script("./mkfs.erofs --quiet --tar=f --incremental image more.tar");
            shop.good("check image");
            assert_eq!(shop.good("cat image d/more text"), "more\nmore\n");
        }
    }
}

/// Images of ours to which erofs-utils has appended are read, and appended to.
#[test]
fn the_peer_appends_to_ours() {
    let shop = shop();
    let Some(peers) = Peers::find() else { return };
    for options in ["", "-zlz4", "-zlz4hc -C65536 -Efragments", "-zlz4 -E48bit"] {
        shop.good_script(&format!(
            "./mkfs.erofs --quiet {options} --root-xattr-isize=1024 image base"
        ));
        // Without the codec of the image it ends by a signal.
        let arguments = format!("--quiet {options} --incremental=data image add");
        let told = peer(&shop, &peers, "mkfs.erofs", &arguments);
        assert_eq!(told.status, Some(0), "{options}: {told:?}");
        assert_eq!(shop.good("cat image d/both new/n linked"), "new\nn\nn\n");
        shop.good_script("./mkfs.erofs --quiet --incremental image more");
        shop.good("check image");
        let all = shop.good("cat image d/both new/n linked d/more text");
        assert_eq!(all, "new\nn\nn\nmore\nmore\n");
        let told = peer(&shop, &peers, "fsck.erofs", "--extract image");
        assert_eq!(told.status, Some(0), "{options}: {told:?}");
    }
}

/// Whiteouts stay, as in a layer, or remove what they name.
#[test]
fn whiteouts_stay_or_remove() {
    let shop = shop();
    let marks = "mknod more/empty c 0 0 && setfattr -n trusted.overlay.opaque -v y more/d";
    if shop.script(marks).status != Some(0) {
        return; // nobody may make them here
    }
    for (options, listed) in [("", true), ("--ovlfs-strip=1", false)] {
        shop.good_script("./mkfs.erofs --quiet image base");
        shop.good_script(&format!(
            "./mkfs.erofs --quiet --incremental {options} image more"
        ));
        shop.good("check image");
        let names = shop.good("ls image /");
        assert_eq!(names.contains("empty"), listed, "{names}");
        assert_eq!(shop.good("ls image d"), "more\n");
    }
}

#[test]
fn room_is_left_and_filled_later() {
    let shop = shop();
    shop.good_script("./mkfs.erofs --quiet image base; tar -C add -cf add.tar .");
    shop.good_script("./mkfs.erofs --quiet --tar=f --incremental=rvsp image add.tar");
    shop.good("check image");
    assert_eq!(shop.good("cat image d/both"), "\0\0\0\0");
    assert_eq!(shop.good("cat image kept/3"), "3\n");
}

/// Whenever it is killed, the image is the old one or the new one.
#[test]
fn a_build_that_is_killed_leaves_an_image() {
    let shop = shop();
    fs::write(shop.path("add/large"), vec![7; 20 << 20]).unwrap();
    shop.good("mkfs base.img base --quiet");
    let old = fs::read(shop.path("base.img")).unwrap();
    let append = "mkfs image add --append --quiet";
    fs::copy(shop.path("base.img"), shop.path("image")).unwrap();
    shop.good(append);
    let new = shop.good("ls -lR image");
    let mut left = [0, 0];
    for delay in 0..40 {
        fs::copy(shop.path("base.img"), shop.path("image")).unwrap();
        let mut child = shop.command(append).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4 * delay));
        let _ = child.kill();
        child.wait().unwrap();
        let image = fs::read(shop.path("image")).unwrap();
        let is_old = image.starts_with(&old);
        left[usize::from(!is_old)] += 1;
        shop.good("check image");
        match is_old {
            true => assert_eq!(shop.good("cat image d/both"), "old\n"),
            false => assert_eq!(shop.good("ls -lR image"), new),
        }
    }
    assert!(left[0] > 0, "{left:?}");
    // What was left behind is no hindrance.
    shop.good(append);
    shop.good("check image");
    assert_eq!(shop.good("ls -lR image"), new);
}

#[test]
fn what_cannot_be_appended_to_is_told_and_stays() {
    let shop = shop();
    shop.good("mkfs image base --quiet -zlz4");
    shop.good("mkfs metabox base --quiet -m4096:lz4");
    shop.good("mkfs devices base --quiet --chunksize=4096 --blobdev=blob");
    fs::write(shop.path("other"), "no image").unwrap();
    let mut broken = fs::read(shop.path("image")).unwrap();
    let dump = shop.good("dump image --path kept");
    let nid: usize = dump.lines().next().unwrap()[22..].trim().parse().unwrap();
    let all = shop.good("dump image");
    let block = all
        .lines()
        .find(|line| line.starts_with("metadata from block"));
    let block: usize = block.unwrap()[22..].trim().parse().unwrap();
    broken[block * 4096 + nid * 32] ^= 0xe0;
    fs::write(shop.path("broken"), broken).unwrap();
    let names = ["image", "metabox", "devices", "other", "broken"];
    let read = || names.map(|name| fs::read(shop.path(name)).unwrap());
    let before = read();
    for (status, arguments, said) in [
        (2, "metabox add", "compressed metadata cannot be"),
        (
            2,
            "devices add",
            "the image has 1 extra devices, 0 were given",
        ),
        (3, "other add", "other: "),
        (3, "broken add", "nothing is appended to a broken image: "),
        (5, "none add", "none: "),
        (
            2,
            "image add -zzstd",
            "its superblock says nothing of that compression",
        ),
        (
            2,
            "image add -zlz4 -Efragments",
            "packing files together cannot be",
        ),
        (2, "image add -b1024 -E48bit", "another form of addresses"),
        (
            2,
            "image add --exclude-path d",
            "leaving paths out cannot be",
        ),
        (2, "image add --offset 4096", "an offset cannot be"),
        (2, "image add --verity", "a hash tree cannot be"),
        (2, "image add --xattr-inode-digest", "prefixes or digests"),
        (2, "image add --verify", "--append adds to what is there"),
        (
            2,
            "image metabox --content=refer",
            "extra devices cannot be",
        ),
    ] {
        let told = shop.run(&format!("mkfs --append {arguments}"));
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(said), "{arguments}: {told:?}");
        assert!(read() == before, "{arguments}");
    }
    // What was written until there was no more room is taken away again.
    fs::write(shop.path("add/large"), vec![7; 20 << 20]).unwrap();
    let limited = "trap '' XFSZ; ulimit -f 4096; ./mkfs.erofs --incremental image add";
    let told = shop.script(limited);
    assert!(
        told.status == Some(5) && told.err.contains("image"),
        "{told:?}"
    );
    assert!(read() == before);
}

/// A number that looks random, of a seed.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Changes some bytes of an image, most of them where its metadata may lie.
fn mutate(image: &mut [u8], seed: &mut u64) {
    let near = [128, 4096, 16384, image.len() - 1024];
    for _ in 0..=random(seed) % 3 {
        let range = near[random(seed) as usize % near.len()];
        let at = 1024 + random(seed) as usize % range;
        image[at] = match random(seed) % 4 {
            0 => 0,
            1 => 0xff,
            2 => image[at] ^ 1 << (random(seed) % 8),
            _ => random(seed) as u8,
        };
    }
}

/// An image is refused and stays as it is, or what is appended to it can be read.
#[test]
fn a_hostile_image_is_refused_or_appended_to() {
    let shop = shop();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut outcomes = [0, 0];
    for form in [
        "-znone",
        "-zlz4 -C16384 -Eforce-inode-extended",
        "-zlz4hc -Elegacy-compress,ztailpacking",
        "-zzstd --chunksize=4096 -Exattr-name-filter",
    ] {
        shop.good(&format!("mkfs base.img base --quiet -Enosbcrc {form}"));
        let good = fs::read(shop.path("base.img")).unwrap();
        for number in 0..60 {
            let mut image = good.clone();
            mutate(&mut image, &mut seed);
            fs::write(shop.path("image"), &image).unwrap();
            let told = shop.run("mkfs image add --append --quiet");
            let is_refused = told.status != Some(0);
            outcomes[usize::from(is_refused)] += 1;
            match is_refused {
                true => {
                    let is_told = matches!(told.status, Some(2..=5));
                    assert!(is_told, "{form} {number}: {told:?}");
                    let left = fs::read(shop.path("image")).unwrap();
                    assert!(left == image, "{form} {number}: {told:?}");
                }
                false => {
                    let read = shop.run("cat image new/n");
                    let is_there = (read.status, &read.out[..]) == (Some(0), "n\n");
                    assert!(is_there, "{form} {number}: {read:?}");
                }
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}
