//! Nodes: inodes, and the pointers that an inode has no room for.
//!
//! A node is a block with a number; the node address table says where it lies, so that a node that moves
//! changes nothing in those that name it. Source: `docs/format/log.md`, section 8.

use anteros_core::{FileKind, Rdev, Timestamp};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, BLOCKS_MAX, Block, Corrupt, block_crc};

/// Pointers in an inode.
pub const INODE_POINTERS: u32 = 460;
/// Pointers in a direct node.
pub const DIRECT_POINTERS: u32 = 508;
/// Nids in an indirect node.
pub const INDIRECT_NIDS: u32 = 1016;
/// The most bytes of content that an inode has room for.
pub const INLINE_BYTES: usize = 3680;
/// The most bytes of extended attributes that an inode has room for.
pub const INLINE_XATTR_BYTES: usize = 224;
/// The most logical blocks that a file can have.
pub const FILE_BLOCKS: u32 = INODE_POINTERS
    + 2 * DIRECT_POINTERS
    + 2 * DIRECT_POINTERS * INDIRECT_NIDS
    + DIRECT_POINTERS * INDIRECT_NIDS * INDIRECT_NIDS;
/// Bytes of an inode's attributes, as a record has them.
pub const ATTRIBUTES_BYTES: usize = 96;

const MAGIC: u32 = u32::from_le_bytes(*b"NODE");
const HEADER_BYTES: usize = 32;
const CRC_AT: usize = 4;
const INLINE_FLAG: u16 = 1;
const LAUNCHED_FLAG: u16 = 2;
const SETTLED_FLAG: u16 = 4;
const OWN_FLAG: u16 = 8;
const FLAGS: u16 = INLINE_FLAG | LAUNCHED_FLAG | SETTLED_FLAG | OWN_FLAG;
const XATTR_AT: usize = 0xc0;
const BODY_AT: usize = 0x1a0;

const _: () = assert!(BODY_AT + INLINE_BYTES == BLOCK_BYTES);
const _: () = assert!(INLINE_BYTES == 8 * INODE_POINTERS as usize);
const _: () = assert!(HEADER_BYTES + 8 * DIRECT_POINTERS as usize == BLOCK_BYTES);
const _: () = assert!(HEADER_BYTES + 4 * INDIRECT_NIDS as usize == BLOCK_BYTES);
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawAttributes>() == ATTRIBUTES_BYTES);
const _: () = assert!(size_of::<RawInode>() == XATTR_AT - HEADER_BYTES);

/// Tells what a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Attributes, and content or the first pointers.
    Inode,
    /// Pointers.
    Direct,
    /// Nids of direct nodes, or of indirect ones.
    Indirect,
    /// Extended attributes.
    Attributes,
}

impl NodeKind {
    const ALL: [Self; 4] = [Self::Inode, Self::Direct, Self::Indirect, Self::Attributes];

    fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw.checked_sub(1)?)).copied()
    }

    fn to_raw(self) -> u16 {
        self as u16 + 1
    }
}

/// The head of a node, as it lies in its block.
///
/// ```text
///      0           4           8           c
/// 0x00 |   magic   |    crc    |    nid    |    ino    |
/// 0x10 |        version        |kind | 0   | position  |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    crc: U32,
    nid: U32,
    ino: U32,
    version: U64,
    kind: U16,
    reserved: U16,
    position: U32,
}

/// Tells which node a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHeader {
    /// Its number.
    pub nid: u32,
    /// The inode that it belongs to.
    pub ino: u32,
    /// The version of the checkpoint that follows it.
    pub version: u64,
    /// Holds what it is for.
    pub kind: NodeKind,
    /// Its place in the tree of the inode.
    pub position: u32,
}

