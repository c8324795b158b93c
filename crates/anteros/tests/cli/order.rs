//! Tests the order in which `mkfs` stores files.

use std::fs;

use crate::Workshop;

const FILES: [&str; 6] = ["a", "b", "sub/c", "sub/d", "sub/deep/e", "z"];

/// A workshop whose source has a few files that do not shrink.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for name in FILES {
        let path = shop.path("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{name} ").repeat(5000)).unwrap();
    }
    shop
}

/// The files in the order in which their content lies in the image.
fn stored<'a>(shop: &Workshop, image: &str, files: &[&'a str]) -> Vec<&'a str> {
    let place = |path: &str| {
        let dumped = shop.json(&format!("dump {image} --path {path} --extents --json"));
        let extent = &dumped["extents"][0];
        let fragment = || extent["storage"].as_str()?.strip_prefix("fragment at ");
        extent["address"]
            .as_u64()
            .or_else(|| fragment()?.parse().ok())
            .unwrap_or_else(|| panic!("{extent}"))
    };
    let mut files = files.to_vec();
    files.sort_by_key(|path| place(path));
    files
}

#[test]
fn files_of_a_list_are_stored_first() {
    let shop = shop();
    fs::write(shop.path("list"), "z\n/sub/d\n\nsub\nb/\nz\n").unwrap();
    for options in [
        "-znone -Enoinline_data",
        "-zlz4 -C4K",
        "-zlzma -C1M -Eall-fragments",
        "-E48bit",
    ] {
        shop.good(&format!(
            "mkfs image src {options} --order-list list --verify"
        ));
        assert_eq!(
            stored(&shop, "image", &FILES),
            ["z", "sub/d", "sub/c", "sub/deep/e", "b", "a"],
            "{options}"
        );
        shop.good(&format!("mkfs plain src {options}"));
        assert_eq!(
            stored(&shop, "plain", &FILES),
            ["a", "b", "z", "sub/c", "sub/d", "sub/deep/e"],
            "{options}"
        );
    }
}

#[test]
fn of_equal_files_the_one_in_the_list_lies_first() {
    let shop = shop();
    fs::copy(shop.path("src/a"), shop.path("src/sub/deep/same")).unwrap();
    fs::write(shop.path("list"), "sub/deep/same\n").unwrap();
    for options in ["-zlz4 -C4K -Ededupe", "-zlzma -C1M -Eall-fragments"] {
        shop.good(&format!(
            "mkfs image src {options} --order-list list --verify"
        ));
        assert_eq!(stored(&shop, "image", &FILES)[0], "a", "{options}");
    }
}

#[test]
fn paths_that_are_not_there_are_told() {
    let shop = shop();
    fs::write(shop.path("list"), "sub/d\nnothing\nsub/../a\nb/c\n").unwrap();
    let made = shop.run("mkfs image src --order-list list");
    assert_eq!(made.status, Some(0), "{made:?}");
    let told = made.err;
    assert!(
        told.contains("3 of the 4 paths") && told.contains("is nothing"),
        "{told}"
    );
    let told = shop.bad(5, "mkfs image src --order-list nowhere");
    assert!(told.contains("nowhere"), "{told}");
}

#[test]
fn files_of_a_profile_are_stored_first() {
    let shop = shop();
    fs::write(
        shop.path("profile"),
        "/z\t0\t10\t1\n/sub/d\t0\t4096\t1\n/a\t5000\t1\t1\n",
    )
    .unwrap();
    fs::write(shop.path("list"), "sub\n").unwrap();
    for options in [
        "-znone -Enoinline_data",
        "-zlz4 -C4K",
        "-zlzma -C1M -Eall-fragments",
        "-E48bit",
    ] {
        shop.good(&format!(
            "mkfs image src {options} --profile profile --order-list list --verify"
        ));
        assert_eq!(
            stored(&shop, "image", &FILES),
            ["z", "sub/d", "a", "sub/c", "sub/deep/e", "b"],
            "{options}"
        );
        shop.good("check image");
    }
}

