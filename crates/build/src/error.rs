//! Reasons why there is no image.

use std::io;
use std::path::PathBuf;

use anteros_codec::EncodeError;
use anteros_core::{FsError, Occupant};

/// Tells why a build failed. Nothing is left of the image then, unless it was to be written in place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has an impossible value.
    #[error("{0}")]
    Option(String),
    /// The source could not be read.
    #[error("{path}: cannot {action}: {cause}", path = path.display())]
    Source {
        /// Holds what could not be read.
        path: PathBuf,
        /// Holds what was tried.
        action: &'static str,
        /// Holds what the operating system said.
        cause: io::Error,
    },
    /// A file system that is the source did not answer.
    #[error("{path}: cannot {action}: {cause}", path = path.display())]
    FileSystem {
        /// Holds what could not be read.
        path: PathBuf,
        /// Holds what was tried.
        action: &'static str,
        /// Holds what the file system said.
        cause: FsError,
    },
    /// An archive breaks a rule of its format, or has a member that cannot be kept.
    #[error("{path}: {member} at byte {offset}: {reason}", path = path.display(), member = member_text(member))]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The name of the member; empty if it has none yet.
        member: Vec<u8>,
        /// Byte of the archive, decompressed, at which the member begins.
        offset: u64,
        /// Tells which rule, and what was found.
        reason: String,
    },
    /// A manifest breaks a rule of its format, or does not agree with the content of its files.
    #[error("{path}:{line}: {reason}", path = path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The number of the line, from 1 on.
        line: u64,
        /// Tells which rule, and what was found.
        reason: String,
    },
    /// The content of an archive that is a stream could not be kept until it is read again.
    #[error("{directory}: cannot keep the content of the archive there, of which {kept_bytes} bytes are: {cause}",
        directory = directory.display())]
    Spool {
        /// The directory of the file that is to hold it.
        directory: PathBuf,
        /// Bytes of content that are there.
        kept_bytes: u64,
        /// Holds what the operating system said.
        cause: io::Error,
    },
    /// The image could not be kept until it is complete, where its bytes have to come in order.
    #[error("{directory}: cannot keep the image there until it is complete, of which {kept_bytes} bytes are: {cause}",
        directory = directory.display())]
    SpoolImage {
        /// The directory of the file that is to hold it.
        directory: PathBuf,
        /// Bytes of the image that are there.
        kept_bytes: u64,
        /// Holds what the operating system said.
        cause: io::Error,
    },
    /// A file was not the same any more when its content was read.
    #[error("{path}: it changed while the image was built", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file has a property that EROFS cannot keep.
    #[error("{path}: {reason}", path = path.display())]
    Unstorable {
        /// The file.
        path: PathBuf,
        /// Tells which property, and the limit.
        reason: String,
    },
    /// The image could not be written.
    #[error("{path}: cannot {action} the image: {cause}", path = path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// Holds what was tried.
        action: &'static str,
        /// Holds what the operating system said.
        cause: io::Error,
    },
    /// The list of blocks could not be written.
    #[error("{path}: cannot write the list of blocks: {cause}", path = path.display())]
    BlockList {
        /// The list.
        path: PathBuf,
        /// Holds what the operating system said.
        cause: io::Error,
    },
    /// Something else than an image would be overwritten.
    #[error("{path}: holds something already: {occupant}", path = path.display())]
    Occupied {
        /// The file or block device.
        path: PathBuf,
        /// Holds what it holds.
        occupant: Occupant,
    },
    /// The image would be packed into itself.
    #[error("{image}: the image lies inside the source, in {directory}; write it elsewhere or exclude that directory",
        image = image.display(), directory = directory.display())]
    ImageInsideSource {
        /// The image.
        image: PathBuf,
        /// The directory of the source that it lies in.
        directory: PathBuf,
    },
    /// Block numbers have 32 bits.
    #[error("{path}: the image has more than 2^32 - 2 blocks of {block_bytes} bytes; larger blocks or compression make it fit",
        path = path.display())]
    TooLarge {
        /// The image.
        path: PathBuf,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// A file could not be compressed.
    #[error("{path}: {cause}; fewer --workers or a lower level need less memory", path = path.display())]
    Compress {
        /// The file.
        path: PathBuf,
        /// Holds what the encoder said.
        cause: EncodeError,
    },
    /// A new image cannot lie in the room of an older one, or too much of it would be empty there.
    #[error("the places of the older image cannot be kept: {0}")]
    NotRenewed(String),
    /// The caller wanted no more of it.
    #[error("cancelled")]
    Cancelled,
}

/// The name of a member, for messages.
fn member_text(name: &[u8]) -> String {
    match name {
        b"" => "the member".into(),
        name => format!("`{}`", name.escape_ascii()),
    }
}