impl NodeHeader {
    /// Returns what the block says of itself, which must be `nid`.
    ///
    /// # Errors
    ///
    /// When the block is no such node, or its checksum is wrong.
    pub fn check(block: &Block, nid: u32) -> Result<Self, Corrupt> {
        let header =
            Self::parse(block).map_err(|(rule, found)| Corrupt::Node { nid, rule, found })?;
        if header.nid != nid {
            return Err(Corrupt::Node {
                nid,
                rule: "the block holds another node",
                found: header.nid.into(),
            });
        }
        Ok(header)
    }

    /// Returns what the block says of itself, whatever node it is; else the rule that is broken, and by what.
    pub fn parse(block: &Block) -> Result<Self, (&'static str, u64)> {
        let (raw, _) =
            RawHeader::read_from_prefix(block).map_err(|_| ("the block is too short", 0))?;
        if raw.magic.get() != MAGIC {
            return Err(("the magic number is wrong", raw.magic.get().into()));
        }
        if raw.crc.get() != block_crc(block, CRC_AT) {
            return Err(("the checksum is wrong", raw.crc.get().into()));
        }
        let kind = NodeKind::from_raw(raw.kind.get());
        Ok(Self {
            nid: raw.nid.get(),
            ino: raw.ino.get(),
            version: raw.version.get(),
            kind: kind.ok_or(("the kind is unknown", raw.kind.get().into()))?,
            position: raw.position.get(),
        })
    }

