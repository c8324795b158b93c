//! Tests where things are mounted, and what is taken away.

use std::fs;
use std::process::Command;

use anteros_tests::judge;

use crate::log::{mounted, unmount};
use crate::{Workshop, is_mounted, run, wait_until};

#[test]
fn what_others_have_mounted_is_not_taken_away() {
    let shop = Workshop::new();
    let error = shop.bad(5, "umount src");
    assert!(error.contains("src: nothing is mounted here"), "{error}");
    let said = shop.run_as_nobody("umount /proc");
    assert_eq!(said.status, Some(5), "{said:?}");
    assert!(
        said.err
            .contains("/proc: what is mounted here is not anteros'"),
        "{said:?}"
    );
    if !judge::is_root() {
        return judge::missing("a mount of somebody else (only root can mount)");
    }
    fs::create_dir(shop.path("behind")).unwrap();
    let mount = run(Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(shop.path("behind")));
    assert_eq!(mount.status, Some(0), "{mount:?}");
    let error = shop.bad(5, "umount behind");
    assert!(error.contains("not anteros' (tmpfs)"), "{error}");
    assert!(is_mounted(&shop.path("behind")));
}

#[test]
fn what_is_mounted_is_hidden_only_when_that_is_asked_for() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("32M");
    shop.good("mkfs --quiet image src");
    fs::write(shop.path("mnt/file"), "kept").unwrap();
    for command in [
        "mount --fuse image mnt",
        "passthru src mnt",
        "log mount log mnt",
    ] {
        let error = shop.bad(2, command);
        assert!(
            error.contains("mnt: a log is mounted here already"),
            "{command}: {error}"
        );
        assert!(error.contains("--stack"), "{command}: {error}");
    }
    match judge::is_root() {
        true => {
            shop.good("passthru --stack src mnt");
            assert!(shop.path("mnt/hello").exists());
            wait_until(|| shop.run("umount mnt").status == Some(0));
        }
        false => judge::missing("a mount on a mount, which fusermount3 refuses to make"),
    }
    assert_eq!(fs::read_to_string(shop.path("mnt/file")).unwrap(), "kept");
    unmount(&shop, daemon);
}
