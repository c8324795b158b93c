//! Zeros.

use std::iter;

/// The longest piece.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// So many zeros, in pieces.
pub fn zeros(bytes: u64) -> impl Iterator<Item = &'static [u8]> {
    let mut left = bytes;
    iter::from_fn(move || {
        let len = left.min(ZEROS.len() as u64);
        left -= len;
        (len > 0).then_some(&ZEROS[..len as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_zeros_are_as_many_bytes_as_wanted() {
        for bytes in [0, 1, 16_384, 16_385, 100_000] {
            let pieces: Vec<_> = zeros(bytes).collect();
            assert_eq!(pieces.concat(), vec![0; bytes as usize], "{bytes}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()), "{bytes}");
        }
    }
}