    /// Writes the head of a node over that of `block`, and its checksum: the last thing before it leaves.
    pub fn seal(&self, block: &mut Block) {
        let raw = RawHeader {
            magic: MAGIC.into(),
            crc: 0.into(),
            nid: self.nid.into(),
            ino: self.ino.into(),
            version: self.version.into(),
            kind: self.kind.to_raw().into(),
            reserved: 0.into(),
            position: self.position.into(),
        };
        block[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
        let crc = block_crc(block, CRC_AT);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The attributes of an inode, as they lie in its node and in records.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAttributes {
    mode: U16,
    flags: U16,
    nlink: U32,
    uid: U32,
    gid: U32,
    size: U64,
    blocks: U64,
    secs: [I64; 4],
    nanos: [U32; 4],
    generation: U32,
    parent: U32,
    major: U32,
    minor: U32,
}

/// Holds what is known of an inode besides its content and its extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Holds what it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Tells whether the content lies in the inode.
    pub is_inline: bool,
    /// Tells whether what launches read of it lies in the order in which they do.
    pub is_launched: bool,
    /// Tells whether all of its content was compressed in the background, as far as that gains, since it changed.
    pub is_settled: bool,
    /// Tells whether it belongs to the log itself, which keeps its record there. No name leads to it.
    pub is_own: bool,
    /// Names that refer to it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Blocks that it takes, its nodes included.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Tells when it was made.
    pub btime: Timestamp,
    /// Tells how often its number had been used before.
    pub generation: u32,
    /// Of a directory: its parent; else the directory of the newest name.
    pub parent: u32,
    /// Of a device: which.
    pub rdev: Rdev,
}

impl Attributes {
    /// Reads and checks the attributes of inode `ino`.
    ///
    /// # Errors
    ///
    /// When the kind is unknown, a flag or a number of nanoseconds is out of range, or the log keeps a record in what is no
    /// file.
    pub fn parse(bytes: &[u8; ATTRIBUTES_BYTES], ino: u32) -> Result<Self, Corrupt> {
        let raw = zerocopy::transmute_ref!(bytes);
        Self::from_raw(raw).map_err(|(rule, found)| Corrupt::Node {
            nid: ino,
            rule,
            found,
        })
    }

    fn from_raw(raw: &RawAttributes) -> Result<Self, (&'static str, u64)> {
        let mode = raw.mode.get();
        let kind =
            FileKind::from_mode(mode.into()).ok_or(("the mode is that of no file", mode.into()))?;
        let flags = raw.flags.get();
        if flags & !FLAGS != 0 {
            return Err(("a flag is unknown", flags.into()));
        }
        if flags & OWN_FLAG != 0 && kind != FileKind::Regular {
            return Err(("what belongs to the log itself is no file", mode.into()));
        }
        if let Some(nanos) = raw.nanos.iter().find(|nanos| nanos.get() >= 1_000_000_000) {
            return Err((
                "a time has a second or more of nanoseconds",
                nanos.get().into(),
            ));
        }
        if raw.size.get() > u64::from(FILE_BLOCKS) * BLOCK_BYTES as u64 {
            return Err(("the size is beyond all files", raw.size.get()));
        }
        if raw.blocks.get() > BLOCKS_MAX {
            return Err(("more blocks than a device has", raw.blocks.get()));
        }
        let time = |which: usize| Timestamp {
            secs: raw.secs[which].get(),
            nanos: raw.nanos[which].get(),
        };
        Ok(Self {
            kind,
            perm: mode & 0o7777,
            is_inline: flags & INLINE_FLAG != 0,
            is_launched: flags & LAUNCHED_FLAG != 0,
            is_settled: flags & SETTLED_FLAG != 0,
            is_own: flags & OWN_FLAG != 0,
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            size: raw.size.get(),
            blocks: raw.blocks.get(),
            atime: time(0),
            mtime: time(1),
            ctime: time(2),
            btime: time(3),
            generation: raw.generation.get(),
            parent: raw.parent.get(),
            rdev: Rdev {
                major: raw.major.get(),
                minor: raw.minor.get(),
            },
        })
    }

    fn to_raw(self) -> RawAttributes {
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        let flags = [
            (INLINE_FLAG, self.is_inline),
            (LAUNCHED_FLAG, self.is_launched),
            (SETTLED_FLAG, self.is_settled),
            (OWN_FLAG, self.is_own),
        ];
        // The bits of a kind lie within the lower sixteen.
        let kind_bits = self.kind.mode_bits() as u16;
        RawAttributes {
            mode: (kind_bits | self.perm).into(),
            flags: flags
                .into_iter()
                .filter_map(|(flag, is)| is.then_some(flag))
                .sum::<u16>()
                .into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            secs: times.map(|time| time.secs.into()),
            nanos: times.map(|time| time.nanos.into()),
            generation: self.generation.into(),
            parent: self.parent.into(),
            major: self.rdev.major.into(),
            minor: self.rdev.minor.into(),
        }
    }

    /// As they lie in a node and in a record.
    pub fn encode(self) -> [u8; ATTRIBUTES_BYTES] {
        zerocopy::transmute!(self.to_raw())
    }
}

/// An inode between the head of the node and its extended attributes.
///
/// ```text
/// 0x20 | attributes, 96 bytes                                            |
/// 0x80 | xattr_nid | xlen ilen | direct 0  | direct 1  |
/// 0x90 | indirect 0| indirect 1| double    | entries   | reserved to 0xc0 |
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInode {
    attributes: RawAttributes,
    xattr_nid: U32,
    xattr_len: U16,
    inline_len: U16,
    nids: [U32; 5],
    entries: U32,
    reserved: [u8; 32],
}

/// An inode, but for its pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Holds what is known of it.
    pub attributes: Attributes,
    /// The node with its extended attributes; 0: they lie in the inode.
    pub xattr_nid: u32,
    /// Its extended attributes, if they lie in the inode.
    pub xattrs: Vec<u8>,
    /// Its content, if that lies in the inode.
    pub inline: Vec<u8>,
    /// Two direct nodes, two indirect ones and a double indirect one; 0: none.
    pub nids: [u32; 5],
    /// Of a directory: how many names it has.
    pub entries: u32,
}

impl Inode {
    /// An inode without content and extended attributes.
    pub(crate) fn empty(attributes: Attributes) -> Self {
        Self {
            attributes,
            xattr_nid: 0,
            xattrs: Vec::new(),
            inline: Vec::new(),
            nids: [0; 5],
            entries: 0,
        }
    }

