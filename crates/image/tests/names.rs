//! Tests what checking images with very many names takes of the heap: every allocation counts against a limit, beyond
//! which the process ends.

use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::FileDevice;
use anteros_image::{CheckOptions, Image, OpenOptions, check};
use anteros_tests::names::{self, Shape};
use cap::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const CACHE_BYTES: usize = 1 << 20;
const MEMORY_BYTES: usize = 1 << 20;
/// Threads, their batches and buffers.
const REST_BYTES: usize = 3 << 20;
/// Their inodes alone, as the walk knows them, would take more than all of that.
const INODES: u64 = 200_000;

fn open(path: &Path) -> Image {
    let options = OpenOptions {
        cache_bytes: CACHE_BYTES,
        ..OpenOptions::default()
    };
    Image::open(Arc::new(FileDevice::open(path).unwrap()), vec![], options).unwrap()
}

#[test]
fn a_check_keeps_to_the_memory_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    for shape in Shape::ALL {
        let path = dir.path().join("image");
        names::write(&path, shape, INODES).unwrap();
        let image = open(&path);
        let options = CheckOptions {
            workers: 2,
            memory_bytes: MEMORY_BYTES,
            ..CheckOptions::default()
        };
        let limit = HEAP.allocated() + CACHE_BYTES + MEMORY_BYTES + REST_BYTES;
        HEAP.set_limit(limit).unwrap();
        let report = check(&image, &options, &(), &AtomicBool::new(false));
        HEAP.set_limit(usize::MAX).unwrap();
        let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        assert!(report.is_clean(), "{shape:?}: {found:?}");
        assert_eq!(report.inodes, INODES);
    }
}
