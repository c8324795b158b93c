//! A reader in order: the kernel asks ahead for it, in several requests that come in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anteros_image::OpenOptions;

use crate::samples::{File, large};

/// Bytes of a request of readahead, and how many come at the same time.
const REQUEST: usize = 256 << 10;
const AT_ONCE: u64 = 4;

/// Extents from this length on are decoded piece by piece.
const LONG: u64 = 1 << 20;

/// The first of several requests comes last. So it wants what was decoded a MiB ago.
#[test]
fn has_each_extent_decoded_once_and_little_handed_on() {
    let mut windows = 0;
    // LZ4 is decoded whole, or by the front again.
    for sample in large()
        .iter()
        .filter(|sample| !sample.name.starts_with("lz4"))
    {
        let fs = Arc::new(sample.open(OpenOptions {
            cache_bytes: 64 << 20,
            ..OpenOptions::default()
        }));
        let handed_on = Arc::new(AtomicUsize::new(0));
        let (pages, rests) = (handed_on.clone(), handed_on.clone());
        fs.on_neighbours(false, move |_, _, _| {
            pages.fetch_add(1, Ordering::Relaxed);
            true
        });
        fs.on_rest(move |_| _ = rests.fetch_add(1, Ordering::Relaxed));
        let mut bytes = 0;
        let is_long = |file: &&File| sample.extents(&file.path)[0].len >= LONG;
        for file in sample.files.iter().filter(is_long) {
            bytes += file.content.len();
            let window = AT_ONCE * REQUEST as u64;
            for start in (0..file.content.len() as u64).step_by(window as usize) {
                for n in (0..AT_ONCE).rev() {
                    let offset = start + n * REQUEST as u64;
                    file.compare(&fs, offset, REQUEST, &sample.name);
                }
                // The first request of all might be one anywhere.
                let told = handed_on.swap(0, Ordering::Relaxed);
                assert!(start == 0 || told == 0, "{}: at {start}", sample.name);
                windows += u64::from(start > 0);
            }
        }
        let decoded = fs.image().read_statistics().decoded_bytes;
        let what = format!("{}: {decoded} of {bytes} bytes", sample.name);
        assert!(decoded <= bytes as u64, "{what}");
    }
    assert!(windows > 5, "{windows}");
}