    /// Reads and checks the inode in a block, which is known to be the node `ino`.
    ///
    /// # Errors
    ///
    /// As [`Attributes::parse`], and when a length exceeds the room for it.
    pub fn parse(block: &Block, ino: u32) -> Result<Self, Corrupt> {
        let fault = |rule, found| Corrupt::Node {
            nid: ino,
            rule,
            found,
        };
        let raw = RawInode::read_from_prefix(&block[HEADER_BYTES..])
            .map_err(|_| fault("the block is too short", 0))?
            .0;
        let attributes =
            Attributes::from_raw(&raw.attributes).map_err(|(rule, found)| fault(rule, found))?;
        let xattr_len = usize::from(raw.xattr_len.get());
        if xattr_len > INLINE_XATTR_BYTES {
            return Err(fault(
                "more than 224 bytes of inline extended attributes",
                xattr_len as u64,
            ));
        }
        let inline_len = usize::from(raw.inline_len.get());
        if inline_len > INLINE_BYTES {
            return Err(fault(
                "more than 3,680 bytes of inline content",
                inline_len as u64,
            ));
        }
        if !attributes.is_inline && inline_len > 0 {
            return Err(fault("inline content beside pointers", inline_len as u64));
        }
        if attributes.is_inline
            && attributes.kind != FileKind::Directory
            && attributes.size != inline_len as u64
        {
            return Err(fault(
                "the size is not that of the inline content",
                attributes.size,
            ));
        }
        Ok(Self {
            attributes,
            xattr_nid: raw.xattr_nid.get(),
            xattrs: block[XATTR_AT..XATTR_AT + xattr_len].to_vec(),
            inline: block[BODY_AT..BODY_AT + inline_len].to_vec(),
            nids: raw.nids.map(U32::get),
            entries: raw.entries.get(),
        })
    }

    /// Writes all but the head of the node and, unless the content is inline, the pointers.
    pub fn store(&self, block: &mut Block) {
        // Both lengths have been held to their room.
        let raw = RawInode {
            attributes: self.attributes.to_raw(),
            xattr_nid: self.xattr_nid.into(),
            xattr_len: (self.xattrs.len() as u16).into(),
            inline_len: (self.inline.len() as u16).into(),
            nids: self.nids.map(Into::into),
            entries: self.entries.into(),
            reserved: [0; 32],
        };
        block[HEADER_BYTES..XATTR_AT].copy_from_slice(raw.as_bytes());
        put_padded(&mut block[XATTR_AT..BODY_AT], &self.xattrs);
        if self.attributes.is_inline {
            put_padded(&mut block[BODY_AT..], &self.inline);
        }
    }
}

fn put_padded(room: &mut [u8], bytes: &[u8]) {
    let (used, rest) = room.split_at_mut(bytes.len());
    used.copy_from_slice(bytes);
    rest.fill(0);
}

/// The pointers of an inode or a direct node, by their position.
fn pointer_at(kind: NodeKind, index: u16) -> usize {
    let start = if kind == NodeKind::Inode {
        BODY_AT
    } else {
        HEADER_BYTES
    };
    start + 8 * usize::from(index)
}

/// A pointer of an inode or a direct node.
pub fn pointer(block: &Block, kind: NodeKind, index: u16) -> u64 {
    let at = pointer_at(kind, index);
    U64::read_from_prefix(&block[at..]).map_or(0, |(raw, _)| raw.get())
}

/// Sets a pointer of an inode or a direct node.
pub fn set_pointer(block: &mut Block, kind: NodeKind, index: u16, raw: u64) {
    let at = pointer_at(kind, index);
    block[at..at + 8].copy_from_slice(&raw.to_le_bytes());
}

/// A nid of an indirect node.
pub fn nid(block: &Block, index: u16) -> u32 {
    let at = HEADER_BYTES + 4 * usize::from(index);
    U32::read_from_prefix(&block[at..]).map_or(0, |(raw, _)| raw.get())
}

/// Sets a nid of an indirect node.
pub fn set_nid(block: &mut Block, index: u16, nid: u32) {
    let at = HEADER_BYTES + 4 * usize::from(index);
    block[at..at + 4].copy_from_slice(&nid.to_le_bytes());
}

/// The way from an inode to the pointer of a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Tells which of the inode's five nids; `None`: the pointer lies in the inode.
    pub root: Option<u8>,
    /// Tells how many nodes lie between the inode and the pointer, the one with the pointer included.
    pub depth: u8,
    /// Holds what to take in each of them, beginning with the inode if the pointer lies there.
    pub indexes: [u16; 3],
    /// The place of each of these nodes in the tree.
    pub positions: [u32; 3],
    /// The first logical block whose pointer lies in the last node.
    pub first: u32,
    /// Tells how many pointers the last node has.
    pub count: u32,
}

