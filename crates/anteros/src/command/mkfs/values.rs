//! Values of arguments, as text gives them.

use std::str::FromStr;

use anteros_build::{Fragments, IdRange, InodeForm};
use clap::ValueEnum;

use crate::args::c_number;

/// An option of `-E`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    LegacyCompress(bool),
    InlineData(bool),
    InlineTails(bool),
    Dedupe(bool),
    Fragments(Option<Fragments>),
    /// Equal fragments are always stored once; for mkfs.erofs' sake.
    FragmentsOnce,
    InodeForm(InodeForm),
    ChunkIndexes(bool),
    Wide(bool),
    DotOmitted(bool),
    /// Directories packed, if files are compressed; `--compress-directories` counts more.
    Directories(bool),
    /// Metadata in clusters of so many bytes, by the codec of files; `-m` counts more.
    Metadata(u32),
    NoChecksum,
    XattrFilter(bool),
    PlainPrefixes(bool),
}

impl FromStr for Extended {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(fragments) = fragments(text) {
            return fragments;
        }
        Ok(match text {
            "legacy-compress" | "legacy_compress" => Self::LegacyCompress(true),
            "^legacy-compress" | "^legacy_compress" => Self::LegacyCompress(false),
            "inline_data" => Self::InlineData(true),
            "^inline_data" | "noinline_data" => Self::InlineData(false),
            "ztailpacking" => Self::InlineTails(true),
            "^ztailpacking" => Self::InlineTails(false),
            "dedupe" => Self::Dedupe(true),
            "^dedupe" => Self::Dedupe(false),
            "fragdedupe" | "fragdedupe=full" | "fragdedupe=inode" => Self::FragmentsOnce,
            "force-inode-compact" => Self::InodeForm(InodeForm::Compact),
            "force-inode-extended" => Self::InodeForm(InodeForm::Extended),
            "force-inode-blockmap" => Self::ChunkIndexes(false),
            "force-chunk-indexes" => Self::ChunkIndexes(true),
            "48bit" => Self::Wide(true),
            "^48bit" => Self::Wide(false),
            "dot-omitted" => Self::DotOmitted(true),
            "^dot-omitted" => Self::DotOmitted(false),
            "nosbcrc" => Self::NoChecksum,
            "xattr-name-filter" => Self::XattrFilter(true),
            "^xattr-name-filter" => Self::XattrFilter(false),
            "^fragdedupe" => return Err("equal fragments are always stored once".into()),
            "plain-xattr-prefixes" => Self::PlainPrefixes(true),
            "^plain-xattr-prefixes" => Self::PlainPrefixes(false),
            _ => return Err("there is no such extended option; --help lists them".into()),
        })
    }
}

/// Reads `fragments` and `all-fragments`, with the cluster size of the packed inode or without.
fn fragments(text: &str) -> Option<Result<Extended, String>> {
    let (name, size) = match text.split_once('=') {
        Some((name, size)) => (name, Some(size)),
        None => (text, None),
    };
    let all = match name {
        "fragments" => false,
        "all-fragments" => true,
        "^fragments" | "^all-fragments" if size.is_none() => {
            return Some(Ok(Extended::Fragments(None)));
        }
        _ => return None,
    };
    let bytes = |size: &str| {
        let bytes = anteros_core::parse_size(size).map_err(|e| e.to_string())?;
        u32::try_from(bytes).map_err(|_| "clusters have at most 1M".to_owned())
    };
    let pcluster_bytes = size.map(bytes).transpose();
    Some(pcluster_bytes.map(|pcluster_bytes| {
        Extended::Fragments(Some(Fragments {
            all,
            pcluster_bytes,
        }))
    }))
}

/// `--tar`: the source is an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tar {
    /// A full image is made of it.
    Full,
    /// It keeps the content of files, and is the extra device of the image.
    Index,
    /// It has no content of files, which are zeros in the image.
    Headers,
}

impl FromStr for Tar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f" => Ok(Self::Full),
            "i" => Ok(Self::Index),
            "headers" | "headerball" => Ok(Self::Headers),
            _ if text.contains(',') => Err("maps of the source are not supported yet".into()),
            _ => Err("`f`, `i` and `headers` are the values".into()),
        }
    }
}

/// `-U`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uuid {
    Random,
    Given([u8; 16]),
}

impl FromStr for Uuid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => return Ok(Self::Random),
            "clear" => return Ok(Self::Given([0; 16])),
            _ => {}
        }
        let shape = [8, 4, 4, 4, 12];
        let parts: Vec<&str> = text.split('-').collect();
        let fits = parts.len() == 5 && parts.iter().zip(shape).all(|(part, len)| part.len() == len);
        let number = u128::from_str_radix(&parts.concat(), 16)
            .ok()
            .filter(|_| fits && !text.contains('+'));
        let number = number.ok_or("a UUID looks like 123e4567-e89b-12d3-a456-426614174000")?;
        Ok(Self::Given(number.to_be_bytes()))
    }
}

/// `--holes`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Holes {
    Auto,
    Keep,
    Compress,
}

/// `--content`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Content {
    /// The image has it
    Copy,
    /// It stays in the images that are sources
    Refer,
    /// The image has room for it
    Reserve,
    /// Files are zeros
    Zero,
}

impl From<Content> for anteros_build::Content {
    fn from(content: Content) -> Self {
        match content {
            Content::Copy => Self::Copy,
            Content::Refer => Self::Refer,
            Content::Reserve => Self::Reserve,
            Content::Zero => Self::Zero,
        }
    }
}

/// `--order`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Path,
    Stream,
    Group,
    Name,
    Kind,
}

/// `-b`: the block size as a shift.
pub fn block_bits(text: &str) -> Result<u8, String> {
    let bytes = anteros_core::parse_size(text).map_err(|e| e.to_string())?;
    match bytes {
        512..=65536 if bytes.is_power_of_two() => Ok(bytes.trailing_zeros() as u8),
        _ => Err("blocks are powers of two from 512 to 65536 bytes".into()),
    }
}

/// Reads whether something is on.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("1 is on, 0 is off".into()),
    }
}

/// `--uid-map` and `--gid-map`.
pub fn id_range(text: &str) -> Result<IdRange, String> {
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([from, to, count]) => Ok(IdRange {
            from: *from,
            to: *to,
            count: *count,
        }),
        _ => Err("FROM:TO:COUNT, three numbers, is wanted".into()),
    }
}

/// A count, as C writes numbers.
pub fn count(text: &str) -> Result<u32, String> {
    let number = c_number(text)?;
    u32::try_from(number).map_err(|error| error.to_string())
}

/// A number of seconds, as C writes it.
pub fn seconds(text: &str) -> Result<i64, String> {
    let number = c_number(text)?;
    i64::try_from(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let text = "00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!(
            text.parse(),
            Ok(Uuid::Given(std::array::from_fn(|i| i as u8)))
        );
        assert_eq!("clear".parse(), Ok(Uuid::Given([0; 16])));
        let signed = "+0010203-0405-0607-0809-0a0b0c0d0e0f";
        for bad in [
            "",
            "00010203",
            "zz010203-0405-0607-0809-0a0b0c0d0e0f",
            signed,
        ] {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn block_sizes() {
        assert_eq!(block_bits("4096"), Ok(12));
        assert_eq!(block_bits("16K"), Ok(14));
        for bad in ["256", "128K", "5000", "0"] {
            assert!(block_bits(bad).is_err(), "{bad}");
        }
    }
}
