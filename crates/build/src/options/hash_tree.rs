//! A hash tree, as it is asked for.

use anteros_verity::{Algorithm, Parity, SALT_BYTES_MAX};

use crate::Error;

/// Describes the hash tree behind an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashTree {
    /// The hash function.
    pub algorithm: Algorithm,
    /// Bytes that are hashed in front of each block, at most 256. By default that is a digest of the image's UUID.
    pub salt: Option<Vec<u8>>,
    /// Bytes of parity for as many bytes of data and tree as make 255 with them, by which the kernel repairs blocks that were
    /// damaged: one of [`Parity::ROOTS`].
    pub parity_roots: Option<u8>,
}

impl HashTree {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bytes = self.salt.as_ref().map_or(0, Vec::len);
        if bytes > SALT_BYTES_MAX {
            return Err(Error::Option(format!(
                "a salt of {bytes} bytes; {SALT_BYTES_MAX} are the most"
            )));
        }
        match self.parity_roots {
            Some(roots) if !Parity::ROOTS.contains(&roots) => Err(Error::Option(format!(
                "parity of {roots} bytes; there can be {} to {}",
                Parity::ROOTS.start(),
                Parity::ROOTS.end()
            ))),
            _ => Ok(()),
        }
    }
}
