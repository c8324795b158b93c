//! Differences of an image and its source, and how people are told of them.

use std::fmt;

use crate::ImagePath;

/// A path at which an image and its source differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Difference {
    /// The path in both.
    pub path: ImagePath,
    /// Tells how they differ.
    pub what: Mismatch,
}

/// Tells how an image and its source differ at a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are the two sides
#[non_exhaustive]
pub enum Mismatch {
    /// The source has no such name, or it was to be excluded.
    OnlyInImage,
    /// The image has no such name.
    OnlyInSource,
    /// They are of different kinds.
    Kind {
        image: &'static str,
        source: &'static str,
    },
    /// Permission, set-id and sticky bits.
    Mode { image: u16, source: u16 },
    /// Owner and group.
    Owner {
        image: (u32, u32),
        expected: (u32, u32),
    },
    /// Seconds and nanoseconds of the last modification.
    Time {
        image: (i64, u32),
        expected: (i64, u32),
    },
    /// Size of a file in bytes.
    Size { image: u64, source: u64 },
    /// Device numbers, major and minor.
    Device {
        image: (u32, u32),
        source: (u32, u32),
    },
    /// Targets of a symbolic link.
    Target { image: ImageText, source: ImageText },
    /// In one of both this name is a hard link of another, in the other it is not.
    Links { in_image: bool, other: ImagePath },
    /// The source has no such attribute.
    XattrOnlyInImage { name: ImageText },
    /// The image has no such attribute.
    XattrOnlyInSource { name: ImageText },
    /// The values of an attribute differ.
    XattrValue { name: ImageText },
    /// The first byte that differs in a file of the same size.
    Data { offset: u64 },
    /// Part of a side could not be read, so there was nothing to compare.
    Unreadable {
        side: Side,
        part: &'static str,
        why: String,
    },
}

/// One of the two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The image.
    Image,
    /// The directory that the image is compared with.
    Source,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "image",
            Self::Source => "source",
        })
    }
}

/// Bytes that are nearly always text; shown with all else escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageText(pub Vec<u8>);

impl fmt::Display for ImageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyInImage => f.write_str("only in the image"),
            Self::OnlyInSource => f.write_str("only in the source"),
            Self::Kind { image, source } => {
                write!(f, "a {image} in the image, a {source} in the source")
            }
            Self::Mode { image, source } => {
                write!(
                    f,
                    "mode {image:04o} in the image, {source:04o} in the source"
                )
            }
            Self::Owner { image, expected } => {
                let ((uid, gid), (to_be, group)) = (image, expected);
                write!(
                    f,
                    "owner {uid}:{gid} in the image instead of {to_be}:{group}"
                )
            }
            Self::Time { image, expected } => {
                let ((secs, nanos), (to_be, fraction)) = (image, expected);
                write!(
                    f,
                    "time {secs}.{nanos:09} in the image instead of {to_be}.{fraction:09}"
                )
            }
            Self::Size { image, source } => {
                write!(f, "{image} bytes in the image, {source} in the source")
            }
            Self::Device { image, source } => {
                let ((major, minor), (to_be, unit)) = (image, source);
                write!(
                    f,
                    "device {major}:{minor} in the image, {to_be}:{unit} in the source"
                )
            }
            Self::Target { image, source } => {
                write!(
                    f,
                    "links to {image} in the image, to {source} in the source"
                )
            }
            Self::Links {
                in_image: true,
                other,
            } => {
                write!(f, "a hard link of {other} in the image alone")
            }
            Self::Links {
                in_image: false,
                other,
            } => {
                write!(f, "a hard link of {other} in the source alone")
            }
            Self::XattrOnlyInImage { name } => write!(f, "attribute {name} only in the image"),
            Self::XattrOnlyInSource { name } => write!(f, "attribute {name} only in the source"),
            Self::XattrValue { name } => write!(f, "attribute {name} has another value"),
            Self::Data { offset } => write!(f, "the data differs at byte {offset}"),
            Self::Unreadable { side, part, why } => {
                write!(f, "the {part} cannot be read in the {side}: {why}")
            }
        }
    }
}
