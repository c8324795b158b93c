//! Content that begins on a page of memory, as files opened with `O_DIRECT` want it. Memory that is
//! allocated as bytes lies anywhere, so a buffer has a page more, and what comes before the first boundary is
//! left unused.

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Leaves so much of a buffer's front unused that what follows `head_bytes` behind it begins on a page, and says
/// how much that is: less than a page, of memory that the buffer must have. What was in the buffer beyond
/// that is gone.
pub fn begin_on_page(buffer: &mut Vec<u8>, head_bytes: usize) -> usize {
    let content = buffer.as_ptr().addr().wrapping_add(head_bytes);
    let start = content.wrapping_neg() % PAGE_BYTES;
    debug_assert!(start <= buffer.capacity(), "would move");
    // Filled once: a buffer that comes back has it already.
    buffer.resize(start, 0);
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_begins_on_a_page() {
        for capacity in [PAGE_BYTES, 10_000, 1 << 20] {
            for head_bytes in [0, 80, 4095, 4096] {
                let mut buffer = Vec::with_capacity(capacity);
                for round in 0..2 {
                    let before = buffer.as_ptr();
                    let start = begin_on_page(&mut buffer, head_bytes);
                    assert!(start < PAGE_BYTES && buffer.len() == start, "{round}");
                    assert_eq!((before.addr() + start + head_bytes) % PAGE_BYTES, 0);
                    assert_eq!(buffer.as_ptr(), before);
                    buffer.resize(capacity, 7);
                }
            }
        }
    }
}
