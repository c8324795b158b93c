//! The digest of the content of a range.

use std::fmt;
use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

/// Digits of a digest in a profile.
const DIGITS: usize = 32;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 128 << 10;

/// A digest of content: XXH3 of 128 bits. It tells content of one build from content of another, and is no protection
/// against somebody who makes two of the same digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

/// A digest in the making, of content that comes in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Xxh3);

impl Digest {
    /// Returns the digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(content))
    }

    /// Returns the digest of all that `content` has to give.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn read(mut content: impl Read) -> io::Result<Self> {
        let mut hasher = Hasher::default();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match content.read(&mut piece) {
                Ok(0) => return Ok(hasher.digest()),
                Ok(count) => hasher.update(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads 32 hexadecimal digits.
    pub(super) fn parse(digits: &[u8]) -> Option<Self> {
        if digits.len() != DIGITS {
            return None;
        }
        digits.iter().try_fold(Self(0), |Self(sum), &digit| {
            let digit = char::from(digit).to_digit(16)?;
            Some(Self(sum << 4 | u128::from(digit)))
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Hasher {
    /// Takes the next piece of the content.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all pieces so far.
    pub fn digest(&self) -> Digest {
        Digest(self.0.digest128())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_same_however_the_content_comes() {
        let content: Vec<u8> = (0..300_000_u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        let whole = Digest::of(&content);
        assert_eq!(Digest::read(&content[..]).unwrap(), whole);
        let mut hasher = Hasher::default();
        content.chunks(777).for_each(|piece| hasher.update(piece));
        assert_eq!(hasher.digest(), whole);
        assert_ne!(Digest::of(&content[1..]), whole);
    }

    #[test]
    fn a_digest_is_the_one_that_others_compute() {
        // `printf abc | xxhsum -H128`.
        let digest = Digest::of(b"abc").to_string();
        assert_eq!(digest, "06b05ab6733a618578af5f94892f3950");
        assert_eq!(Digest::parse(digest.as_bytes()), Some(Digest::of(b"abc")));
        assert_eq!(Digest::parse(b"06b05ab6733a618578af5f94892f395"), None);
        assert_eq!(Digest::parse(b"+6b05ab6733a618578af5f94892f3950"), None);
    }
}
