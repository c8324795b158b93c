//! Tests what the program does under the name of `mount.erofs`, called by scripts and by mount(8).

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anteros_tests::judge;

use crate::{NOBODY, Run, Workshop, file_system_at, run, same, wait_until};

/// A workshop with an image, also behind 4096 bytes of something else, and the program by that name.
fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.good("mkfs image src --quiet");
    shop.good("mkfs behind src --quiet --offset 4096");
    fs::create_dir(shop.path("mnt")).unwrap();
    symlink(&shop.program, shop.path("mount.erofs")).unwrap();
    shop
}

fn command(shop: &Workshop, arguments: &str) -> Command {
    let mut command = Command::new(shop.path("mount.erofs"));
    command
        .args(arguments.split_whitespace())
        .current_dir(shop.path(""));
    command
}

fn call(shop: &Workshop, arguments: &str) -> Run {
    run(&mut command(shop, arguments))
}

/// Expects a call to do what it is asked for, and to say nothing.
fn good(shop: &Workshop, arguments: &str) {
    let told = call(shop, arguments);
    let silent = (Some(0), String::new(), String::new());
    assert_eq!((told.status, told.out, told.err), silent, "{arguments}");
}

/// The options of the mount that `mnt` has.
fn options_at_mnt(shop: &Workshop) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = shop.path("mnt");
    let mut lines = mounts.lines().rev().map(|line| line.split(' '));
    let line = lines.find(|line| line.clone().nth(1) == place.to_str());
    let options = line.unwrap().nth(3).unwrap();
    options.split(',').map(str::to_owned).collect()
}

/// Returns the loop devices that have a file of the workshop.
fn loop_devices(shop: &Workshop) -> String {
    let listed =
        run(Command::new("losetup").args(["--list", "--noheadings", "--output=BACK-FILE"]));
    let here = |line: &&str| line.contains(shop.path("").to_str().unwrap());
    listed.out.lines().filter(here).collect()
}

/// Waits until the loop devices have gone. The kernel takes them away by itself after an unmounting, not before it ends.
fn wait_until_loops_are_gone(shop: &Workshop) {
    wait_until(|| loop_devices(shop).is_empty());
}

#[test]
fn the_kernel_mounts_as_scripts_ask_for_it() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    for arguments in [
        "image mnt",
        "-t erofs.local -d3 image mnt -o rw,nodev,x-gvfs-hide",
        "image mnt -nv -o rw,user_xattr,acl,cache_strategy=readahead",
        "-o ro,noatime,loop image mnt",
        "-o offset=4096 behind mnt",
        "-o loop,fsoffset=0x1000 behind mnt",
        "-s image mnt -o nonsense,other=1",
        "-s -o loop,nonsense image mnt",
    ] {
        good(&shop, arguments);
        let mount = shop.path("mnt");
        assert_eq!(
            file_system_at(&mount).as_deref(),
            Some("erofs"),
            "{arguments}"
        );
        assert!(same(&shop.path("src"), &mount), "{arguments}");
        assert_eq!(
            loop_devices(&shop).is_empty(),
            !arguments.contains("loop"),
            "{arguments}"
        );
        good(&shop, "-u mnt");
        assert_eq!(file_system_at(&mount), None, "{arguments}");
        wait_until_loops_are_gone(&shop);
    }
}

#[test]
fn flags_of_a_mount_are_those_that_were_told() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    for how in ["", "loop,"] {
        good(&shop, &format!("image mnt -o {how}nosuid,nodev,dev,noexec"));
        let options = options_at_mnt(&shop);
        let has = |wanted: &str| options.iter().any(|option| option == wanted);
        assert!(has("ro") && has("nosuid") && has("noexec"), "{options:?}");
        assert!(!has("nodev"), "{options:?}");
        good(&shop, "image mnt -o remount,nodev");
        let options = options_at_mnt(&shop);
        let has = |wanted: &str| options.iter().any(|option| option == wanted);
        assert!(has("nodev") && !has("noexec"), "{options:?}");
        good(&shop, "-u mnt");
    }
}

