//! Tests the order in which `mkfs` stores files.

use std::fs;

use serde_json::Value;

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
        let dumped = shop.good(&format!("dump {image} --path {path} --extents --json"));
        let dumped: Value = serde_json::from_str(&dumped).unwrap();
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
