//! Tests patches that are layers: an image of what is new, on the image that it is of. Judges are the kernel, erofs-utils,
//! which makes images to patch as well, and `verify`.

use std::fs;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::Random;

use crate::patches::{CHANGES, FORMS, change, listed, make, peer, shop};
use crate::{Workshop, file_system_at};

/// Has all judges look at a layer that is to be as a tree.
fn judge_layer(shop: &Workshop, peers: Option<&Peers>, tree: &str, what: &str) {
    shop.good("check layer --device image");
    shop.good(&format!("verify layer --device image {tree}"));
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path("layer"), &[shop.path("image")]).unwrap();
        assert_eq!(listed(mount.path()), listed(&shop.path(tree)), "{what}");
    }
    if let Some(peers) = peers {
        // It looks for content on the layer alone, so it cannot extract.
        let told = peer(shop, peers, "fsck.erofs", "--device=image layer");
        assert_eq!(told.status, Some(0), "{what}: {told:?}");
    }
}

/// Adds a large file to both trees, which differs a little.
fn add_large(shop: &Workshop) {
    shop.good_script(
        "cat text text text >base/large; cp -a base/large tree/large
        printf changed | dd of=tree/large bs=1 seek=400000 conv=notrunc 2>/dev/null; echo more >>tree/large",
    );
}

/// Layers on images of all forms, of both tools: the image stays as it is.
#[test]
fn a_layer_is_the_new_tree_on_the_image() {
    let shop = shop();
    let peers = Peers::find();
    shop.good_script(CHANGES);
    add_large(&shop);
    for options in FORMS {
        for theirs in [false, true] {
            if !make(&shop, peers.as_ref(), ("image", "base"), options, theirs) {
                continue;
            }
            let what = format!("{options} {theirs}");
            let before = fs::read(shop.path("image")).unwrap();
            shop.good("patch image --layer layer --from tree --quiet");
            judge_layer(&shop, peers.as_ref(), "tree", &what);
            assert!(fs::read(shop.path("image")).unwrap() == before, "{what}");
            let layer = fs::read(shop.path("layer")).unwrap();
            assert!(layer.len() * 2 < before.len(), "{what}: {}", layer.len());
            shop.good("patch image --layer layer --from tree --quiet --workers 1");
            assert!(fs::read(shop.path("layer")).unwrap() == layer, "{what}");
        }
    }
}

/// A layer stays good when its image is patched, and says so of an image that is another one.
#[test]
fn a_layer_knows_its_image() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet -zlz4hc -C65536 -Eztailpacking");
    let told = shop.good("patch image --layer layer --from tree");
    assert!(
        told.starts_with("layer: ") && told.contains(" added, "),
        "{told}"
    );
    shop.good("mkfs other tree --quiet");
    let told = shop.bad(2, "ls layer --device other");
    let wanted = "other) is not the image that this one is a layer on: UUID ";
    assert!(told.contains(wanted), "{told}");
    let told = shop.bad(2, "ls layer --device text");
    assert!(told.contains("no EROFS image instead of UUID "), "{told}");
    let told = shop.bad(2, "ls layer");
    let wanted = "the image has 1 extra devices, 0 were given; the next is the image with UUID ";
    assert!(told.contains(wanted), "{told}");
    let told = shop.bad(2, "patch layer --from tree");
    assert!(
        told.contains("this command takes no extra devices"),
        "{told}"
    );
    shop.good_script("head -c 100000 image >short");
    let told = shop.bad(3, "ls layer --device short");
    assert!(
        told.contains("extra device 1 (short) has 100000 bytes"),
        "{told}"
    );
    shop.good("patch image --delete d/both --quiet");
    judge_layer(&shop, Peers::find().as_ref(), "tree", "of a patched image");
    if !judge::has_fuse() {
        return;
    }
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse layer --device image mnt");
    let mount = shop.path("mnt");
    assert!(file_system_at(&mount).unwrap().starts_with("fuse"));
    assert_eq!(listed(&mount), listed(&shop.path("tree")));
    shop.umount("mnt");
}

