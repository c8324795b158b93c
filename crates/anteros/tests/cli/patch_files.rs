//! Tests patches that are files of their own. The judge is the image that was patched in place: both are equal to the byte.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anteros_tests::judge;
use anteros_tests::trees::{Random, words};

use crate::patches::{CHANGES, listed, shop};
use crate::{Workshop, file_system_at};

/// The place of the digest of a patch in it.
const DIGEST: std::ops::Range<usize> = 0x80..0xa0;

fn read(shop: &Workshop, name: &str) -> Vec<u8> {
    fs::read(shop.path(name)).unwrap()
}

fn copy(shop: &Workshop, from: &str, to: &str) {
    fs::copy(shop.path(from), shop.path(to)).unwrap();
}

/// A workshop with an image `base.img`, which `image` was before it was patched to have the tree `tree`, and the `patch`.
fn patched(options: &str) -> Workshop {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good(&format!("mkfs image base --quiet {options}"));
    copy(&shop, "image", "base.img");
    shop.good("patch image --from tree --quiet");
    shop.good("patch image --export patch --quiet");
    shop
}

/// Gives a patch the digest that its bytes have.
fn sealed(mut patch: Vec<u8>) -> Vec<u8> {
    patch[DIGEST].fill(0);
    let digest = blake3::hash(&patch);
    patch[DIGEST].copy_from_slice(digest.as_bytes());
    patch
}

/// Images of all forms get each state from a patch, and from one that takes several states together.
#[test]
fn a_patch_makes_elsewhere_what_it_was_made_of() {
    for options in [
        "",
        "-zlz4hc -C65536 -Efragments",
        "-zlz4 -E48bit",
        "-zdeflate -b1024 -Enosbcrc",
        "--small",
    ] {
        let shop = patched(options);
        copy(&shop, "base.img", "copy");
        let told = shop.good("patch copy --apply patch");
        assert!(told.ends_with(" of patch appended, as state 1\n"), "{told}");
        assert!(read(&shop, "copy") == read(&shop, "image"), "{options}");
        let told = shop.good("patch copy --apply patch");
        assert_eq!(told, "copy: has patch already, as state 1\n");
        shop.good_script("cp -a tree last; echo last >last/d/both; rm last/d/part");
        for step in ["--from last", "--rollback 0", "--from tree"] {
            shop.good(&format!("patch image {step} --quiet"));
            shop.good("patch image --export patch");
            shop.good("patch copy --apply patch");
            assert!(read(&shop, "copy") == read(&shop, "image"), "{options}");
        }
        shop.good("patch image --export all --since 0");
        copy(&shop, "base.img", "copy");
        shop.good("patch copy --apply all --quiet");
        assert!(read(&shop, "copy") == read(&shop, "image"), "{options}");
        shop.good("verify copy tree");
        let json = shop.good("patch copy --apply all --json");
        assert!(json.contains("\"applied\": false"), "{json}");
        // The patch from state 3 on is not one of state 0, and the image is not what it was.
        let told = shop.bad(2, "patch base.img --apply patch");
        assert!(told.contains("not in the state"), "{told}");
        shop.good("patch copy --rollback 1");
        let told = shop.bad(2, "patch copy --apply all");
        assert!(told.contains("not in the state"), "{told}");
    }
}

/// Tests that all that reads images reads the patched tree, and nothing is written.
#[test]
fn a_patch_lies_over_an_image() {
    for options in ["-zlz4 -C16384", "-znone", "-E48bit"] {
        let shop = patched(options);
        let before = read(&shop, "base.img");
        shop.good("verify --patch patch base.img tree");
        shop.good("check --quiet --patch patch base.img");
        for command in ["ls -lR", "dump"] {
            let over = shop.good(&format!("{command} --patch patch base.img"));
            assert_eq!(
                over.replace("base.img", "image"),
                shop.good(&format!("{command} image"))
            );
        }
        assert_eq!(shop.good("cat --patch patch base.img d/both"), "new\n");
        shop.good("extract --quiet --patch patch base.img out");
        assert_eq!(listed(&shop.path("out")), listed(&shop.path("tree")));
        shop.good("tar --quiet --patch patch base.img -o over.tar");
        shop.good("tar --quiet image -o image.tar");
        assert!(read(&shop, "over.tar") == read(&shop, "image.tar"));
        let told = shop.bad(2, "ls --patch patch image");
        assert!(told.contains("has the patch patch already"), "{told}");
        assert!(read(&shop, "base.img") == before);
    }
}

