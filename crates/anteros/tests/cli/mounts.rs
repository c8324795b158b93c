//! Images mounted by the kernel and by FUSE.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anteros_tests::judge;

use crate::{Signal, Workshop, file_system_at, kill, run, same, wait_until_served};

fn shop_with_image() -> Workshop {
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc,9");
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::set_permissions(shop.path("mnt"), fs::Permissions::from_mode(0o777)).unwrap();
    shop
}

#[test]
fn the_kernel_mounts_where_it_may() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop_with_image();
    let mount = shop.path("mnt");
    for how in ["mount image mnt", "mount --kernel image mnt"] {
        assert_eq!(shop.good(how), "");
        assert_eq!(file_system_at(&mount).as_deref(), Some("erofs"));
        assert!(same(&shop.path("src"), &mount));
        assert_eq!(shop.good("umount mnt"), "");
        assert_eq!(file_system_at(&mount), None);
    }
    shop.good("mkfs further src --offset 1M");
    shop.good("mount --kernel --offset 1M further mnt");
    assert!(same(&shop.path("src"), &mount));
    shop.good("umount mnt");
}

#[test]
fn extra_devices_are_mounted_with_the_image() {
    if !judge::has_kernel() || !judge::has_fuse() {
        return;
    }
    let shop = shop_with_image();
    let fixtures = anteros_tests::fixtures();
    let (image, extra) = fixtures
        .iter()
        .find(|(_, extra)| !extra.is_empty())
        .unwrap();
    let (image, extra) = (image.display(), extra[0].display());
    for (how, kind) in [("--kernel", "erofs"), ("--fuse", "fuse")] {
        shop.good(&format!("mount {how} {image} mnt --device {extra}"));
        let found = file_system_at(&shop.path("mnt")).unwrap();
        assert!(found.starts_with(kind), "{found}");
        shop.good(&format!("verify {image} mnt --device {extra}"));
        shop.umount("mnt");
    }
}

#[test]
fn fuse_serves_in_the_background_until_it_is_unmounted() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop_with_image();
    let mount = shop.path("mnt");
    assert_eq!(shop.good("mount --fuse image mnt"), "");
    assert!(file_system_at(&mount).unwrap().starts_with("fuse"));
    assert!(same(&shop.path("src"), &mount));
    shop.umount("mnt");
    assert_eq!(file_system_at(&mount), None);
}

/// Neither `--fuse` nor `--kernel`: what a user cannot have from the kernel comes by FUSE. `/dev/fuse` belongs to root
/// alone on some machines, so the user gets a copy of it in a mount namespace that ends with the test.
#[test]
fn a_user_without_rights_mounts_through_fuse() {
    if !judge::has_fuse() {
        return;
    }
    if !judge::is_root() || !Path::new("/usr/bin/fusermount3").exists() {
        return judge::missing("a user beside root, and fusermount3");
    }
    let shop = shop_with_image();
    let mounted = run(&mut shop.apart(AS_USER));
    assert_eq!(mounted.status, Some(0), "{mounted:?}");
    assert_eq!(
        mounted.out.lines().last(),
        Some("all the same"),
        "{mounted:?}"
    );
}

const AS_USER: &str = r#"
mkdir dev
mount -t tmpfs tmpfs dev
mknod dev/fuse c 10 229
chmod 666 dev/fuse
mount --bind dev/fuse /dev/fuse
chown 65534:65534 mnt
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
$user ./anteros mount image mnt
grep "$PWD/mnt fuse" /proc/self/mounts
$user diff -r --no-dereference src mnt && echo "all the same"
$user ./anteros umount mnt
! grep -q "$PWD/mnt" /proc/self/mounts
"#;

#[test]
fn a_daemon_in_the_foreground_unmounts_when_told_to_stop() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop_with_image();
    let mount = shop.path("mnt");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = shop
            .heeding("mount --fuse --foreground image mnt")
            .spawn()
            .unwrap();
        wait_until_served(&mount);
        assert_eq!(fs::read(mount.join("hello")).unwrap(), b"hello\n");
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert_eq!(file_system_at(&mount), None, "{signal:?}");
    }
}

#[test]
fn a_daemon_that_has_just_mounted_heeds_who_tells_it_to_stop() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop_with_image();
    let mount = shop.path("mnt");
    for _ in 0..20 {
        let mut child = shop
            .heeding("mount --fuse --foreground image mnt")
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while file_system_at(&mount).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        kill(&child, Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(file_system_at(&mount), None);
    }
}

#[test]
fn a_mount_in_use_is_not_torn_away() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop_with_image();
    shop.good("mount --fuse image mnt");
    let open = fs::File::open(shop.path("mnt/hello")).unwrap();
    let said = shop.bad(5, "umount mnt");
    assert!(said.contains("mnt: in use"), "{said}");
    drop(open);
    // The kernel tells the daemon of the closed file when it likes to.
    shop.umount("mnt");
}