#[test]
fn a_block_device_is_mounted_as_it_is() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    let losetup = ["--find", "--show", "--read-only"];
    let made = run(Command::new("losetup")
        .args(losetup)
        .arg(shop.path("image")));
    let device = made.out.trim();
    good(&shop, &format!("{device} mnt -o rw"));
    let equal = same(&shop.path("src"), &shop.path("mnt"));
    good(&shop, "-u mnt");
    run(Command::new("losetup").args(["--detach", device]));
    assert!(equal);
}

#[test]
fn extra_devices_are_named_by_options() {
    if !judge::has_kernel() || !judge::has_fuse() {
        return;
    }
    let shop = shop();
    let fixtures = anteros_tests::fixtures();
    let (image, extra) = fixtures
        .iter()
        .find(|(_, extra)| !extra.is_empty())
        .unwrap();
    let (image, extra) = (image.display(), extra[0].display());
    for kind in ["erofs", "erofs.fuse"] {
        good(&shop, &format!("-t {kind} {image} mnt -o device={extra}"));
        shop.good(&format!("verify {image} mnt --device {extra}"));
        shop.umount("mnt");
        let refused = call(&shop, &format!("-t {kind} {image} mnt"));
        assert_eq!(refused.status, Some(32), "{refused:?}");
        assert!(refused.err.contains("-o device=FILE"), "{refused:?}");
    }
}

#[test]
fn fuse_serves_where_the_type_says_so() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop();
    let mount = shop.path("mnt");
    for arguments in [
        "-t erofs.fuse image mnt",
        "image mnt -o rw,loop,user_xattr,max_threads=3,nofail -t fuse.erofsfuse",
        "-t fuse -o offset=4096,noexec behind mnt",
    ] {
        good(&shop, arguments);
        let kind = file_system_at(&mount).unwrap();
        assert!(kind.starts_with("fuse"), "{arguments}: {kind}");
        assert!(same(&shop.path("src"), &mount), "{arguments}");
        shop.umount("mnt");
    }
}

#[test]
fn each_failure_has_the_status_of_mount() {
    let shop = shop();
    fs::write(shop.path("text"), "no image").unwrap();
    let image = fs::read(shop.path("image")).unwrap();
    fs::write(shop.path("cut"), &image[..1100]).unwrap();
    fs::write(shop.path("empty"), "").unwrap();
    for (arguments, status, text) in [
        ("none mnt", 32, "none: "),
        ("text mnt", 32, "text: "),
        ("cut mnt", 32, "cut: "),
        ("empty mnt", 32, "empty: "),
        ("mnt mnt", 32, "mnt: "),
        ("image none", 32, "none: "),
        ("image text", 32, "text: not a directory"),
        ("-t erofs.fuse none mnt", 32, "none: "),
        ("-t erofs.fuse image none", 32, "none: "),
        ("image", 1, "required"),
        ("", 1, "required"),
        ("image mnt --nonsense", 1, "--nonsense"),
        ("-t erofs.nbd image mnt", 1, "-t erofs.nbd is not supported"),
        ("-t ext4 image mnt", 1, "-t ext4 is not supported"),
        (
            "-o oci.layer=1 image mnt",
            1,
            "-o oci.layer is not supported",
        ),
        ("--reattach image mnt", 1, "--reattach is not supported"),
        ("--disconnect /dev/nbd0", 1, "--disconnect is not supported"),
        ("-N 1 image mnt", 1, "-N is not supported"),
        ("-o offset=x image mnt", 1, "offset=x"),
        (
            "-t erofs.fuse -o noacl image mnt",
            1,
            "-o noacl of FUSE is not supported",
        ),
        ("-t erofs.fuse -o max_threads=x image mnt", 1, "'x'"),
        ("-u mnt", 32, "nothing is mounted here"),
    ] {
        let told = call(&shop, arguments);
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(text), "{arguments}: {told:?}");
    }
    assert_eq!(file_system_at(&shop.path("mnt")), None);
    let version = call(&shop, "-V");
    assert!(version.out.starts_with("mount.erofs "), "{version:?}");
    assert_eq!(call(&shop, "-h").status, Some(0));
    good(&shop, "-f image mnt");
    assert_eq!(file_system_at(&shop.path("mnt")), None);
}

