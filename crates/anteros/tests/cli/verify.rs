//! Comparisons that go on behind what cannot be read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::Workshop;

#[test]
fn what_cannot_be_read_is_told_as_a_difference_and_the_rest_is_compared() {
    let shop = Workshop::new();
    let set = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(shop.path(name), permissions).unwrap();
    };
    set("src/hello", 0o644);
    shop.good("mkfs image src");
    set("image", 0o644);
    set("src/hello", 0o000);

    let told = "\
/hello: mode 0644 in the image, 0000 in the source
/hello: the data cannot be read in the source: Permission denied (os error 13)
/sub/link: mode 0644 in the image, 0000 in the source
";
    let run = shop.run_as_nobody("verify image src --quiet");
    assert_eq!((run.status, &run.out[..]), (Some(1), told), "{run:?}");

    // What differs behind it is found as well.
    let text = shop.path("src/sub/text");
    let time = fs::metadata(&text).unwrap().modified().unwrap();
    let mut bytes = fs::read(&text).unwrap();
    bytes[5] ^= 1;
    fs::write(&text, bytes).unwrap();
    let file = fs::File::open(&text).unwrap();
    file.set_modified(time).unwrap();
    let run = shop.run_as_nobody("verify image src");
    let differs = "/sub/text: the data differs at byte 5\n";
    let end = "image: 4 differences (1 of what cannot be read) from src: 6 names, ";
    assert_eq!(run.status, Some(1), "{run:?}");
    let wanted = format!("{told}{differs}{end}");
    assert!(run.out.starts_with(&wanted), "{run:?}");
    let run = shop.run_as_nobody("verify image src --json");
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["equal"], false);
    assert_eq!(report["difference_count"], 4);
    assert_eq!(report["unreadable_count"], 1);
}