/// A patch that goes through a pipe is the one that a file has.
#[test]
fn a_patch_goes_to_standard_output() {
    let shop = patched("-zlz4 -Efragments");
    let told = shop.command("patch image --export -").output().unwrap();
    assert!(told.status.success() && told.stderr.is_empty(), "{told:?}");
    assert!(told.stdout == read(&shop, "patch") && !shop.path("-").exists());
    let told = shop.command("patch base.img --export -").output().unwrap();
    assert!(!told.status.success() && told.stdout.is_empty());
}

/// FUSE shows a patched image as the kernel does.
#[test]
fn a_patched_image_is_mounted_by_fuse() {
    if !judge::has_fuse() {
        return;
    }
    for options in ["-zlz4 -C16384", "-zlz4 -Eall-fragments -E48bit"] {
        let shop = patched(options);
        fs::create_dir(shop.path("mnt")).unwrap();
        shop.good("mount --fuse image mnt");
        let mount = shop.path("mnt");
        assert!(file_system_at(&mount).unwrap().starts_with("fuse"));
        assert_eq!(listed(&mount), listed(&shop.path("tree")), "{options}");
        shop.umount("mnt");
    }
}

#[test]
fn a_patch_is_mounted_over_an_image() {
    let shop = patched("-zlz4 -C16384");
    fs::create_dir(shop.path("mnt")).unwrap();
    let told = shop.bad(2, "mount --kernel --patch patch base.img mnt");
    assert!(
        told.contains("anteros patch base.img --apply patch"),
        "{told}"
    );
    if !judge::has_fuse() {
        return;
    }
    let before = read(&shop, "base.img");
    shop.good("mount --patch patch base.img mnt");
    let mount = shop.path("mnt");
    assert!(file_system_at(&mount).unwrap().starts_with("fuse"));
    assert_eq!(listed(&mount), listed(&shop.path("tree")));
    shop.umount("mnt");
    assert!(read(&shop, "base.img") == before);
}

/// Any byte that is another one, or missing, is noticed before anything is written; with a right digest, rules are.
#[test]
fn hostile_patches_are_refused() {
    let shop = patched("-zlz4 -C16384 -Enosbcrc");
    let before = read(&shop, "base.img");
    let good = read(&shop, "patch");
    assert!(sealed(good.clone()) == good);
    let mut random = Random(3);
    let refused = |patch: &[u8], number: u64, is_sealed: bool| {
        fs::write(shop.path("bad"), patch).unwrap();
        copy(&shop, "base.img", "copy");
        let told = shop.run("patch copy --apply bad --quiet");
        let is_refused = told.status != Some(0);
        if is_refused {
            assert!(matches!(told.status, Some(2..=4)), "{number}: {told:?}");
            assert!(told.err.contains("bad"), "{number}: {told:?}");
            assert!(read(&shop, "copy") == before, "{number}: {told:?}");
        } else {
            // Content of files is not checked by what it was, if the digest says that it is right.
            assert!(is_sealed, "{number}");
            shop.good("check --no-data --quiet copy");
        }
        let told = shop.run("cat --patch bad base.img text");
        assert!(is_sealed || told.status != Some(0), "{number}: {told:?}");
        is_refused
    };
    for number in 0..60 {
        let mut patch = good.clone();
        let len = if number % 2 == 0 { 512 } else { good.len() };
        patch[random.below(len as u64) as usize] ^= 1 << random.below(8);
        assert!(refused(&patch, number, false));
    }
    for (number, len) in [0, 7, 511, 512, 600, good.len() - 4096, good.len() - 1]
        .into_iter()
        .enumerate()
    {
        assert!(refused(&good[..len], 100 + number as u64, false));
        let told = shop.bad(3, "patch base.img --apply bad");
        let said = format!("bad: the patch is cut off: {len} bytes are there of ");
        assert!(told.contains(&said), "{told}");
    }
    assert!(refused(&[&good[..], &[0]].concat(), 200, false));
    let told = shop.bad(3, "patch base.img --apply bad");
    let said = format!("has {} bytes, and {} are there", good.len(), good.len() + 1);
    assert!(told.contains(&said), "{told}");
    let mut count = 0;
    for number in 300..400 {
        let mut patch = good.clone();
        let from = [0, 512, good.len() - 4096][number as usize % 3];
        let len = [512, good.len() - 4608, 1024][number as usize % 3];
        patch[from + random.below(len as u64) as usize] ^= 1 << random.below(8);
        count += u64::from(refused(&sealed(patch), number, true));
    }
    assert!(count > 40, "{count}");
}

