//! Rules that hold for every encoded extent, however it is indexed.

use anteros_core::Algorithm;
use anteros_format::features::Incompat;
use anteros_format::{Corrupt, EXTENT_BYTES_MAX, Unsupported};

use super::extent::{Encoding, Pcluster};
use crate::error::{Error, Place, Result};
use crate::image::Image;

/// Returns the encoding of an algorithm that the superblock lists.
pub(super) fn algorithm_listed(
    image: &Image,
    place: Place,
    algorithm: Algorithm,
) -> Result<Encoding> {
    if !image.superblock().incompat.contains(Incompat::ZERO_PADDING) {
        return Err(Error::Unsupported {
            place,
            fault: Unsupported::NoZeroPadding,
        });
    }
    if !image.superblock().algorithms.contains(algorithm) {
        return Err(Error::corrupt(place)(Corrupt::AlgorithmNotListed {
            name: algorithm,
        }));
    }
    Ok(Encoding::Compressed(algorithm))
}

/// Checks the lengths of an encoded extent.
pub(super) fn check_extent(place: Place, offset: u64, len: u64, pcluster: &Pcluster) -> Result<()> {
    let corrupt = Error::corrupt(place);
    let encoded = u64::from(pcluster.bytes);
    if len > EXTENT_BYTES_MAX {
        return Err(corrupt(Corrupt::ExtentLength { offset, len }));
    }
    let is_plain = !matches!(pcluster.encoding, Encoding::Compressed(_));
    if is_plain && len > encoded {
        return Err(corrupt(Corrupt::PlainLength {
            offset,
            len,
            encoded,
        }));
    }
    Ok(())
}
