//! Tests whether a block device can be used as a file can, and by one at a time.

use std::fs::File;
use std::io;
use std::process::Command;

use anteros_core::{Device, FileDevice, WritableDevice};
use anteros_tests::judge;
use anteros_tests::mount::run;

const SIZE: u64 = 32 << 20;

/// A loop device, for as long as a value lives.
struct Loop(String);

impl Loop {
    fn new(file: &std::path::Path) -> Self {
        let said = run(Command::new("losetup").args(["--find", "--show"]).arg(file));
        Self(said.unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").args(["--detach", &self.0]));
    }
}

#[test]
fn a_block_device_is_written_to_by_one_at_a_time() {
    if !judge::is_root() {
        judge::missing("a block device of the test's own (only root can make one)");
        return;
    }
    let file = tempfile::NamedTempFile::new_in(anteros_tests::scratch()).unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let block = Loop::new(file.path());

    let device = FileDevice::open_writable(&block.0).unwrap();
    assert_eq!(device.size(), SIZE);
    device.write_at(SIZE - 4096, &[7; 4096]).unwrap();
    device.write_at(8192, &[7; 8192]).unwrap();
    device.flush().unwrap();
    device.discard(8192, 4096).unwrap();
    device.write_at(SIZE - 1, &[1, 2]).unwrap_err();
    let mut bytes = [0; 8192];
    device.read_at(8192, &mut bytes).unwrap();
    assert!(bytes[..4096] == [0; 4096] || bytes[..4096] == [7; 4096]);
    assert_eq!(bytes[4096..], [7; 4096]);
    // What was flushed is in the file behind it.
    let behind = FileDevice::open(file.path()).unwrap();
    behind.read_at(SIZE - 4096, &mut bytes[..4096]).unwrap();
    assert_eq!(bytes[..4096], [7; 4096]);

    let second = FileDevice::open_writable(&block.0).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    drop(device);
    FileDevice::open_writable(&block.0).unwrap();

    // A mounted one is refused as well.
    if !judge::has_program("mkfs.ext4") || !judge::has_file_system("ext4") {
        return;
    }
    run(Command::new("mkfs.ext4").arg("-q").arg(&block.0)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(Command::new("mount").arg(&block.0).arg(dir.path())).unwrap();
    let opened = FileDevice::open_writable(&block.0);
    // Those who only read are let in.
    let reader = File::open(&block.0);
    run(Command::new("umount").arg(dir.path())).unwrap();
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    let expected = format!("{}: is in use by another process", block.0);
    assert!(error.to_string().starts_with(&expected), "{error}");
    reader.unwrap();
}