/// An image that only looks like the right one has another digest, and what lies behind one is not lost.
#[test]
fn wrong_images_are_refused() {
    let shop = patched("-znone -Enosbcrc");
    shop.good_script("cp -a base twin");
    shop.good("mkfs other.img twin --quiet -znone -Enosbcrc -L other");
    let told = shop.bad(2, "patch other.img --apply patch");
    assert!(
        told.contains("the patch patch is of another image"),
        "{told}"
    );
    // The same superblock: a byte of a file is another one, in the middle of the image.
    let good = read(&shop, "base.img");
    let mut twin = good.clone();
    let at = twin
        .windows(8)
        .position(|part| part == &read(&shop, "text")[4096..4104])
        .unwrap();
    twin[at] ^= 1;
    fs::write(shop.path("twin.img"), &twin).unwrap();
    let told = shop.bad(2, "patch twin.img --apply patch");
    assert!(told.contains("but not its bytes"), "{told}");
    assert!(read(&shop, "twin.img") == twin);
    fs::write(
        shop.path("twin.img"),
        [&good[..], b"something else"].concat(),
    )
    .unwrap();
    let told = shop.bad(4, "patch twin.img --apply patch");
    assert!(told.contains("what lies behind the image"), "{told}");
    // The superblock alone makes no patched image.
    let mut twin = good.clone();
    twin[1024..1152].copy_from_slice(&read(&shop, "image")[1024..1152]);
    fs::write(shop.path("twin.img"), &twin).unwrap();
    let told = shop.run("patch twin.img --apply patch");
    assert!(told.err.contains("but not all of its bytes"), "{told:?}");
    assert!(read(&shop, "twin.img") == twin);
    for (status, arguments, said) in [
        (2, "base.img --export p", "was never patched"),
        (2, "image --export image", "is the image"),
        (2, "image --export text", "is there, and is no patch"),
        (2, "image --export p --since 1", "there is no state 1"),
        (2, "image --since 0", "--export"),
        (2, "image --export p --dry-run", "cannot be used with"),
        (3, "base.img --apply text", "magic"),
        (5, "base.img --apply none", "none"),
    ] {
        let told = shop.bad(status, &format!("patch {arguments}"));
        assert!(told.contains(said), "{arguments}: {told}");
    }
    assert!(!shop.path("p").exists() && read(&shop, "base.img") == good);
}

/// Whenever it is killed, the image is the old one or the new one, and the patch can be applied again.
#[test]
fn a_patch_that_is_killed_can_be_applied_again() {
    let shop = shop();
    shop.good("mkfs base.img base --quiet");
    copy(&shop, "base.img", "image");
    shop.good_script(CHANGES);
    fs::write(shop.path("tree/large"), words(7, 20 << 20)).unwrap();
    shop.good("patch image --from tree --quiet -znone");
    shop.good("patch image --export patch");
    let new = read(&shop, "image");
    let mut left = [0, 0];
    for delay in 0..24 {
        copy(&shop, "base.img", "copy");
        let mut apply = shop.command("patch copy --apply patch --quiet");
        let mut child = apply.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(8 * delay));
        let _ = child.kill();
        child.wait().unwrap();
        shop.good("check --quiet copy");
        let is_new = shop.good("cat copy d/both") == "new\n";
        left[usize::from(is_new)] += 1;
        let tree = if is_new { "tree" } else { "base" };
        shop.good(&format!("verify copy {tree}"));
        shop.good("patch copy --apply patch --quiet");
        assert!(read(&shop, "copy") == new);
    }
    assert!(left[0] > 0, "{left:?}");
}
