//! Tests long prefixes of attributes' names.

use std::fs;

use rustix::fs::{XattrFlags, setxattr};

use crate::Workshop;

/// Each of many attributes has the same prefix: it is written once, and the names stay what they are.
#[test]
fn prefixes_of_attributes_are_written_once() {
    let shop = Workshop::new();
    for file in 0..20 {
        let path = shop.path(&format!("src/{file}"));
        fs::write(&path, "content").unwrap();
        for name in ["one", "two", "three", "four"] {
            let name = format!("user.org.example.of-some-length.{name}");
            let value = format!("{file}");
            setxattr(&path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
        }
    }
    let prefix = "--xattr-prefix user.org.example.of-some-length.";
    for options in ["-znone", "-zlz4 -Efragments", "-zlz4 -m4096", "-b512"] {
        shop.good(&format!("mkfs plain src --quiet --verify {options}"));
        let plain = shop.good("dump plain --path 7 --json");
        let with = format!("mkfs image src --quiet --verify {options} {prefix} {prefix}");
        shop.good(&with);
        shop.good("check image");
        let text = shop.good("dump image");
        assert!(text.contains("xattr_prefixes"), "{text}");
        let len = |image: &str| fs::metadata(shop.path(image)).unwrap().len();
        assert!(len("image") <= len("plain"), "{options}");
        assert_ne!(shop.good("dump image --path 7 --json"), plain, "{options}");
    }
}
