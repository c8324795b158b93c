//! Tests what is said to those who give a command of logs something else.

use std::fs;

use crate::Workshop;

#[test]
fn what_is_no_log_is_called_by_its_name() {
    let shop = Workshop::new();
    fs::write(shop.path("empty"), "").unwrap();
    fs::create_dir(shop.path("mnt")).unwrap();
    for command in ["check", "check --repair", "dump", "stat", "gc"] {
        let said = shop.bad(3, &format!("log {command} empty"));
        assert!(
            said.contains("empty: an empty file is no log"),
            "{command}: {said}"
        );
    }
    for command in ["check", "check --repair", "dump"] {
        let said = shop.bad(5, &format!("log {command} src"));
        assert!(
            said.contains("src: is a directory, not a log"),
            "{command}: {said}"
        );
    }
    let said = shop.bad(2, "log mount mnt empty");
    assert!(said.contains("mnt: is a directory, not a log"), "{said}");
    assert!(
        said.contains("the log comes first: anteros log mount LOG DIRECTORY"),
        "{said}"
    );
}
