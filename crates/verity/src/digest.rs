//! Digests.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256, Sha512};

use crate::hex;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256, which is usual.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Bytes of a digest, a power of two.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The digest of a block.
    pub fn digest(self, salt: &[u8], block: &[u8]) -> Digest {
        match self {
            Self::Sha256 => Digest::new(
                &Sha256::new()
                    .chain_update(salt)
                    .chain_update(block)
                    .finalize(),
            ),
            Self::Sha512 => Digest::new(
                &Sha512::new()
                    .chain_update(salt)
                    .chain_update(block)
                    .finalize(),
            ),
        }
    }
}

/// A digest of 32 or 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; 64],
    len: usize,
}

impl Digest {
    fn new(found: &[u8]) -> Self {
        let mut bytes = [0; 64];
        bytes[..found.len()].copy_from_slice(found);
        let len = found.len();
        Self { bytes, len }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Tells why a text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no root hash: 64 or 128 hexadecimal digits are wanted")]
pub struct ParseError(String);

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match hex::decode(text) {
            Some(bytes) if matches!(bytes.len(), 32 | 64) => Ok(Self::new(&bytes)),
            _ => Err(ParseError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_salt_and_block() {
        let digest = Algorithm::Sha256.digest(b"a", b"bc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), expected);
        assert_eq!(expected.parse(), Ok(digest));
        assert_eq!(expected.to_uppercase().parse(), Ok(digest));
        let long = Algorithm::Sha512.digest(b"", b"abc");
        assert_eq!(long.as_bytes().len(), 64);
        assert_eq!(long.to_string().parse(), Ok(long));
    }

    #[test]
    fn a_text_that_is_no_digest_is_refused() {
        for text in [
            "",
            "abc",
            &"g".repeat(64),
            &"0".repeat(63),
            "ä",
            &"0".repeat(96),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
