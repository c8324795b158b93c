//! Tests what commands write to: nothing is changed before it is clear that it may be, and that nobody else makes use
//! of it.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteros_tests::judge;

use crate::log::{mount, mounted, shop, unmount};
use crate::{Workshop, run, same, wait_until};

const MIB: u64 = 1 << 20;

/// Of loop devices there may be few: tests that take several come one after the other.
static LOOPS: Mutex<()> = Mutex::new(());

fn loops() -> MutexGuard<'static, ()> {
    LOOPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file, or a part of it, as a block device.
struct Loop(String);

impl Loop {
    /// Says so if that cannot be.
    fn of(file: &Path, options: &[&str]) -> Option<Self> {
        if !judge::is_root() || !judge::has_program("losetup") {
            judge::missing("a block device of the test's own");
            return None;
        }
        let mut attach = Command::new("losetup");
        let attached = run(attach.args(["--find", "--show"]).args(options).arg(file));
        assert_eq!(attached.status, Some(0), "{attached:?}");
        Some(Self(attached.out.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// A mount by the kernel, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn new(kind: &str, options: &str, source: &str, target: PathBuf) -> Self {
        fs::create_dir_all(&target).unwrap();
        let mut mount = Command::new("mount");
        let done = run(mount.args(["-t", kind, "-o", options, source]).arg(&target));
        assert_eq!(done.status, Some(0), "{done:?}");
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// A file of so many bytes with some of them written.
fn file_with(path: &Path, len: u64, pieces: &[(u64, &[u8])]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    for (at, piece) in pieces {
        file.write_all_at(piece, *at).unwrap();
    }
}

#[test]
fn a_log_that_is_mounted_is_not_cut() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("96M");
    for n in 0..20 {
        fs::write(shop.path(&format!("mnt/{n}")), vec![n; 1 << 20]).unwrap();
    }
    for command in [
        "log mkfs --force log --size 64M",
        "log mkfs --force log",
        "log resize log --size 64M",
        "log gc log",
        "log check --repair log",
        "mkfs --force log src",
    ] {
        let error = shop.bad(5, command);
        assert!(
            error.contains("in use by another process"),
            "{command}: {error}"
        );
    }
    assert_eq!(fs::metadata(shop.path("log")).unwrap().len(), 96 * MIB);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    for n in 0..20 {
        assert!(fs::read(shop.path(&format!("mnt/{n}"))).unwrap() == vec![n; 1 << 20]);
    }
    unmount(&shop, daemon);
}

#[test]
fn what_is_refused_for_its_size_is_as_it_was() {
    let shop = shop("64M");
    let raw: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
    fs::write(shop.path("raw"), &raw).unwrap();
    let before = fs::read(shop.path("log")).unwrap();
    for (status, command, said) in [
        (5, "log mkfs --force raw --size 1M", "too few"),
        (5, "log mkfs --force raw", "too few"),
        (5, "log mkfs --force log --size 20M", "too few"),
        (5, "log resize log --size 65M", "too few to grow"),
        (5, "log resize log --size 20M", "too few"),
        (3, "log resize raw --size 64M", "no log"),
    ] {
        let error = shop.bad(status, command);
        assert!(error.contains(said), "{command}: {error}");
        assert!(fs::read(shop.path("raw")).unwrap() == raw, "{command}");
        assert_eq!(
            fs::metadata(shop.path("log")).unwrap().len(),
            64 * MIB,
            "{command}"
        );
    }
    assert!(fs::read(shop.path("log")).unwrap() == before);
    assert_eq!(shop.left(), ["log", "mnt", "raw"]);
}

/// Marks as others leave them: at the beginning, far behind it, at the end; and data that begins with zeros.
#[test]
fn what_holds_something_is_overwritten_only_by_force() {
    let shop = Workshop::new();
    let cases: [(&str, u64, &[u8]); 8] = [
        ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
        ("an XFS file system", 0, b"XFSB"),
        ("an ext2 file system", 0x438, &[0x53, 0xef]),
        ("a LUKS volume", 0, b"LUKS\xba\xbe"),
        ("an LVM physical volume", 512, b"LABELONE"),
        (
            "a member of a RAID array",
            48 * MIB - 0x1_0000,
            &[0xfc, 0x4e, 0x2b, 0xa9],
        ),
        ("a partition table (GPT)", 48 * MIB - 512, b"EFI PART"),
        ("data that is no file system", 30 * MIB, b"x"),
    ];
    let at = shop.path("target");
    for (name, place, mark) in cases {
        file_with(&at, 48 * MIB, &[(place, mark)]);
        let before = fs::read(&at).unwrap();
        for command in [
            "log mkfs target",
            "log mkfs target --size 64M",
            "mkfs target src",
        ] {
            let error = shop.bad(2, command);
            let said = format!("target: holds something already: {name}");
            assert!(
                error.contains(&said) && error.contains("--force overwrites"),
                "{error}"
            );
            assert!(fs::read(&at).unwrap() == before, "{command}");
        }
    }
    shop.good("log mkfs --force target");
    assert!(
        shop.bad(2, "log mkfs target")
            .contains("holds something already: a log")
    );
    assert!(
        shop.bad(2, "mkfs target src")
            .contains("holds something already: a log")
    );
    shop.good("mkfs --quiet --force target src");
    // What this makes again is replaced, and so is what holds nothing.
    shop.good("mkfs --quiet target src");
    assert!(
        shop.bad(2, "log mkfs target --size 64M")
            .contains("an EROFS image")
    );
    file_with(&at, 48 * MIB, &[(0, &[0; 9000])]);
    shop.good("log mkfs target");
    fs::write(&at, "").unwrap();
    shop.good("mkfs --quiet target src");
    // In front of an image may be what likes; where it will lie, nothing.
    file_with(&at, MIB, &[(0, b"loader")]);
    shop.good("mkfs --quiet target src --offset 1M");
    shop.good("mkfs --quiet target src --offset 1M");
    file_with(&at, 2 * MIB, &[(0, b"loader"), (3 << 19, b"other")]);
    let error = shop.bad(2, "mkfs target src --offset 1M");
    assert!(error.contains("holds something already"), "{error}");
}

#[test]
fn file_systems_of_others_are_known_by_those_who_make_them() {
    let _loops = loops();
    let shop = Workshop::new();
    let at = shop.path("target");
    for (program, options, name) in [
        ("mkfs.ext4", &["-q", "-F"][..], "an ext4 file system"),
        ("mkfs.xfs", &["-q", "-f"], "an XFS file system"),
        ("mkfs.btrfs", &["-q", "-f"], "a btrfs file system"),
        ("mkswap", &[], "a swap area"),
    ] {
        if run(Command::new("which").arg(program)).status != Some(0) {
            judge::say(format_args!("not tried, as there is no {program}"));
            continue;
        }
        file_with(&at, 320 * MIB, &[]);
        let made = run(Command::new(program).args(options).arg(&at));
        assert_eq!(made.status, Some(0), "{made:?}");
        for command in ["log mkfs target", "mkfs target src"] {
            let error = shop.bad(2, command);
            assert!(error.contains(&format!("already: {name}")), "{error}");
        }
        let Some(device) = Loop::of(&at, &[]) else {
            continue;
        };
        for command in ["log mkfs", "mkfs"] {
            let source = if command == "mkfs" { "src" } else { "" };
            let error = shop.bad(2, &format!("{command} {} {source}", device.0));
            assert!(error.contains(&format!("already: {name}")), "{error}");
        }
        let known = run(Command::new("blkid")
            .args(["-p", "-o", "value", "-s", "TYPE"])
            .arg(&at));
        assert!(!known.out.trim().is_empty(), "{program}: it was changed");
        shop.good(&format!("mkfs --quiet --force {} src", device.0));
        // That is one of ours.
        shop.good(&format!("mkfs --quiet {} src", device.0));
    }
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let shop = shop("32M");
    fs::create_dir(shop.path("out")).unwrap();
    shop.good("mkfs --quiet out/hello src");
    symlink("out/hello", shop.path("link")).unwrap();
    let image = fs::read(shop.path("out/hello")).unwrap();
    for command in [
        "extract out/hello out --overwrite",
        "extract link out --overwrite",
        "extract out/hello out/hello --path hello --overwrite",
    ] {
        let error = shop.bad(2, command);
        assert!(
            error.contains("the image that is extracted lies here"),
            "{command}: {error}"
        );
        assert!(
            fs::read(shop.path("out/hello")).unwrap() == image,
            "{command}"
        );
    }
    let kept = shop.run("extract out/hello out --overwrite --keep-going");
    assert_eq!(kept.status, Some(6), "{kept:?}");
    assert!(fs::read(shop.path("out/hello")).unwrap() == image);
    assert!(same(&shop.path("src/sub"), &shop.path("out/sub")));

    let log = fs::read(shop.path("log")).unwrap();
    fs::write(shop.path("text"), "<svgame over>").unwrap();
    for target in ["log", "text", "out/hello"] {
        let error = shop.bad(2, &format!("log stat log --svg {target}"));
        assert!(error.contains("exists and is no drawing"), "{error}");
    }
    assert!(fs::read(shop.path("log")).unwrap() == log);
    assert!(fs::read(shop.path("out/hello")).unwrap() == image);
    assert!(
        shop.bad(2, "log stat log --svg out")
            .contains("no regular file")
    );
    shop.good("log stat log --svg drawing.svg");
    shop.good("log stat log --svg drawing.svg");
    fs::remove_file(shop.path("link")).unwrap();
    symlink("drawing.svg", shop.path("link")).unwrap();
    shop.good("log stat log --svg link");
    assert!(shop.path("link").is_symlink());
    assert_eq!(
        shop.left(),
        ["drawing.svg", "link", "log", "mnt", "out", "text"]
    );
}

/// The file, a loop device of it, another one: whoever comes second is refused.
#[test]
fn a_log_is_locked_by_every_way_to_it() {
    let _loops = loops();
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    fs::create_dir(shop.path("behind")).unwrap();
    let Some(first) = Loop::of(&shop.path("log"), &[]) else {
        return;
    };
    let Some(second) = Loop::of(&shop.path("log"), &[]) else {
        return;
    };
    let ways = [
        shop.path("log").display().to_string(),
        first.0.clone(),
        second.0.clone(),
    ];
    for way in &ways {
        shop.good(&format!("log mount {way} mnt"));
        fs::write(shop.path("mnt/file"), way).unwrap();
        for other in &ways {
            let commands = [
                format!("log mount {other} behind"),
                format!("log mkfs --force {other}"),
                format!("log resize {other}"),
                format!("log check --repair {other}"),
                format!("mkfs --force {other} src"),
            ];
            for command in commands {
                // A new file takes the name of one that holds a log, if nobody has that.
                let error = shop.bad(5, &command);
                assert!(error.contains("in use"), "{way}: {command}: {error}");
            }
        }
        wait_until(|| shop.run("umount mnt").status == Some(0));
    }
    let checked = shop.good("log check log");
    assert!(
        checked.contains("1 files") && checked.contains("; 0 faults"),
        "{checked}"
    );
}

/// Two logs in one file that do not touch each other do not lock each other out; what covers both is locked.
#[test]
fn parts_of_a_file_are_locked_by_themselves() {
    let _loops = loops();
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    for name in ["mnt", "behind"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    let disk = shop.path("disk");
    file_with(&disk, 128 * MIB, &[]);
    let half = (64 * MIB).to_string();
    let Some(left) = Loop::of(&disk, &["--sizelimit", &half]) else {
        return;
    };
    let right = Loop::of(&disk, &["--offset", &half]).unwrap();
    let whole = Loop::of(&disk, &[]).unwrap();
    shop.good(&format!("log mkfs {}", left.0));
    shop.good(&format!("log mkfs {}", right.0));
    shop.good(&format!("log mount {} mnt", left.0));
    shop.good(&format!("log mount {} behind", right.0));
    for target in ["disk", &whole.0] {
        let error = shop.bad(5, &format!("log mkfs --force {target}"));
        assert!(error.contains("in use"), "{error}");
    }
    wait_until(|| shop.run("umount mnt").status == Some(0));
    let error = shop.bad(5, &format!("log mkfs --force {}", whole.0));
    assert!(error.contains("in use"), "{error}");
    wait_until(|| shop.run("umount behind").status == Some(0));
    shop.good(&format!("log mkfs --force {}", whole.0));
}

/// A table of two partitions, as MBR has it.
fn partitioned(path: &Path) {
    let mut sector = [0; 512];
    for (number, start) in [2048u32, 2048 + 131_072].into_iter().enumerate() {
        let entry = &mut sector[446 + 16 * number..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&131_072u32.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    file_with(path, 130 * MIB, &[(0, &sector)]);
}

/// A node for a partition of a disk: in a container, `/dev` has none.
fn node_of_partition(shop: &Workshop, disk: &str, number: u32) -> Option<String> {
    let disk = disk.strip_prefix("/dev/")?;
    let numbers = format!("/sys/block/{disk}/{disk}p{number}/dev");
    if !Path::new(&numbers).exists() {
        // The kernel may know no tables.
        let nr = number.to_string();
        let mut add = Command::new("partx");
        run(add.args(["--add", "--nr", &nr]).arg(format!("/dev/{disk}")));
    }
    let numbers = fs::read_to_string(numbers).ok()?;
    let (major, minor) = numbers.trim().split_once(':')?;
    let node = shop.path(&format!("part{number}"));
    let mut make = Command::new("mknod");
    let made = run(make.arg(&node).args(["b", major, minor]));
    (made.status == Some(0)).then(|| node.display().to_string())
}

#[test]
fn partitions_of_a_disk_lock_the_disk_and_not_each_other() {
    let _loops = loops();
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    for name in ["mnt", "behind"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    partitioned(&shop.path("disk"));
    let Some(disk) = Loop::of(&shop.path("disk"), &["--partscan"]) else {
        return;
    };
    let parts = [1, 2].map(|number| node_of_partition(&shop, &disk.0, number));
    let [Some(one), Some(other)] = parts else {
        return judge::say(format_args!("no partitions of loop devices here"));
    };
    let parts = [one, other];
    for command in ["log mkfs", "mkfs"] {
        let source = if command == "mkfs" { "src" } else { "" };
        let error = shop.bad(2, &format!("{command} {} {source}", disk.0));
        assert!(error.contains("a partition table (MBR)"), "{error}");
    }
    parts.iter().for_each(|part| {
        shop.good(&format!("log mkfs {part}"));
    });
    shop.good(&format!("log mount {} mnt", parts[0]));
    shop.good(&format!("log mount {} behind", parts[1]));
    for command in [
        format!("log mkfs --force {}", disk.0),
        format!("mkfs --force {} src", disk.0),
        "log mkfs --force disk".into(),
        format!("log mkfs --force {}", parts[0]),
    ] {
        let error = shop.bad(5, &command);
        assert!(error.contains("in use"), "{command}: {error}");
    }
    for name in ["mnt", "behind"] {
        wait_until(|| shop.run(&format!("umount {name}")).status == Some(0));
    }
}

#[test]
fn what_the_kernel_has_mounted_is_in_use() {
    let _loops = loops();
    if !judge::is_root() || !judge::has_file_system("ext4") || !judge::has_program("mkfs.ext4") {
        return judge::missing("a file system that the kernel mounts");
    }
    let shop = Workshop::new();
    let file = shop.path("file");
    file_with(&file, 64 * MIB, &[]);
    let made = run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&file));
    assert_eq!(made.status, Some(0), "{made:?}");
    let Some(device) = Loop::of(&file, &[]) else {
        return;
    };
    let again = Loop::of(&file, &[]).unwrap();
    let mounted = Mounted::new("ext4", "noatime", &device.0, shop.path("behind"));
    fs::write(shop.path("behind/file"), "kept").unwrap();
    for target in ["file", &device.0, &again.0] {
        for command in [
            format!("log mkfs --force {target}"),
            format!("log mount {target} src"),
        ] {
            let error = shop.bad(5, &command);
            assert!(error.contains("in use"), "{command}: {error}");
        }
    }
    assert_eq!(
        fs::read_to_string(shop.path("behind/file")).unwrap(),
        "kept"
    );
    drop(mounted);
    wait_until(|| shop.run(&format!("log mkfs --force {}", device.0)).status == Some(0));
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_in_use() {
    if !judge::has_kernel() {
        return;
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("behind")).unwrap();
    shop.good("mkfs --quiet image src");
    shop.good("mount --kernel image behind");
    let before = fs::read(shop.path("image")).unwrap();
    let error = shop.bad(5, "log mkfs --force image --size 64M");
    assert!(
        error.contains("mounted by the kernel") || error.contains("in use"),
        "{error}"
    );
    assert!(fs::read(shop.path("image")).unwrap() == before);
    assert!(same(&shop.path("src"), &shop.path("behind")));
    shop.good("umount behind");
}

#[test]
fn what_is_no_file_is_not_written_to() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("directory")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        shop.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    symlink("nowhere/file", shop.path("dangling")).unwrap();
    for target in ["directory", "pipe", "/dev/null", "dangling"] {
        for command in [
            format!("log mkfs {target} --size 64M"),
            format!("log mkfs --force {target} --size 64M"),
            format!("log resize {target} --size 64M"),
            format!("log check --repair {target}"),
            format!("mkfs {target} src"),
        ] {
            // An image goes into a pipe or a character device in order; the log cannot.
            if command == "mkfs pipe src" || command == "mkfs /dev/null src" {
                continue;
            }
            let done = shop.run(&command);
            assert!(matches!(done.status, Some(2 | 5)), "{command}: {done:?}");
            let name = target.trim_start_matches('/');
            let is_named = done.err.contains(name) || done.err.contains("nowhere");
            assert!(is_named, "{command}: {done:?}");
        }
    }
    assert_eq!(shop.left(), ["dangling", "directory", "pipe"]);
}

#[test]
fn symbolic_links_lead_to_what_is_written() {
    let shop = shop("64M");
    symlink("log", shop.path("link")).unwrap();
    assert!(
        shop.bad(2, "log mkfs link")
            .contains("holds something already: a log")
    );
    shop.good("log mkfs --force link --size 32M");
    shop.good("log resize link --size 64M");
    assert!(shop.path("link").is_symlink());
    assert_eq!(fs::metadata(shop.path("log")).unwrap().len(), 64 * MIB);
    shop.good("mkfs --quiet --force link src");
    assert!(shop.path("link").is_symlink() && shop.good("ls log").contains("hello"));
}

#[test]
fn what_may_not_be_written_to_is_left_alone() {
    let shop = shop("32M");
    shop.good("mkfs --quiet image src");
    fs::write(shop.path("old.svg"), "<svg old>").unwrap();
    for name in ["log", "image", "old.svg"] {
        fs::set_permissions(shop.path(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    // The directory belongs to whoever runs this, and is to be removed.
    let with_mode = |mode| fs::set_permissions(shop.dir.path(), fs::Permissions::from_mode(mode));
    with_mode(0o555).unwrap();
    let done = [
        "log mkfs --force log",
        "log resize log --size 64M",
        "log gc log",
        "log check --repair log",
        "log stat log --svg old.svg",
        "log stat log --svg new.svg",
        "mkfs --force image src",
        "mkfs new src",
    ]
    .map(|command| (command, shop.run_as_nobody(command)));
    with_mode(0o755).unwrap();
    for (command, run) in done {
        assert_eq!(run.status, Some(5), "{command}: {run:?}");
        assert!(run.err.contains("denied"), "{command}: {run:?}");
    }
    assert_eq!(shop.left(), ["image", "log", "mnt", "old.svg"]);
    assert!(shop.good("log check log").contains("; 0 faults"));
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    if !judge::is_root() {
        return judge::missing("a small tmpfs (only root can mount)");
    }
    let shop = shop("32M");
    fs::write(shop.path("src/big"), vec![1; 4 << 20]).unwrap();
    let full = Mounted::new("tmpfs", "size=2M", "none", shop.path("full"));
    fs::write(shop.path("full/old.svg"), "<svg old>").unwrap();
    fs::create_dir(shop.path("small")).unwrap();
    fs::write(shop.path("small/file"), "content").unwrap();
    shop.good("mkfs --quiet full/image small");
    let before = fs::read(shop.path("full/image")).unwrap();
    let rest = fs::File::create(shop.path("full/rest")).unwrap();
    while rest
        .write_all_at(&[1; 4096], rest.metadata().unwrap().len())
        .is_ok()
    {}
    for command in [
        "mkfs full/image src",
        "mkfs full/new src",
        "log mkfs full/log --size 64M",
        "log stat log --svg full/old.svg",
        "log stat log --svg full/new.svg",
        "extract full/image full/out --overwrite",
    ] {
        let run = shop.run(command);
        let is_told = run.err.contains("No space left") || run.err.contains("no space");
        assert!(run.status == Some(5) && is_told, "{command}: {run:?}");
    }
    assert!(fs::read(shop.path("full/image")).unwrap() == before);
    assert_eq!(fs::read(shop.path("full/old.svg")).unwrap(), b"<svg old>");
    let names = fs::read_dir(shop.path("full")).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names == ["image", "old.svg", "rest"] || names == ["image", "old.svg", "out", "rest"]);
    drop(full);
}