/// Nothing is written where a layer cannot be, or there is nothing for it.
#[test]
fn a_layer_is_written_where_nothing_else_is() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet -zlz4");
    let before = fs::read(shop.path("image")).unwrap();
    let told = shop.bad(2, "patch image --layer image --from tree");
    assert!(told.contains("image: is the image"), "{told}");
    let told = shop.bad(2, "patch image --layer text --from tree");
    assert!(told.contains("text: is there, and is no image"), "{told}");
    let told = shop.bad(2, "patch image --layer base --from tree");
    assert!(
        told.contains("base: is there, and is no regular file"),
        "{told}"
    );
    shop.bad(2, "patch image --layer layer");
    shop.bad(2, "patch image --layer layer --rollback 0");
    let told = shop.good("patch image --layer layer --from tree --dry-run");
    assert!(told.contains("D /gone\n"), "{told}");
    let told = shop.good("patch image --layer layer --from base");
    assert_eq!(told, "layer: nothing to change\n");
    assert!(!shop.path("layer").exists());
    shop.good("mkfs apart base --quiet --blobdev blob --chunksize=4096");
    let told = shop.bad(2, "patch apart --layer layer --from tree");
    assert!(told.contains("1 extra devices"), "{told}");
    // What an image has behind it stays as good as it was.
    shop.good("mkfs sealed base --quiet -zlz4 --verity");
    shop.good("patch sealed --layer layer --from tree --quiet");
    shop.good("verify layer --device sealed tree");
    // Archives, files and paths of the image.
    shop.good("patch image --layer layer --add text /d/ --delete kept --quiet");
    shop.good_script("cp -a base next; cp -a text next/d/; rm -r next/kept; touch -r base/d next/d; touch -r base next");
    judge_layer(&shop, None, "next", "of added files");
    assert!(fs::read(shop.path("image")).unwrap() == before);
}

#[test]
fn random_layers_follow_a_tree() {
    for (seed, options) in [
        (1, "-zlz4hc -C65536 -Eztailpacking"),
        (2, "-zlz4 -E48bit"),
        (3, "-zzstd -C16384 -Efragments,dedupe -b1024"),
        (4, "-znone -Eforce-inode-extended"),
        (5, "-znone --chunksize=4096"),
    ] {
        let shop = shop();
        let mut random = Random(seed);
        shop.good(&format!("mkfs image tree --quiet {options}"));
        for round in 0..8 {
            for _ in 0..=random.below(8) {
                change(&shop, &mut random);
            }
            shop.good("patch image --layer layer --from tree --quiet");
            if shop.path("layer").exists() {
                judge_layer(&shop, None, "tree", &format!("{options} {round}"));
            }
        }
        judge_layer(&shop, Peers::find().as_ref(), "tree", options);
    }
}

/// A broken image is refused, or the layer on it is whole.
#[test]
fn no_layer_is_made_of_a_broken_image() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet -Enosbcrc -zlz4 -C16384 -Efragments");
    let good = fs::read(shop.path("image")).unwrap();
    let mut random = Random(17);
    let mut outcomes = [0, 0];
    for number in 0..150 {
        let mut image = good.clone();
        let (from, len) = match number % 2 {
            0 => (1024, 128),
            _ => (image.len() / 2, image.len() as u64 / 2),
        };
        for _ in 0..=random.below(3) {
            image[from + random.below(len) as usize] ^= 1 << random.below(8);
        }
        fs::write(shop.path("image"), &image).unwrap();
        let _ = fs::remove_file(shop.path("layer"));
        let told = shop.run("patch image --layer layer --from tree --quiet");
        let is_refused = told.status != Some(0);
        outcomes[usize::from(is_refused)] += 1;
        match is_refused {
            true => {
                assert!(matches!(told.status, Some(2..=5)), "{number}: {told:?}");
                assert!(!shop.path("layer").exists(), "{number}");
            }
            false => {
                let told = shop.run("cat layer --device image new/n");
                assert_eq!(
                    (told.status, &told.out[..]),
                    (Some(0), "n\n"),
                    "{number}: {told:?}"
                );
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}
