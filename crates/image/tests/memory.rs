//! Tests what reads take of the heap: every allocation counts against a limit, beyond which the process ends.
//! Mapped memory and that of C libraries is not seen here; the account of the image counts both.

use std::alloc::System;
use std::sync::Arc;

use anteros_core::{Device, FileSystem, Ino};
use anteros_image::{Image, ImageFs, OpenOptions};
use anteros_tests::large;
use anteros_tests::trees::Random;
use cap::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const READERS: usize = 4;
const READ_BYTES: usize = 256 << 10;

/// Threads, maps of files and the like.
const REST_BYTES: usize = 512 << 10;

#[test]
fn reading_keeps_to_the_memory_it_was_given() {
    for (name, bytes) in large::all() {
        let device: Arc<dyn Device> = Arc::new(bytes);
        let options = |cache_bytes| OpenOptions {
            cache_bytes,
            readers: READERS,
            read_bytes: READ_BYTES,
            ..OpenOptions::default()
        };
        let open = |cache_bytes| Image::open(device.clone(), vec![], options(cache_bytes)).unwrap();
        let least = open(0).cache_bytes_min(READERS, READ_BYTES);
        for cache_bytes in [least, least + (4 << 20)] {
            let fs = ImageFs::new(Arc::new(open(cache_bytes)));
            let file = fs.lookup(fs.root(), b"text").unwrap();
            let limit = HEAP.allocated() + cache_bytes + READERS * READ_BYTES + REST_BYTES;
            HEAP.set_limit(limit).unwrap();
            read_by_many(&fs, file.ino, file.size);
            HEAP.set_limit(usize::MAX).unwrap();
            let stats = fs.image().read_statistics();
            assert!(
                stats.memory_peak_bytes <= stats.memory_max_bytes,
                "{name}: {stats:?}"
            );
            assert!(stats.served_bytes > file.size, "{name}: {stats:?}");
        }
    }
}

/// Each reads the file from its beginning, and then pieces of it in any order.
fn read_by_many(fs: &ImageFs, ino: Ino, size: u64) {
    std::thread::scope(|scope| {
        for seed in 0..READERS as u64 {
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut buf = vec![0; READ_BYTES];
                for offset in (0..size).step_by(READ_BYTES) {
                    assert!(fs.read(ino, offset, &mut buf).unwrap() > 0);
                }
                for _ in 0..40 {
                    let offset = random.below(size);
                    assert!(fs.read(ino, offset, &mut buf[..4096]).unwrap() > 0);
                }
            });
        }
    });
}
