//! Tests how much memory a log takes. A test of its own process: what others take would count as well.

mod support;

use std::sync::Arc;

use anteros_core::{FileDevice, WritableDevice};
use anteros_log::check;
use support::*;

const CEILING: u64 = 8 << 20;
/// Beyond the ceiling: what comes in before it is looked again, what is on its way to the device, the tables of a log of 1 GiB,
/// and what the allocator keeps.
const BEYOND: u64 = 24 << 20;

const FILES: usize = 50_000;
const DIRECTORIES: usize = 250;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn neither_many_files_nor_much_content_take_more_memory_than_there_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 30).unwrap();
    let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::open_writable(file.path()).unwrap());
    make(device.clone());
    let tree = open_with(device.clone(), options_with(CEILING as usize));
    let begun = resident();
    let look = |what: &str| {
        let (counted, grown) = (
            tree.0.condition().memory_bytes,
            resident().saturating_sub(begun),
        );
        assert!(
            counted <= CEILING + BEYOND,
            "{what}: {counted} bytes are counted"
        );
        assert!(
            grown <= CEILING + BEYOND,
            "{what}: {grown} bytes more are resident, {counted} are counted"
        );
    };
    for directory in 0..DIRECTORIES {
        tree.mkdir(&format!("d{directory}")).unwrap();
    }
    for n in 0..FILES {
        tree.create(&format!("d{}/file-{n}", n % DIRECTORIES))
            .unwrap();
        if n % 500 == 0 {
            look("files");
        }
    }
    let data = bytes(1, 1 << 20);
    tree.create("large").unwrap();
    for at in 0..200 {
        tree.write("large", at << 20, &data).unwrap();
        look("content");
    }
    for directory in 0..DIRECTORIES {
        assert_eq!(
            tree.list(&format!("d{directory}")).unwrap().len(),
            FILES / DIRECTORIES
        );
        look("names");
    }
    for n in (0..FILES).step_by(3) {
        tree.unlink(&format!("d{}/file-{n}", n % DIRECTORIES))
            .unwrap();
        if n % 500 == 0 {
            look("fewer files");
        }
    }
    tree.0.close().unwrap();
    drop(tree);
    let report = check(device, options_with(CEILING as usize)).unwrap();
    assert_eq!(report.faults, [""; 0]);
}
