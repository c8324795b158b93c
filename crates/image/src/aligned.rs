//! Memory that is read into.

/// Bytes begin at a multiple of this.
///
/// AMD processors copy at a quarter of their speed to an address that lies a little behind that of
/// the source, both counted from their page. Large allocations of glibc begin 16 bytes behind a page.
const ALIGNMENT: usize = 64;

/// Bytes that begin at an aligned address.
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    /// The bytes, and in front of them what aligns them.
    memory: Vec<u8>,
    front: usize,
}

impl Aligned {
    /// Returns so many bytes, whatever they hold.
    pub fn resized(&mut self, len: usize) -> &mut [u8] {
        self.memory.resize(len + ALIGNMENT, 0);
        self.front = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        self.memory.truncate(self.front + len);
        &mut self.memory[self.front..]
    }

    /// Returns the bytes that there are.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.front..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_begin_at_a_multiple() {
        let mut aligned = Aligned::default();
        assert!(aligned.bytes().is_empty());
        for len in [0, 1, 4096, 300_000, 5, 1 << 20] {
            let bytes = aligned.resized(len);
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % ALIGNMENT), (len, 0));
            bytes.fill(7);
            assert!(aligned.bytes() == vec![7; len], "{len}");
        }
    }
}
