//! Judges of a log where nothing that is clean stays in memory, and where memory is as small as can be.

use std::fs;

use anteros_tests::judge;
use anteros_tests::model::{Ops, Plain, World, compare};
use anteros_tests::peers::posix_judge;

use crate::log::{mount, shop, unmount};
use crate::passthru::{has_pjdfstest, run_pjdfstest};
use crate::{run, same};

const WAYS: [&str; 2] = ["--evicts-always", "--memory 0"];

#[test]
fn fsx_finds_nothing_in_a_log_where_memory_holds_nothing() {
    if !judge::has_fuse() || posix_judge("fsx").is_none() {
        return;
    }
    for way in WAYS {
        let shop = shop("64M");
        let daemon = mount(&shop, way);
        let mut fsx = posix_judge("fsx").unwrap();
        fsx.args(["-N", "3000", "-S", "7", "mnt/file"])
            .current_dir(shop.dir.path());
        let found = run(&mut fsx);
        assert_eq!(found.status, Some(0), "{way}: {}", found.out);
        unmount(&shop, daemon);
    }
}

#[test]
#[ignore = "a campaign: it takes minutes"]
fn pjdfstest_finds_nothing_in_a_log_where_memory_holds_nothing() {
    if !has_pjdfstest() {
        return;
    }
    for way in WAYS {
        let shop = shop("256M");
        let daemon = mount(&shop, way);
        run_pjdfstest(&shop, "log");
        unmount(&shop, daemon);
    }
}

#[test]
fn a_log_does_at_random_what_a_directory_does_where_memory_holds_nothing() {
    const STEPS: u32 = 1500;
    if !judge::has_fuse() {
        return;
    }
    for (seed, way) in (10..).zip(WAYS) {
        let shop = shop("256M");
        let daemon = mount(&shop, way);
        let [plain, here] = ["plain", "mnt/here"].map(|name| shop.path(name));
        fs::create_dir(&plain).unwrap();
        fs::create_dir(&here).unwrap();
        let mut world = Plain::new(&here);
        let ops = Ops::new(seed).without_collapsing().without_seeking();
        let tested = (&mut world as &mut dyn World, &*here);
        compare(seed, STEPS, ops, tested, &plain);
        // It has files open.
        drop(world);
        unmount(&shop, daemon);
        let daemon = mount(&shop, way);
        assert!(same(&plain, &here), "{way}, after a mount");
        unmount(&shop, daemon);
    }
}
