//! Tests images in which some clusters are stored in a quicker way than others.

use std::fs;
use std::process::Command;

use anteros_tests::judge::{self, has_fuse};
use anteros_tests::mount::KernelMount;
use anteros_tests::trees::{mixed, words};

use crate::{Workshop, run};

/// Half of the content shrinks little, whatever the codec; the other half shrinks most by LZMA.
fn shop() -> Workshop {
    let shop = Workshop::new();
    fs::write(shop.path("src/mixed"), mixed(1, 3_000_000)).unwrap();
    fs::write(shop.path("src/words"), words(2, 6_000_000)).unwrap();
    shop
}

/// Such a workshop with a profile `p` of some of it.
fn shop_with_profile() -> Workshop {
    let shop = shop();
    fs::write(
        shop.path("p"),
        "/mixed\t0\t500000\t1\n/mixed\t2500000\t1\t1\n",
    )
    .unwrap();
    shop
}

#[test]
fn clusters_of_two_codecs_read_as_one_tree() {
    let shop = shop();
    for options in ["-C64K", "-C64K -E48bit", "-C1M -Eall-fragments,dedupe"] {
        let mkfs = format!("mkfs image src -zlzma,0:lz4 --quick 30 {options}");
        shop.good(&format!("{mkfs} --verify"));
        shop.good("check image");
        let statistics = shop.good("dump image --statistics");
        for algorithm in ["extents, lz4 ", "extents, lzma "] {
            assert!(statistics.contains(algorithm), "{options}: {statistics}");
        }
        if !has_fuse() {
            continue;
        }
        fs::create_dir(shop.path("mnt")).unwrap();
        shop.good("mount --fuse image mnt");
        for name in ["mixed", "words"] {
            let [found, expected] = ["mnt", "src"].map(|dir| fs::read(shop.path(dir).join(name)));
            assert!(found.unwrap() == expected.unwrap(), "{options}: {name}");
        }
        shop.good("umount mnt");
        fs::remove_dir(shop.path("mnt")).unwrap();
    }
}

/// Clusters that save no more than that are stored as they are, also where there is one codec.
#[test]
fn what_saves_little_is_stored_as_it_is() {
    let shop = shop();
    let len = |options: &str| {
        shop.good(&format!("mkfs image src -C64K --quiet {options}"));
        fs::metadata(shop.path("image")).unwrap().len()
    };
    let sizes =
        ["", "--quick 0", "--quick 40", "--quick 100"].map(|quick| len(&format!("-zlz4 {quick}")));
    assert_eq!(sizes[0], sizes[1]);
    assert!(sizes[1] < sizes[2] && sizes[2] < sizes[3], "{sizes:?}");
    let statistics = shop.good("dump image --statistics");
    assert!(!statistics.contains("extents, lz4 "), "{statistics}");
}

/// Tests that the quick codec is for what a profile reads, if that is asked for.
/// Clusters of what a profile reads may be smaller than all others.
#[test]
fn what_a_profile_reads_is_in_small_clusters() {
    let shop = shop_with_profile();
    for options in [
        "-zlz4 -C64K",
        "-zzstd,1 -C256K -E48bit",
        "-zlzma,0 -C64K -Eztailpacking",
        "-zlz4hc -C64K -Eall-fragments,dedupe",
    ] {
        let mut images = Vec::new();
        for more in ["", "--hot-cluster 4K", "--hot-cluster 4K --workers 1"] {
            shop.good(&format!(
                "mkfs image src {options} --profile p {more} --verify"
            ));
            shop.good("check image");
            if judge::has_kernel() {
                let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
                let mut diff = Command::new("diff");
                let diff = diff.args(["-r", "--no-dereference"]).arg(shop.path("src"));
                let told = run(diff.arg(mount.path()));
                assert_eq!(
                    (told.status, &told.out[..]),
                    (Some(0), ""),
                    "{options} {more}"
                );
            }
            images.push(fs::read(shop.path("image")).unwrap());
        }
        assert!(
            images[0] != images[1] && images[1] == images[2],
            "{options}"
        );
    }
    let told = shop.bad(2, "mkfs other src -zlz4 --profile p --hot-cluster 5000");
    assert!(told.contains("5000 bytes"), "{told}");
    let told = shop.bad(2, "mkfs other src -zlz4 --hot-cluster 4K");
    assert!(told.contains("--profile"), "{told}");
}

#[test]
fn what_a_profile_reads_is_quick_to_read() {
    let shop = shop_with_profile();
    for options in [
        "-C64K",
        "-C16K -E48bit",
        "-C64K -Eztailpacking",
        "-C64K -Eall-fragments,dedupe",
    ] {
        let len = |more: &str| {
            shop.good(&format!(
                "mkfs image src -zlzma,0:lz4 {options} --profile p {more} --verify"
            ));
            shop.good("check image");
            fs::metadata(shop.path("image")).unwrap().len()
        };
        let sizes = ["--quick 0", "--hot-quick 30", "--quick 30"].map(len);
        assert!(
            sizes[0] < sizes[1] && sizes[1] < sizes[2],
            "{options}: {sizes:?}"
        );
    }
    // Without a second codec, it is stored as it is.
    shop.good("mkfs image src -zlz4 -C64K --profile p --hot-quick 100 --verify");
    let told = shop.bad(2, "mkfs other src -zlz4 --hot-quick 5");
    assert!(told.contains("--profile"), "{told}");
}
