//! A log whose content the kernel keeps and writes back later (`--writeback`): what is promised all the same.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::model::{Ops, Plain, World, compare};
use anteros_tests::peers::posix_judge;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::log::{kill_daemon, mount, shop, unmount};
use crate::passthru::{has_pjdfstest, run_pjdfstest};
use crate::unreadable_log::noise;
use crate::{run, same};

const WAY: &str = "--writeback";

#[test]
fn what_was_synced_outlives_the_daemon() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "-o writeback");
    let path = |name: &str| shop.path(&format!("mnt/{name}"));
    let append = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        options.custom_flags(flags.bits() as i32);
        options
    };
    let mut wanted = Vec::new();
    let mut file = append(OFlags::empty()).open(path("appended")).unwrap();
    for n in 0..20_000_u32 {
        file.write_all(&n.to_le_bytes()).unwrap();
        wanted.extend(n.to_le_bytes());
    }
    file.sync_data().unwrap();
    let modified = file.metadata().unwrap().mtime_nsec();
    for (name, flags) in [("dsync", OFlags::DSYNC), ("sync", OFlags::SYNC)] {
        let mut file = append(flags).open(path(name)).unwrap();
        for _ in 0..3 {
            file.write_all(b"text").unwrap();
        }
    }
    // A file that takes another one's name.
    fs::write(path("new"), "new").unwrap();
    File::open(path("new")).unwrap().sync_all().unwrap();
    fs::rename(path("new"), path("sync.new")).unwrap();
    File::open(path("")).unwrap().sync_all().unwrap();
    file.sync_all().unwrap();
    drop(file);
    kill_daemon(&shop, daemon);
    let daemon = mount(&shop, "");
    assert!(fs::read(path("appended")).unwrap() == wanted);
    assert_eq!(
        fs::metadata(path("appended")).unwrap().mtime_nsec(),
        modified
    );
    for name in ["dsync", "sync"] {
        assert_eq!(fs::read(path(name)).unwrap(), b"texttexttext", "{name}");
    }
    assert_eq!(fs::read(path("sync.new")).unwrap(), b"new");
    unmount(&shop, daemon);
}

/// No write fails for lack of room; who syncs or closes is told.
#[test]
fn a_full_log_is_told_by_a_sync() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, WAY);
    let path = shop.path("mnt/large");
    let file = File::create(&path).unwrap();
    let chunk = noise(5, 1 << 20);
    let written = (0..80).try_for_each(|at| file.write_all_at(&chunk, at << 20));
    let synced = written.and_then(|()| file.sync_all());
    let error = synced.unwrap_err().raw_os_error();
    assert_eq!(error, Some(Errno::NOSPC.raw_os_error()));
    drop(file);
    fs::remove_file(&path).unwrap();
    crate::wait_until(|| {
        fs::write(&path, "there is room").is_ok_and(|()| {
            let file = File::open(&path);
            file.and_then(|file| file.sync_all()).is_ok()
        })
    });
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    assert_eq!(fs::read(&path).unwrap(), b"there is room");
    unmount(&shop, daemon);
}

/// Whoever writes without the privilege takes set-id bits away, though the kernel keeps what is written.
#[test]
fn set_id_bits_go_with_a_write() {
    if !judge::has_fuse() || !judge::has_program("setpriv") {
        return;
    }
    if !judge::is_root() {
        return judge::missing("another user (only root can become one)");
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "--writeback --allow-other");
    let path = shop.path("mnt/file");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    let opened = OpenOptions::new().append(true).open(&path).unwrap();
    let mut writer = Command::new("setpriv");
    writer.args(["--reuid=1", "--regid=1", "--clear-groups", "sh", "-c"]);
    // Others may not come to where the log is mounted: the file is handed down.
    let wrote = run(writer.args(["echo more >&0"]).stdin(opened));
    assert_eq!(wrote.status, Some(0), "{wrote:?}");
    // It has the file open.
    drop(writer);
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o777);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    assert_eq!(mode(), 0o777);
    assert_eq!(fs::read(&path).unwrap(), b"textmore\n");
    unmount(&shop, daemon);
}

#[test]
fn fsx_finds_nothing_in_a_log_that_is_written_back() {
    if !judge::has_fuse() || posix_judge("fsx").is_none() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, WAY);
    let mut fsx = posix_judge("fsx").unwrap();
    fsx.args(["-N", "5000", "-S", "3", "mnt/file"])
        .current_dir(shop.dir.path());
    let found = run(&mut fsx);
    assert_eq!(found.status, Some(0), "{}", found.out);
    unmount(&shop, daemon);
}

#[test]
fn a_log_that_is_written_back_does_at_random_what_a_directory_does() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("256M");
    let daemon = mount(&shop, WAY);
    let [plain, here] = ["plain", "mnt/here"].map(|name| shop.path(name));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&here).unwrap();
    let mut world = Plain::new(&here);
    let ops = Ops::new(4).without_collapsing().without_seeking();
    compare(4, 1500, ops, (&mut world as &mut dyn World, &*here), &plain);
    // It has files open.
    drop(world);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    assert!(same(&plain, &here), "after a mount");
    unmount(&shop, daemon);
}

#[test]
#[ignore = "a campaign: it takes a minute and more"]
fn pjdfstest_finds_nothing_in_a_log_that_is_written_back() {
    if !has_pjdfstest() {
        return;
    }
    let shop = shop("256M");
    let daemon = mount(&shop, WAY);
    run_pjdfstest(&shop, "log");
    unmount(&shop, daemon);
}
