//! An image that is appended to: what is known of it, and who tells of its inodes.

use std::ops::Range;

use anteros_core::{FsError, FsResult, Ino, StoredRun, Timestamp};
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::patch::Slots;
use anteros_format::superblock::Superblock;

use crate::Error;
use crate::places::SourceDevice;

/// Tells of the inodes of an image that is appended to.
pub trait Base: Send + Sync {
    /// Returns where an inode lies, with all that follows it.
    ///
    /// # Errors
    ///
    /// If the inode breaks a rule, or cannot be read.
    fn record(&self, ino: Ino) -> FsResult<Record>;

    /// Reads bytes of the image.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn read(&self, address: u64, buf: &mut [u8]) -> FsResult<()>;

    /// Tells where bytes of a file lie, or of the packed inode where there is no number: all runs that have some of them, in
    /// order. Whoever tells of none has changed files stored anew.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn stored(&self, ino: Option<Ino>, bytes: Range<u64>) -> FsResult<Vec<StoredRun>> {
        let _ = (ino, bytes);
        Ok(Vec::new())
    }

    /// Bytes of the content of the packed inode. Whoever tells of none has files of a patch packed nowhere.
    fn packed_bytes(&self) -> u64 {
        0
    }

    /// Reads content of the packed inode.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn read_packed(&self, offset: u64, buf: &mut [u8]) -> FsResult<()> {
        let _ = (offset, buf);
        Err(FsError::Unsupported)
    }

    /// Returns what the content of an inode takes beside its record. Whoever does not tell has no image built in the room of
    /// its own ([`Options::renew`](crate::Options::renew)).
    ///
    /// # Errors
    ///
    /// If what tells that breaks a rule, or cannot be read.
    fn taken(&self, ino: Ino) -> FsResult<Taken> {
        let _ = ino;
        Err(FsError::Unsupported)
    }
}

/// The room that content of an inode takes, apart from what lies behind the inode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Ranges of bytes of the image; content that is stored as it is takes whole blocks.
    pub image: Vec<Range<u64>>,
    /// Ranges of bytes of the packed inode.
    pub packed: Vec<Range<u64>>,
}

/// An inode with its attributes, its index and its inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The byte of the image at which it begins.
    pub address: u64,
    /// Bytes of all of it.
    pub bytes: u64,
    /// Tells whether it ends with inline data, which lies in one block.
    pub is_inline: bool,
}

/// An image that is appended to.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Its superblock, from byte 1024 on, as far as its checksum reaches.
    pub superblock: Vec<u8>,
    /// The configurations of its decoders.
    pub cfgs: ComprCfgs,
    /// The byte at which what is new may begin: nothing of the image lies behind it.
    pub end: u64,
    /// The inode of what is packed.
    pub packed: Option<(Record, Vec<u8>)>,
}

/// A patch: what is appended beside inodes that stay where they are.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The number of the state that it makes, from 1 on.
    pub number: u32,
    /// The time that is recorded.
    pub time: Timestamp,
    /// The byte at which the record of the state before begins; `None` for the first patch.
    pub previous: Option<u64>,
    /// Slots in which nothing but zeros lie and that no state refers to, outside of the first block; ascending.
    pub free: Vec<Slots>,
    /// Tells whether changes are only told.
    pub dry_run: bool,
}

/// A patch as a layer: an image of its own, with all metadata and what is new. All other content lies on a device, which is the
/// image that it is of ([`Options::append`](crate::Options::append)).
#[derive(Debug, Clone, Default)]
pub struct PatchLayer {
    /// The device, by whose tag readers know it.
    pub device: SourceDevice,
    /// Tells whether changes are only told.
    pub dry_run: bool,
}

/// A rebuild: a new image, in which all that the older one ([`Options::append`](crate::Options::append)) has as well lies
/// where it does there.
#[derive(Debug, Clone, Default)]
pub struct Renew {
    /// Ranges of bytes of the older image that nothing refers to, ascending.
    pub gaps: Vec<Range<u64>>,
    /// Bytes of the content of its packed inode.
    pub packed_bytes: u64,
    /// Ranges of bytes of the older image in which these lie, compressed.
    pub packed: Vec<Range<u64>>,
}

impl Appended {
    /// The superblock, parsed.
    pub(crate) fn parsed(&self) -> Result<Superblock, Error> {
        let parsed = Superblock::parse(&self.superblock);
        parsed.map_err(|fault| Error::Option(format!("the image to append to: {fault:?}")))
    }
}
