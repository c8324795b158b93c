//! `anteros log stat` and `dump` of a log that somebody writes to.

use anteros_tests::judge;

use crate::log::{mounted, unmount};

#[test]
fn what_is_told_of_a_log_in_use_comes_with_a_warning() {
    if !judge::has_fuse() {
        return judge::missing("/dev/fuse");
    }
    let (shop, daemon) = mounted("64M");
    for what in ["log stat", "log dump"] {
        let said = shop.run(&format!("{what} log"));
        assert_eq!(said.status, Some(0), "{said:?}");
        assert!(said.err.contains("in use"), "{said:?}");
    }
    unmount(&shop, daemon);
    for what in ["log stat", "log dump"] {
        let said = shop.run(&format!("{what} log"));
        assert_eq!((said.status, &*said.err), (Some(0), ""), "{said:?}");
    }
}