/// A node on the way from an inode to a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Tells how many levels it lies above the nodes with pointers.
    pub level: usize,
    /// Its place in the tree.
    pub position: u32,
    /// Holds what to take in it.
    pub index: u16,
}

impl Path {
    /// Returns what to take in the last node.
    pub fn index(&self) -> u16 {
        self.indexes[usize::from(self.depth.saturating_sub(1))]
    }

    /// The nodes between the inode and the pointer, the one with the pointer last.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = Step> + ExactSizeIterator {
        let depth = usize::from(self.depth);
        let places = self.positions.into_iter().zip(self.indexes).take(depth);
        let levels = (0..depth).rev();
        levels.zip(places).map(|(level, (position, index))| Step {
            level,
            position,
            index,
        })
    }

    /// The way to logical block `lblk`; `None` beyond the largest file.
    pub fn to(lblk: u32) -> Option<Self> {
        let path = |root, depth, indexes, positions, first, count| Self {
            root,
            depth,
            indexes,
            positions,
            first,
            count,
        };
        if lblk < INODE_POINTERS {
            return Some(path(
                None,
                0,
                [lblk as u16, 0, 0],
                [0; 3],
                0,
                INODE_POINTERS,
            ));
        }
        let mut rest = lblk - INODE_POINTERS;
        for root in 0..2 {
            if rest < DIRECT_POINTERS {
                return Some(path(
                    Some(root as u8),
                    1,
                    [rest as u16, 0, 0],
                    [1 + root, 0, 0],
                    lblk - rest,
                    DIRECT_POINTERS,
                ));
            }
            rest -= DIRECT_POINTERS;
        }
        for root in 0..2 {
            let span = DIRECT_POINTERS * INDIRECT_NIDS;
            if rest < span {
                let (child, index) = (rest / DIRECT_POINTERS, rest % DIRECT_POINTERS);
                let position = 3 + root * (INDIRECT_NIDS + 1);
                let positions = [position, position + 1 + child, 0];
                return Some(path(
                    Some(2 + root as u8),
                    2,
                    [child as u16, index as u16, 0],
                    positions,
                    lblk - index,
                    DIRECT_POINTERS,
                ));
            }
            rest -= span;
        }
        let span = DIRECT_POINTERS * INDIRECT_NIDS;
        let (outer, within) = (rest / span, rest % span);
        if outer >= INDIRECT_NIDS {
            return None;
        }
        let (inner, index) = (within / DIRECT_POINTERS, within % DIRECT_POINTERS);
        let position = 3 + 2 * (INDIRECT_NIDS + 1);
        let middle = position + 1 + outer * (INDIRECT_NIDS + 1);
        let indexes = [outer as u16, inner as u16, index as u16];
        Some(path(
            Some(4),
            3,
            indexes,
            [position, middle, middle + 1 + inner],
            lblk - index,
            DIRECT_POINTERS,
        ))
    }
}

#[cfg(test)]
mod tests;
