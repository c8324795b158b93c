//! Tests what `Params::memory_bytes` says of DEFLATE, whose memory comes from Rust's heap.
//!
//! One test alone, for it counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anteros_codec::{Algorithm, Decoder, Length, Params, Stream};

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: each call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// "data" in a stored block.
const STREAM: [u8; 9] = [1, 4, 0, 251, 255, b'd', b'a', b't', b'a'];

#[test]
fn deflate_takes_no_more_than_was_said() {
    let params = Params::default();
    let bytes_max = params.memory_bytes(Algorithm::Deflate, 4);
    let mut out = [0; 4];

    let before = HELD_BYTES.load(Relaxed);
    let mut decoder = Decoder::new();
    let whole = decoder.decode(
        Algorithm::Deflate,
        &params,
        &STREAM,
        &mut out,
        Length::Exact,
    );
    let held = HELD_BYTES.load(Relaxed) - before;
    assert_eq!(whole, Ok(()));
    assert!((bytes_max / 2..=bytes_max).contains(&held), "{held}");

    let before = HELD_BYTES.load(Relaxed);
    let mut stream =
        Stream::new(Algorithm::Deflate, &params, STREAM.len(), 4).expect("a streamed codec");
    assert_eq!(stream.next(&STREAM, &mut out[..2]), Ok(()));
    assert_eq!(stream.next(&STREAM, &mut out[2..]), Ok(()));
    let held = HELD_BYTES.load(Relaxed) - before;
    assert!((bytes_max / 2..=bytes_max).contains(&held), "{held}");
}
