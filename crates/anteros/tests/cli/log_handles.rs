//! File handles of a log, as servers of NFS take them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anteros_tests::judge;

use crate::log::{mount, mounted, unmount};
use crate::{Run, Workshop, run, wait_until};

/// `errno` of a handle of what is not there any more.
const ESTALE: Option<i32> = Some(116);

/// Builds the program that asks for handles and opens them.
fn handles(shop: &Workshop) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/handles.c");
    let program = shop.path("handles");
    let mut cc = Command::new("cc");
    let built = run(cc.args(["-o"]).arg(&program).arg(source));
    assert_eq!(built.status, Some(0), "{built:?}");
    program
}

#[test]
fn a_file_handle_opens_its_file_after_another_mount() {
    if !judge::has_fuse() {
        return;
    }
    if !judge::is_root() || !judge::has_program("cc") {
        return judge::missing("file handles (only root can open them, and a C compiler)");
    }
    let (shop, daemon) = mounted("64M");
    let program = handles(&shop);
    let ask = |what: &str, path: &str, kept: &str| -> Run {
        let mut ask = Command::new(&program);
        run(ask.arg(what).arg(shop.path(path)).arg(shop.path(kept)))
    };
    fs::create_dir_all(shop.path("mnt/a/b")).unwrap();
    for name in ["mnt/a/b/kept", "mnt/a/gone"] {
        fs::write(shop.path(name), name).unwrap();
        let kept = format!("{}.handle", name.rsplit('/').next().unwrap());
        assert_eq!(ask("save", name, &kept).status, Some(0));
        assert_eq!(ask("show", "mnt", &kept).out, name);
    }
    unmount(&shop, daemon);

    let daemon = mount(&shop, "");
    // Nothing of what leads there has been looked up.
    assert_eq!(ask("show", "mnt", "kept.handle").out, "mnt/a/b/kept");
    fs::rename(shop.path("mnt/a/b/kept"), shop.path("mnt/elsewhere")).unwrap();
    assert_eq!(ask("show", "mnt", "kept.handle").out, "mnt/a/b/kept");
    // The inode, then its generation.
    let mut other = fs::read(shop.path("kept.handle")).unwrap();
    other[16] ^= 1;
    fs::write(shop.path("other.handle"), other).unwrap();
    assert_eq!(ask("show", "mnt", "other.handle").status, ESTALE);
    fs::remove_file(shop.path("mnt/a/gone")).unwrap();
    wait_until(|| ask("show", "mnt", "gone.handle").status == ESTALE);
    unmount(&shop, daemon);

    let daemon = mount(&shop, "");
    assert_eq!(ask("show", "mnt", "gone.handle").status, ESTALE);
    assert_eq!(ask("show", "mnt", "other.handle").status, ESTALE);
    assert_eq!(ask("show", "mnt", "kept.handle").out, "mnt/a/b/kept");
    unmount(&shop, daemon);
}
