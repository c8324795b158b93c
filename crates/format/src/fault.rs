//! Reasons why bytes are refused.

use anteros_core::{Algorithm, FileKind};

use crate::Nid;

/// Bytes that break the format, or ask for something this code does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A rule of the format is broken.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Valid perhaps, but unknown here.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Something newer, or stranger, than this code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
#[non_exhaustive]
pub enum Unsupported {
    #[error("unknown incompatible features {bits:#x}: the image needs a newer reader")]
    Incompat { bits: u32 },
    #[error("inode format {i_format:#06x} has unknown bits or an unknown data layout")]
    InodeFormat { i_format: u16 },
    #[error("chunk format {format:#06x} has unknown bits")]
    ChunkFormat { format: u16 },
    #[error("compression algorithm {id} is unknown")]
    Algorithm { id: u8 },
    #[error("compression algorithms {bits:#06x} are not all known")]
    Algorithms { bits: u16 },
    #[error(
        "logical clusters of 2^{bits} bytes are larger than a block, or than their index can pack"
    )]
    LclusterBits { bits: u8 },
    #[error("the streams are not right-aligned, as before Linux 5.4")]
    NoZeroPadding,
}

/// A broken rule of the format, with the value that breaks it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
#[non_exhaustive]
pub enum Corrupt {
    // Superblock.
    #[error("no EROFS image: the magic is {found:#010x} instead of 0xe0f5e1e2")]
    Magic { found: u32 },
    #[error("the block size is 2^{bits} bytes; it must be 2^9 to 2^16")]
    BlockBits { bits: u8 },
    #[error("{slots} superblock extension slots do not fit in a block of {block_bytes} bytes")]
    SuperblockSize { slots: u8, block_bytes: u32 },
    #[error("the directory block shift is {found}; it must be 0")]
    DirBlockBits { found: u8 },
    #[error("the superblock checksum is {computed:#010x}, but {stored:#010x} is recorded")]
    Checksum { stored: u32, computed: u32 },
    #[error("the metabox feature needs a superblock of 144 bytes, this one has {bytes}")]
    MetaboxSuperblock { bytes: u16 },
    #[error("the {which} inode has the forbidden node id {nid}")]
    SpecialNid { which: &'static str, nid: Nid },
    #[error("{count} long xattr prefixes; 128 is the most")]
    PrefixCount { count: u8 },
    #[error("the digest prefix is number {index} of {count}")]
    DigestPrefix { index: u8, count: u8 },
    #[error("{name} compression is configured by {found} bytes instead of {needed}")]
    ComprCfgSize {
        name: Algorithm,
        found: u16,
        needed: u16,
    },
    #[error("{name} compression is configured with an impossible {field} of {value}")]
    ComprCfg {
        name: Algorithm,
        field: &'static str,
        value: u64,
    },

    // Addresses.
    #[error("{what} reaches byte {end:#x} of {of}, which has {size:#x}")]
    OutOfBounds {
        what: &'static str,
        end: u64,
        of: &'static str,
        size: u64,
    },
    #[error("the address of {what} overflows")]
    AddressOverflow { what: &'static str },

    // Records of patches.
    #[error("the record of a patch has an impossible {what}: {found:#x}")]
    PatchRecord { what: &'static str, found: u64 },
    #[error("the patch has an impossible {what}: {found:#x}")]
    PatchFile { what: &'static str, found: u64 },

    // Inodes.
    #[error("mode {mode:#o} is of no known kind of file")]
    Mode { mode: u16 },
    #[error("a size of {size} bytes is impossible for a {kind}", kind = kind.name())]
    Size { size: u64, kind: FileKind },
    #[error("{nanos} nanoseconds")]
    Nanoseconds { nanos: u32 },
    #[error("{len} bytes of inline data at {offset:#x} cross the end of a block")]
    InlineCrossesBlock { offset: u64, len: u64 },

    // Directories.
    #[error("the name table begins at {nameoff} in a block of {block_len} bytes")]
    DirentTable { nameoff: u16, block_len: usize },
    #[error("entry {index}: name offset {nameoff} lies outside {lower}..{upper}")]
    DirentName {
        index: usize,
        nameoff: u16,
        lower: usize,
        upper: usize,
    },
    #[error("entry {index}: a name of {len} bytes; 1 to 255 are allowed")]
    DirentNameLength { index: usize, len: usize },
    #[error("entry {index}: the name `{name}` contains `/` or NUL")]
    DirentNameByte { index: usize, name: String },
    #[error("entry {index}: `{name}` does not sort after `{previous}`")]
    DirentOrder {
        index: usize,
        name: String,
        previous: String,
    },
    #[error("entry {index}: file type {file_type} is unknown")]
    DirentType { index: usize, file_type: u8 },

    // Symbolic links.
    #[error("the target of the symbolic link contains NUL")]
    SymlinkNul,

    // Extended attributes.
    #[error("an xattr region of 12 bytes, which holds nothing but its header")]
    XattrRegionEmpty,
    #[error("{count} shared xattrs do not fit in a region of {region} bytes")]
    XattrSharedCount { count: u8, region: usize },
    #[error("the xattr entry at byte {offset} reaches beyond its region of {region} bytes")]
    XattrEntry { offset: usize, region: usize },
    #[error("the xattr entry at byte {offset} has the unknown name index {index}")]
    XattrNameIndex { offset: usize, index: u8 },
    #[error("the xattr prefix {index} is used, but there are {count}")]
    XattrPrefixIndex { index: u8, count: usize },
    #[error(
        "the xattr name at byte {offset} has {len} bytes with its prefix; 1 to 255 are allowed"
    )]
    XattrNameLength { offset: usize, len: usize },
    #[error("the xattr name at byte {offset} contains NUL")]
    XattrNameNul { offset: usize },
    #[error("xattr prefix {index} has {size} bytes; 1 to 256 are allowed")]
    XattrPrefixSize { index: u8, size: u16 },
    #[error("xattr prefix {index} is based on the unknown short prefix {base}")]
    XattrPrefixBase { index: u8, base: u8 },

    // Chunks and devices.
    #[error("chunk {chunk} lies on device {device}, but there are {devices} extra devices")]
    ChunkDevice {
        chunk: u64,
        device: u16,
        devices: u16,
    },

    // Compressed inodes.
    #[error("big pcluster flags of compact indexes differ (advise {advise:#06x})")]
    BigPclusterFlags { advise: u16 },
    #[error("big pclusters are used, but the superblock does not say so")]
    BigPclusterFeature,
    #[error("HEAD2 lclusters are used, but the superblock does not say so")]
    Head2Feature,
    #[error("algorithm {name} is used, but the superblock does not list it")]
    AlgorithmNotListed { name: Algorithm },
    #[error("advise {advise:#06x} has a combination that means nothing")]
    Advise { advise: u16 },
    #[error(
        "lcluster {lcn}: offset {clusterofs} lies outside the lcluster of {lcluster_bytes} bytes"
    )]
    ClusterOffset {
        lcn: u64,
        clusterofs: u32,
        lcluster_bytes: u32,
    },
    #[error("lcluster 0 does not begin an extent at offset 0")]
    FirstLcluster,
    #[error("lcluster {lcn}: {delta} lclusters back lies no head")]
    LookBack { lcn: u64, delta: u64 },
    #[error("lcluster {lcn}: the distance to the next head is 0")]
    LookAhead { lcn: u64 },
    #[error("lcluster {lcn}: {delta} lclusters ahead lies beyond the next head, lcluster {head}")]
    LookAheadBeyond { lcn: u64, delta: u64, head: u64 },
    #[error("lcluster {lcn}: a pcluster of {blocks} blocks is impossible")]
    PclusterBlocks { lcn: u64, blocks: u32 },
    #[error("lcluster {lcn}: the size of its pcluster is not recorded")]
    PclusterBlocksMissing { lcn: u64 },
    #[error("lcluster {lcn}: the size of a pcluster is recorded where none belongs")]
    PclusterBlocksStray { lcn: u64 },
    #[error("the extent at {offset} decodes to {len} bytes; {EXTENT_MAX} is the most", EXTENT_MAX = crate::EXTENT_BYTES_MAX)]
    ExtentLength { offset: u64, len: u64 },
    #[error("the plain extent at {offset} has {len} bytes, its pcluster only {encoded}")]
    PlainLength { offset: u64, len: u64, encoded: u64 },
    #[error(
        "the extent at {offset} is compressed to {encoded} bytes, more blocks than its {len} bytes fill"
    )]
    Inflated { offset: u64, len: u64, encoded: u64 },
    #[error("the inline pcluster has {len} bytes and lies at {at:#x}, across the end of a block")]
    InlinePcluster { len: u64, at: u64 },
    #[error("the extent at {offset} is plain, yet marked as a partial reference")]
    PartialPlain { offset: u64 },
    #[error("encoded extent {index} begins at {start}, which is not between {lower} and {upper}")]
    ExtentOrder {
        index: u64,
        start: u64,
        lower: u64,
        upper: u64,
    },
    #[error("the extent at {end} begins at {start}, not where the one before it ends")]
    ExtentAside { end: u64, start: u64 },
    #[error("encoded extents: the length field {plen:#010x} has reserved bits or a masked zero")]
    ExtentPlen { plen: u32 },
    #[error("{count} encoded extents for {size} bytes")]
    ExtentCount { count: u64, size: u64 },
    #[error("a fragment of {len} bytes at {offset} lies outside the packed inode of {packed_size}")]
    Fragment {
        offset: u64,
        len: u64,
        packed_size: u64,
    },
    #[error("a fragment, but the image has no packed inode")]
    FragmentWithoutPacked,
    #[error("the packed inode itself uses fragments")]
    FragmentInPacked,
    #[error("the inode with the {which} is a {kind}", kind = kind.name())]
    SpecialKind { which: &'static str, kind: FileKind },
    #[error("the metabox of an image of {device_bytes} bytes claims to have {size}")]
    MetaboxSize { size: u64, device_bytes: u64 },
    #[error("a hole in the packed inode or the metabox")]
    SpecialHole,
    #[error("the pcluster of the extent at {offset} lies over the superblock")]
    PclusterAtZero { offset: u64 },
    #[error("node id {nid} lies in a metabox that the image does not have")]
    NoMetabox { nid: Nid },
    #[error("the padding in front of the compressed stream is {found} bytes long, a block or more")]
    Padding { found: usize },
}