/// The offsets and addresses of the extents of a file that have blocks.
fn addresses(shop: &Workshop, image: &str, path: &str) -> Vec<(u64, u64)> {
    let dumped = shop.json(&format!("dump {image} --path {path} --extents --json"));
    let extents = dumped["extents"].as_array().unwrap().iter();
    extents
        .filter_map(|extent| Some((extent["offset"].as_u64()?, extent["address"].as_u64()?)))
        .collect()
}

#[test]
fn a_large_file_is_cut_around_what_is_read() {
    let shop = shop();
    let mut text = String::new();
    (0..1_000_000u32).for_each(|n| text += &format!("{:x} ", n.wrapping_mul(2_654_435_761)));
    fs::write(shop.path("src/large"), &text).unwrap();
    fs::write(
        shop.path("profile"),
        "/large\t1000000\t50000\t1\n/b\t0\t1\t1\n/large\t300000\t1\t1\n",
    )
    .unwrap();
    for options in [
        "-zlz4 -C4K",
        "-zlz4 -C16K",
        "-zlzma -C8K -E48bit",
        "-zlz4 -C16K -Efragments",
    ] {
        shop.good(&format!(
            "mkfs image src {options} --profile profile --verify"
        ));
        let all = addresses(&shop, "image", "large");
        let place = |at: u64| {
            all.iter()
                .find(|extent| extent.0 == at)
                .unwrap_or_else(|| panic!("{options}: no extent begins at {at}: {all:?}"))
                .1
        };
        // What the kernel reads ahead lies around each, and streams begin where what is read does.
        let (first, second) = (place(868_352), place(167_936));
        assert!(
            first < place(999_424) && place(1_052_672) < second,
            "{options}: {all:?}"
        );
        assert!(
            second < place(299_008) && place(299_008) < place(303_104),
            "{options}: {all:?}"
        );
        let is_near =
            |at: u64| (868_352..1_183_744).contains(&at) || (167_936..434_176).contains(&at);
        let (near, others): (Vec<_>, Vec<_>) = all.iter().partition(|(at, _)| is_near(*at));
        let last = near.iter().map(|(_, address)| *address).max();
        assert!(others.len() > 10);
        for other in others {
            assert!(
                last < Some(other.1),
                "{options}: {other:?} lies in front of what is read"
            );
        }
    }
}

#[test]
fn ranges_that_are_not_there_are_told_and_a_bad_profile_is_refused() {
    let shop = shop();
    fs::write(
        shop.path("profile"),
        "/none\t0\t1\t1\n/a\t1000000\t1\t1\n/b\t0\t1\t1\n/none\t5\t1\t1\n",
    )
    .unwrap();
    let made = shop.run("mkfs image src --profile profile");
    assert_eq!(made.status, Some(0), "{made:?}");
    assert!(
        made.err.contains("3 of the 4 ranges") && made.err.contains("/none, /a"),
        "{}",
        made.err
    );
    fs::write(shop.path("profile"), "/a\t0\t1\t1\n/b\tx\t1\t1\n").unwrap();
    let told = shop.bad(2, "mkfs other src --profile profile");
    assert!(told.contains("profile: line 2"), "{told}");
    assert!(!shop.path("other").exists());
}

#[test]
fn packed_files_of_one_name_lie_together_unless_told_otherwise() {
    let shop = Workshop::new();
    let files = ["de/a", "de/b", "en/a", "en/b"];
    for (n, name) in files.iter().enumerate() {
        let path = shop.path("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{name} ").repeat(1000 + n)).unwrap();
    }
    let grouped = ["de/a", "en/a", "de/b", "en/b"];
    for (options, order) in [
        ("-Eall-fragments", grouped),
        ("-Efragments", grouped),
        ("--order=group", grouped),
        ("-Eall-fragments --order=path", files),
        ("-Ededupe", files),
    ] {
        shop.good(&format!("mkfs image src -zlz4 -C4K {options} --verify"));
        assert_eq!(stored(&shop, "image", &files), order, "{options}");
    }
}
