//! A glance at the input before a thorough compressor takes its time: could it win anything here?
//!
//! A codec with an entropy coder wins by bytes that are not equally frequent, and by matches. The
//! glance estimates both. For the first it takes the entropy of bytes, in each stretch of 4 KiB and
//! over all. For the second it counts strings that occurred before; in a long input it looks at a
//! sample of them. Data that is compressed already shows neither.
//!
//! The estimate is coarse: less than a part in 512 is not worth the time.

use crate::probe::hash;

/// Bytes that are looked at by themselves, so that a short text in long noise is seen.
const STRETCH_BYTES: usize = 4096;

/// The least part of the input that is worth it.
const WORTH_SHARE: usize = 512;

/// Bytes by which noise seems to be shorter than it is, whatever its length: `255 / (2 ln 2)` bits (Miller, 1955).
const NOISE_BYTES: f64 = 255.0 / (2.0 * std::f64::consts::LN_2) / 8.0;
/// Bytes that noise in a stretch hardly ever seems to save beyond that: their standard deviation is 2.
const STRETCH_DOUBT_BYTES: f64 = 16.0;

/// Strings that are remembered at most, as a shift.
const SLOT_BITS: u32 = 14;
/// Positions for each slot, so that few strings hide each other.
const POSITIONS_PER_SLOT: usize = 4;

/// The hash table of the glance.
#[derive(Default)]
pub(crate) struct Gauge {
    /// The last eight bytes seen with this hash.
    slots: Vec<u64>,
}

impl Gauge {
    /// Returns whether the front of `input`, of as many bytes as the output has, may become shorter.
    pub(crate) fn may_gain(&mut self, input: &[u8], budget: usize) -> bool {
        let front = &input[..input.len().min(budget)];
        let worth = (front.len() / WORTH_SHARE).max(1) as f64;
        saved_by_frequencies(front) >= worth || self.saved_by_matches(front) >= worth
    }

    /// About the bytes that matches of eight and more save.
    fn saved_by_matches(&mut self, front: &[u8]) -> f64 {
        self.slots.clear();
        self.slots.resize(1 << SLOT_BITS, 0);
        let sampled = (front.len() >> SLOT_BITS).div_ceil(POSITIONS_PER_SLOT);
        let every = sampled.max(1).next_power_of_two();
        let mut repeats = 0;
        for string in front.windows(8) {
            let string = u64::from_le_bytes(string.try_into().expect("windows of eight"));
            let sum = hash((string ^ string >> 32) as u32, u32::BITS - 1);
            // By the string itself, so that the same strings are sampled wherever they are.
            if sum & (every - 1) != 0 {
                continue;
            }
            let slot = &mut self.slots[sum >> (u32::BITS - 1 - SLOT_BITS)];
            repeats += u32::from(std::mem::replace(slot, string) == string);
        }
        f64::from(repeats) * every as f64
    }
}

/// About the bytes that codes of the right lengths save.
fn saved_by_frequencies(front: &[u8]) -> f64 {
    let mut all = [0; 256];
    let mut in_stretches = 0.0;
    for stretch in front.chunks(STRETCH_BYTES) {
        let mut counts = [0; 256];
        for &byte in stretch {
            counts[usize::from(byte)] += 1;
        }
        let saved = saved(&counts, stretch.len()) - STRETCH_DOUBT_BYTES;
        in_stretches += saved.max(0.0);
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    in_stretches.max(saved(&all, front.len()))
}

/// Bytes that a perfect code for these counts saves, less those that it seems to save of noise.
fn saved(counts: &[u32; 256], len: usize) -> f64 {
    let len = len as f64;
    let counts = counts.iter().filter(|count| **count > 0);
    let bits = counts.map(|&count| f64::from(count) * (len / f64::from(count)).log2());
    len - bits.sum::<f64>() / 8.0 - NOISE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, text};

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        Random::new(seed).bytes(len)
    }

    fn may_gain(input: &[u8]) -> bool {
        Gauge::default().may_gain(input, input.len())
    }

    #[test]
    fn noise_of_any_length_is_not_worth_it() {
        for len in [4096, 5000, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            for seed in 1..20 {
                assert!(!may_gain(&noise(seed, len)), "{len} bytes of noise {seed}");
            }
        }
    }

    #[test]
    fn text_codes_and_repeats_are() {
        let base64 = |byte: u8| {
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                [usize::from(byte & 63)]
        };
        for len in [4096, 64 << 10, 1 << 20] {
            assert!(may_gain(&text(len)));
            let coded: Vec<u8> = noise(1, len).into_iter().map(base64).collect();
            assert!(may_gain(&coded));
            let twice = noise(2, len / 2).repeat(2);
            assert!(may_gain(&twice), "{len} bytes, half of them again");
        }
    }

    #[test]
    fn a_little_of_something_in_much_noise_is() {
        let len = 1 << 20;
        let with = |part: &[u8]| [&noise(3, len - part.len()), part].concat();
        assert!(may_gain(&with(&text(16 << 10))));
        assert!(may_gain(&with(&noise(4, 16 << 10).repeat(2))));
        assert!(may_gain(&with(&[0; 8 << 10])));
        assert!(!may_gain(&with(&noise(4, 100).repeat(2))));
    }

    #[test]
    fn little_is_looked_at_as_it_is() {
        assert!(!may_gain(b""));
        assert!(!may_gain(b"x"));
        assert!(may_gain(&[7; 100]));
    }
}