#[test]
fn options_that_the_kernel_does_not_know_are_named() {
    if !judge::has_kernel() {
        return;
    }
    let shop = shop();
    for (option, how) in [("nonsense", ""), ("a=1", "loop,"), ("cache_strategy=x", "")] {
        let refused = call(&shop, &format!("image mnt -o {how}{option}"));
        assert_eq!(refused.status, Some(1), "{refused:?}");
        let said = format!("mount.erofs: option -o {option} by the kernel is not supported");
        assert!(refused.err.contains(&said), "{refused:?}");
    }
    good(&shop, "image mnt");
    let refused = call(&shop, "image mnt");
    good(&shop, "-u mnt");
    assert_eq!(refused.status, Some(32), "{refused:?}");
    assert!(refused.err.contains("mounted here already"), "{refused:?}");
    wait_until_loops_are_gone(&shop);
}

#[test]
fn a_user_without_rights_is_told_of_fuse() {
    let shop = shop();
    let mut command = command(&shop, "image mnt");
    if judge::is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let refused = run(&mut command);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.err.contains("only root"), "{refused:?}");
    assert!(refused.err.contains("-t erofs.fuse"), "{refused:?}");
}

/// Runs in a mount namespace of its own, where the link stands among the helpers of mount(8).
#[test]
fn mount_calls_it_for_images() {
    if !judge::has_kernel() || !judge::has_fuse() {
        return;
    }
    let shop = shop();
    let told = run(&mut shop.apart(BY_MOUNT));
    assert_eq!(told.status, Some(0), "{told:?}");
    assert_eq!(told.out.lines().last(), Some("all the same"), "{told:?}");
    wait_until_loops_are_gone(&shop);
}

const BY_MOUNT: &str = r#"
mkdir sbin called programs
mount --bind /usr/sbin programs
ln -s "$PWD"/programs/* sbin
cat > sbin/mount.erofs <<END
#!/bin/sh
echo "\$@" >> $PWD/called/list
exec $PWD/mount.erofs "\$@"
END
chmod 755 sbin/mount.erofs
mount --bind sbin /usr/sbin
cat > fstab <<END
$PWD/image $PWD/mnt erofs ro,loop,nodev 0 0
END
cat > fstab.fuse <<END
$PWD/image $PWD/mnt erofs.fuse ro,nofail,x-systemd.requires=basic.target 0 0
END
check() {
    grep "^[^ ]* $PWD/mnt $1" /proc/self/mounts
    diff -r --no-dereference src mnt
    umount mnt
    ! grep "$PWD/mnt" /proc/self/mounts
    test "$(wc -l < called/list)" = "$2"
}
mount -t erofs image mnt; check erofs 1
mount -t erofs -o nosuid,user_xattr image mnt; check erofs 2
mount -T fstab mnt; check erofs 3
mount -t erofs.fuse image mnt; check fuse 4
mount -T fstab.fuse mnt; check fuse 5
mount -T fstab -a; check erofs 6
status=0
mount -t erofs -o nonsense image mnt 2>/dev/null || status=$?
test $status = 1
echo "all the same"
"#;

/// As lines of fstab have it whose type is `erofs.anteros` or `fuse.anteros`.
#[test]
fn helpers_of_our_own_name_have_the_daemon_serve_the_image() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop();
    for name in ["mount.erofs.anteros", "mount.fuse.anteros"] {
        symlink(&shop.program, shop.path(name)).unwrap();
        let mut helper = Command::new(shop.path(name));
        let arguments = ["image", "mnt", "-o", "ro,nodev"];
        let told = run(helper.args(arguments).current_dir(shop.path("")));
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{name}");
        let mount = shop.path("mnt");
        let kind = file_system_at(&mount).unwrap();
        assert!(kind.starts_with("fuse"), "{name}: {kind}");
        assert!(same(&shop.path("src"), &mount), "{name}");
        shop.umount("mnt");
    }
    good(&shop, "-t erofs.anteros image mnt");
    shop.umount("mnt");
}
