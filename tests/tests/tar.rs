//! An archive holds what the image holds: GNU tar makes of it what the kernel mounts.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use anteros_image::{Image, ImagePath, TarObserver, TarOptions, TarSummary, tar};
use anteros_tests::host::HostFs;
use anteros_tests::judge::{has_kernel, has_program, say};
use anteros_tests::manifest::{difference, edit, manifest};
use anteros_tests::mount::{KernelMount, run};
use anteros_tests::{fixtures, fixtures_dir, open, scratch};

/// Hears nothing, and stops nothing.
static GO_ON: AtomicBool = AtomicBool::new(false);

fn archive(image: &Image, from: &str) -> (Vec<u8>, TarSummary) {
    archive_by(image, from, 2)
}

fn archive_by(image: &Image, from: &str, workers: usize) -> (Vec<u8>, TarSummary) {
    let mut bytes = Vec::new();
    let options = TarOptions {
        workers,
        ..TarOptions::default()
    };
    let summary = tar(image, from.as_bytes(), &options, &mut bytes, &(), &GO_ON).unwrap();
    (bytes, summary)
}

/// Unpacks an archive as root of a system would.
fn unpack(archive: &Path, into: &Path, more: &[&str]) {
    let mut command = Command::new("tar");
    command.args([
        "--extract",
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
    ]);
    command.arg("--same-permissions").args(more);
    command.arg("--file").arg(archive);
    let said = run(command.arg("--directory").arg(into)).unwrap();
    assert_eq!(said, "");
}

/// The manifest of a directory, but for sockets.
fn manifest_of(directory: &Path) -> String {
    let manifest = manifest(&HostFs::new(directory)).unwrap();
    edit(&manifest, |columns| columns[1] != "s")
}

#[test]
fn gnu_tar_makes_of_it_what_the_kernel_mounts() {
    if !has_kernel() || !has_program("tar") {
        return;
    }
    let mut judged = 0;
    for (path, extra) in fixtures() {
        let Ok(mount) = KernelMount::new(&path, &extra) else {
            say(format_args!(
                "MISSING JUDGE: the kernel, for {}",
                path.display()
            ));
            continue;
        };
        let image = open(&path, &extra);
        let (bytes, summary) = archive(&image, "/");
        assert_eq!(summary.left_out, 1, "{}", path.display());
        for workers in [1, 7] {
            let again = archive_by(&image, "", workers).0;
            assert!(bytes == again, "{}", path.display());
        }
        assert_eq!(bytes.len() % 10_240, 0);
        assert!(bytes.ends_with(&[0; 1024]));
        let place = tempfile::tempdir_in(scratch()).unwrap();
        let file = place.path().join("archive");
        fs::write(&file, bytes).unwrap();
        let out = place.path().join("out");
        fs::create_dir(&out).unwrap();
        unpack(&file, &out, &[]);
        let acls = place.path().join("acls");
        fs::create_dir(&acls).unwrap();
        unpack(&file, &acls, &["--xattrs-exclude=system.*", "--acls"]);
        let expected = manifest_of(mount.path());
        for out in [out, acls] {
            if let Some(difference) = difference(&manifest_of(&out), &expected) {
                panic!("{}: {difference}", path.display());
            }
        }
        judged += 1;
    }
    say(format_args!(
        "archives equal what the kernel mounts: {judged} images"
    ));
    assert!(judged >= 20, "only {judged} images were judged");
}

#[test]
fn gnu_tar_lists_as_many_entries_as_there_are() {
    if !has_program("tar") {
        return;
    }
    let image = open(&fixtures_dir().join("lz4.erofs"), &[]);
    let (bytes, summary) = archive(&image, "/");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let mut command = Command::new("tar");
    command.args([
        "--list",
        "--verbose",
        "--numeric-owner",
        "--quoting-style=escape",
    ]);
    let listed = run(command.arg("--file").arg(file.path())).unwrap();
    assert_eq!(listed.lines().count() as u64, summary.entries, "{listed}");
    assert!(
        listed.contains(" links/hard-1 link to data/hello"),
        "{listed}"
    );
    assert!(listed.contains(" links/soft -> ../data/hello"), "{listed}");
    assert!(!listed.contains("socket"), "{listed}");
}

#[test]
fn names_begin_where_it_is_told_to() {
    let image = open(&fixtures_dir().join("lz4.erofs"), &[]);
    let first = |from: &str| {
        let (bytes, summary) = archive(&image, from);
        let name = bytes[..100].split(|&byte| byte == 0).next().unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), summary.entries)
    };
    assert_eq!(first("/data/hello"), ("hello".into(), 1));
    assert_eq!(first("deep/1/"), ("./".into(), 25));
    assert_eq!(first("nodes/socket").1, 0);
}

/// A writer that breaks after so many bytes.
struct Breaking(usize);

impl Write for Breaking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_archive_that_cannot_be_written_is_an_error_wherever_it_ends() {
    let image = open(&fixtures_dir().join("lz4.erofs"), &[]);
    let (bytes, _) = archive(&image, "data");
    for len in (0..bytes.len()).step_by(511) {
        let options = TarOptions::default();
        let mut out = Breaking(len);
        let error = tar(&image, b"data", &options, &mut out, &(), &GO_ON).unwrap_err();
        assert!(error.to_string().starts_with("/data"), "{error}");
    }
}

/// Counts what it hears.
#[derive(Default)]
struct Counting(std::sync::Mutex<(u64, Vec<String>)>);

impl TarObserver for Counting {
    fn wrote(&self, bytes: u64) {
        self.0.lock().unwrap().0 += bytes;
    }

    fn left_out(&self, path: &ImagePath) {
        self.0.lock().unwrap().1.push(path.to_string());
    }
}

#[test]
fn who_watches_hears_of_every_byte_and_of_sockets() {
    let image = open(&fixtures_dir().join("chunks.erofs"), &[]);
    let counting = Counting::default();
    let options = TarOptions::default();
    let summary = tar(&image, b"", &options, &mut io::sink(), &counting, &GO_ON).unwrap();
    let (bytes, left_out) = counting.0.into_inner().unwrap();
    assert_eq!(
        (bytes, left_out),
        (summary.bytes, vec!["/nodes/socket".into()])
    );
    let stopped = tar(
        &image,
        b"",
        &options,
        &mut io::sink(),
        &(),
        &AtomicBool::new(true),
    );
    assert!(stopped.unwrap_err().to_string().contains("cancelled"));
}
