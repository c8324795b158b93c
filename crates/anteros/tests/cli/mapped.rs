//! Times of mirrored files, also of those that are written by a mapping, are what they are at once.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anteros_tests::judge;
use rustix::fs::{AtFlags, CWD, StatxFlags, StatxTimestamp, statx};
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS};
use crate::set_ids::{PLAIN, set_list};
use crate::{run, wait_until};

/// Returns what a program asks for that wants to know only this.
fn times(path: &Path) -> [(i64, u32); 2] {
    let mask = StatxFlags::MTIME | StatxFlags::CTIME;
    let found = statx(CWD, path, AtFlags::empty(), mask).unwrap();
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    [time(found.stx_mtime), time(found.stx_ctime)]
}

/// A process that has a file open and mapped.
struct Mapper(Child);

impl Mapper {
    fn of(path: &Path) -> Self {
        let mut xfs_io = Command::new("xfs_io");
        xfs_io.arg(path).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut mapper = Self(xfs_io.spawn().unwrap());
        mapper.command("mmap -rw 0 4096");
        let maps = format!("/proc/{}/maps", mapper.0.id());
        let name = path.file_name().unwrap().to_str().unwrap();
        wait_until(|| fs::read_to_string(&maps).unwrap().contains(name));
        mapper
    }

    fn command(&mut self, command: &str) {
        let mut stdin = self.0.stdin.as_ref().unwrap();
        writeln!(stdin, "{command}").unwrap();
    }

    /// Writes, and syncs that; `mark` is made when it is done.
    fn write(&mut self, mark: &Path) {
        self.command("mwrite -S 0x41 0 4");
        self.command("msync -s");
        self.command(&format!("open -f {}", mark.display()));
        wait_until(|| mark.exists());
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mapping_of_a_file_that_is_appended_to_is_written_where_it_lies() {
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    for way in WAYS {
        let source = TempDir::new().unwrap();
        fs::write(source.path().join("file"), [b'.'; 12_288]).unwrap();
        let mirror = Mirror::new(source.path(), way, "");
        let mut writer = Command::new("xfs_io");
        writer.args(["-a", "-c", "mmap 0 12288", "-c", "pwrite -S 0x43 0 100"]);
        writer.args(["-c", "mwrite -S 0x41 0 8192", "-c", "msync -s"]);
        let said = run(writer.arg(mirror.path("file")));
        assert_eq!((said.status, &said.err[..]), (Some(0), ""), "{way}");
        let wanted = [&[b'A'; 8192][..], &[b'.'; 4096], &[b'C'; 100]].concat();
        assert!(fs::read(mirror.path("file")).unwrap() == wanted, "{way}");
        drop(mirror);
        assert!(
            fs::read(source.path().join("file")).unwrap() == wanted,
            "{way}"
        );
    }
}

#[test]
fn times_of_what_is_written_by_a_mapping_are_seen_at_once() {
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for way in WAYS {
        let (source, marks) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        for name in ["looked-at", "not-looked-at"] {
            let file = File::create(source.path().join(name)).unwrap();
            file.set_len(4096).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let mirror = Mirror::new(source.path(), way, "--timeout 3600");
        for name in ["looked-at", "not-looked-at"] {
            let path = mirror.path(name);
            let is_old = || fs::metadata(&path).unwrap().modified().unwrap() == long_ago;
            assert!(is_old());
            let mut mapper = Mapper::of(&path);
            if name == "looked-at" {
                assert!(is_old(), "{way}: nothing was written");
            }
            let before = times(&path);
            mapper.write(&marks.path().join(name));
            let after = times(&path);
            assert!(after > before && after[1] > before[1], "{way}: {name}");
            assert!(!is_old(), "{way}: {name}");
            if way.looks_at_source() {
                assert_eq!(after, times(&source.path().join(name)), "{way}: {name}");
            }
        }
        mirror.unmount();
    }
}

#[test]
fn a_list_that_is_but_a_mode_changes_the_time_of_change() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), way, "--timeout 3600");
        let path = mirror.path("file");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = times(&path);
        // The host counts time in ticks.
        wait_until(|| {
            set_list(&path, PLAIN);
            times(&path)[1] > before[1]
        });
        let found = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, 0o755, "{way}");
        mirror.unmount();
    }
}
