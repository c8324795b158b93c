//! A glance at the input before compressing it: could LZ4 win anything here?
//!
//! liblz4's fixed-output compressors do not look at the output budget while they hunt for a match.
//! They read on for tens of kilobytes where there is none, and then give back a few kilobytes of
//! literals. The next call starts over. HC levels fall to a few MB/s on data that is compressed
//! already.
//!
//! The glance costs one look-up in a hash table for each byte, and ends early on data that
//! compresses. It counts *repeats*: positions whose next four bytes occurred before. A match of
//! length `n` covers `n - 3` repeats. It saves `n - 3` bytes at most, since a token and an offset
//! take three. So the repeats are about the bytes that can be saved. Literals cost one more byte
//! for each 255 of them.

/// One slot per hash, at most: 256 KiB.
const SLOT_BITS_MAX: u32 = 16;

/// Literals per byte of run length in an LZ4 block.
const LITERALS_PER_LENGTH_BYTE: usize = 255;

/// The hash table of the glance.
#[derive(Default)]
pub(crate) struct Probe {
    /// The last four bytes seen with this hash.
    slots: Vec<u32>,
}

impl Probe {
    /// Returns whether the front of `input` may take fewer than `budget` bytes as an LZ4 block.
    ///
    /// `false` is right but for repeats that a later string with the same hash hid, and for
    /// matches that cut literal runs so that their lengths take fewer bytes: one byte each.
    pub(crate) fn may_gain(&mut self, input: &[u8], budget: usize) -> bool {
        let window = &input[..input.len().min(budget)];
        let mut repeats_to_gain = 1 + window.len() / LITERALS_PER_LENGTH_BYTE;
        let bits = slot_bits(window.len());
        self.clear(bits);
        for string in window.windows(4) {
            let string = u32::from_le_bytes([string[0], string[1], string[2], string[3]]);
            let slot = &mut self.slots[hash(string, bits)];
            if std::mem::replace(slot, string) == string {
                repeats_to_gain -= 1;
                if repeats_to_gain == 0 {
                    return true;
                }
            }
        }
        false
    }

    fn clear(&mut self, bits: u32) {
        self.slots.clear();
        self.slots.resize(1 << bits, 0);
    }
}

/// Two to four slots per position, so that few strings hide each other.
fn slot_bits(positions: usize) -> u32 {
    (positions.max(1).ilog2() + 2).min(SLOT_BITS_MAX)
}

/// The upper `bits` bits of a product with 2^32 divided by the golden ratio (Knuth).
#[inline(always)]
pub(crate) fn hash(string: u32, bits: u32) -> usize {
    (string.wrapping_mul(2_654_435_761) >> (u32::BITS - bits)) as usize
}
