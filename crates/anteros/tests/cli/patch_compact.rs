//! Tests images that are made anew with their current state alone.

use std::fs;

use anteros_tests::judge;
use anteros_tests::peers::Peers;

use crate::Workshop;
use crate::patches::{CHANGES, judge_image, shop};

fn len(shop: &Workshop, name: &str) -> u64 {
    fs::metadata(shop.path(name)).unwrap().len()
}

/// The UUID and the label of an image.
fn names(shop: &Workshop) -> Vec<u8> {
    fs::read(shop.path("image")).unwrap()[1024 + 48..1024 + 80].to_vec()
}

/// The current state stays, in an image that is as large as one that is built of it, with the same UUID and label.
#[test]
fn an_image_is_made_anew() {
    let peers = Peers::find();
    for options in [
        "",
        "-zlz4hc -C65536",
        "-zlz4hc -C65536 -Eztailpacking",
        "-zlz4hc -C65536 -Efragments",
        "-zlzma -C65536 -Eall-fragments,ztailpacking",
        "-zlz4hc -C16384 -E48bit",
        "-zdeflate,9 -C8192 -b1024",
        "-E^inline_data",
        "-Enosbcrc",
    ] {
        let shop = shop();
        shop.good(&format!("mkfs image base --quiet -L here {options}"));
        let before = names(&shop);
        shop.good_script(CHANGES);
        for tree in ["tree", "base", "tree"] {
            shop.good(&format!("patch image --from {tree} --quiet"));
        }
        shop.good_script(&format!(
            "./mkfs.erofs --quiet -L here {options} built tree"
        ));
        let patched = len(&shop, "image");
        let told = shop.good("patch image --compact");
        assert!(told.starts_with("image: ") && told.ends_with(", without former states\n"));
        judge_image(&shop, peers.as_ref(), "tree", options);
        assert_eq!(names(&shop), before, "{options}");
        let [image, built] = ["image", "built"].map(|name| len(&shop, name));
        assert!(image < patched, "{options}: {image} {patched}");
        assert!(image <= built + built / 100, "{options}: {image} {built}");
        let states = shop.good("patch image --list");
        assert!(states.lines().count() == 1 && states.starts_with("*    0  built"));
        // It is patched as any other one.
        shop.good("patch image --from base --quiet");
        judge_image(&shop, peers.as_ref(), "base", options);
    }
}

/// An image that cannot be made anew stays, and the way to do it is told.
#[test]
fn what_cannot_be_made_anew_stays() {
    let shop = shop();
    shop.good("mkfs image base --quiet");
    let before = fs::read(shop.path("image")).unwrap();
    let told = shop.bad(2, "patch image --compact --from tree");
    assert!(told.contains("cannot be used with"), "{told}");
    let mut broken = before.clone();
    let end = broken.len() - 4096;
    broken[end..end + 2048].fill(0xff);
    fs::write(shop.path("image"), &broken).unwrap();
    let told = shop.bad(3, "patch image --compact");
    assert!(told.contains("nothing is made of a broken image"), "{told}");
    assert!(fs::read(shop.path("image")).unwrap() == broken);
    fs::write(shop.path("image"), &before).unwrap();
    if !judge::is_root() || !judge::has_kernel() {
        return;
    }
    let script = "set +e; dev=$(losetup --show -f image); ./anteros patch $dev --compact; s=$?; losetup -d $dev; exit $s";
    let told = shop.script(script);
    assert_eq!(told.status, Some(4), "{told:?}");
    assert!(
        told.err.contains("only an image in a regular file"),
        "{told:?}"
    );
    assert!(told.err.contains("anteros mkfs NEW"), "{told:?}");
    assert!(fs::read(shop.path("image")).unwrap() == before);
}
