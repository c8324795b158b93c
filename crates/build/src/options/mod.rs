//! Deals with what a build may be asked for.
//!
//! - `compression`: how files are compressed; `hint`: files of some paths.
//! - `hash_tree`: the hash tree behind the image.
//! - `choices`: choices of other kinds.
//! - `read_range`: ranges of files that are known to be read.
//! - `owner`: owners that become others.
//! - `derived`: what follows from all that.
//! - `check`: the checks that make a build sound; `appending`: those of an image that is appended to.

mod appending;
mod check;
mod choices;
mod compression;
mod derived;
mod hash_tree;
mod hint;
mod owner;
mod read_range;

use std::path::PathBuf;
use std::sync::Arc;

use anteros_core::Timestamp;

use crate::attributes::{FileContexts, FsConfig};
use crate::base::{Appended, Patch, PatchLayer, Renew};

pub(crate) use choices::join;
pub use choices::{Content, Exclude, Holes, InodeForm, Order, UuidChoice};
pub(crate) use compression::RAW_SEGMENT_BYTES;
pub use compression::{Compression, Fragments, Quick, Setting};
pub use hash_tree::HashTree;
pub use hint::Hint;
pub use owner::IdRange;
pub use read_range::ReadRange;

/// Longest label in bytes: the field has 16, and older kernels want a NUL in it.
pub const LABEL_BYTES_MAX: usize = 15;

/// Most blocks of a pcluster. An index entry has room for 2047, but Linux counts 1 MiB in blocks of
/// its page size, 4 KiB, before it knows that the image's are smaller.
pub const PCLUSTER_BLOCKS_MAX: u32 = 256;

/// Describes how an image is built. [`Options::default`] builds what needs no explanation: 4 KiB
/// blocks, no compression, every attribute kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The block size is two to this, 9 to 16. Linux mounts what does not exceed its page size.
    pub block_bits: u8,
    /// Compressed files, or all as they are.
    pub compression: Option<Compression>,
    /// Files that are compressed in another way, or not at all. The first hint for a path counts.
    pub hints: Vec<Hint>,
    /// Tells whether the last part of a regular file may lie behind its inode.
    pub inline_data: bool,
    /// Tells whether the last extent of a compressed file may lie behind its inode, if it takes less than a block.
    pub inline_tails: bool,
    /// Packs small files and the ends of larger ones into one inode, if files are compressed.
    pub fragments: Option<Fragments>,
    /// Stores files with the same content once, and equal parts of compressed files. With fragments the first is done in any
    /// case.
    pub dedupe: bool,
    /// The order in which files are stored.
    pub order: Order,
    /// Paths of files and directories, relative to the source, whose content is stored in front of all other, in this order. Of
    /// a directory that is everything in it that is not listed by itself.
    pub first: Vec<Vec<u8>>,
    /// Ranges that are known to be read, in the order of first access: they are stored in front of all other content, also of
    /// [`Self::first`], and their inodes in front of all others. Large compressed files are cut for that. Ranges that are not
    /// there are told, and change nothing.
    pub hot: Arc<[ReadRange]>,
    /// Longest stream of what is in these ranges in bytes; that of the file, if it is shorter or none is given.
    pub hot_pcluster_bytes: Option<u32>,
    /// Thousandths of what is compressed, as it was before, that the room for these cuts may take, by an estimate.
    pub hot_cuts_permille: u32,
    /// Holds what becomes of holes.
    pub holes: Holes,
    /// Stores every regular file larger than a block in uncompressed chunks of so many bytes: a
    /// power of two of at least a block.
    pub chunk_bytes: Option<u64>,
    /// Stores files in chunks not in the image, but in this file, each chunk that other files have as well once. Whoever reads
    /// the image names that file as its extra device. It takes [`Self::chunk_bytes`].
    pub blob_device: Option<PathBuf>,
    /// Leaves content in the archive that the image is made of, which is its extra device then; it must be one archive in a
    /// file, and not compressed. It takes blocks of 512 bytes.
    pub tar_index: bool,
    /// Tells whether files in chunks say where each chunk lies in 8 bytes, with room for a device, instead of 4.
    pub chunk_indexes: bool,
    /// The form of images with addresses of 48 bits, which Linux 6.15 reads. Compressed files have *encoded extents*, which begin
    /// anywhere and end where their streams do. Here compact inodes have seconds of their own, and an
    /// inode takes the extended form for its time only if the nanoseconds are not those of most, or the seconds more
    /// than 136 years behind the earliest.
    pub wide: bool,
    /// Compresses inodes and what lies behind them in this way, whether files are compressed or not; Linux 6.17 reads such
    /// images, which are wide ones. Directories of several blocks stay as they
    /// are, but with [`Self::compress_directories`].
    pub metabox: Option<Setting>,
    /// Packs directories, behind the files that are packed, and compresses them as these. Small ones stay behind their
    /// inodes where that takes no more room. It takes compression, and the Linux that reads [`Self::fragments`].
    pub compress_directories: bool,
    /// Leaves the entry `.` out of directories; the image is a wide one then.
    pub dot_omitted: bool,
    /// Compact inodes, extended ones, or each as it needs.
    pub inode_form: InodeForm,
    /// Gives every file the time of the image where keeping its own would take an extended inode.
    pub ignore_mtime: bool,
    /// The time of the image, in seconds since 1970. Without it, that is the one which most files have; in a wide image, of those
    /// with the nanoseconds that most have.
    pub image_time: Option<i64>,
    /// Gives every file this time, in seconds since 1970.
    pub fixed_time: Option<i64>,
    /// Lowers newer times to this one, in seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub clamp_time: Option<i64>,
    /// The image's UUID.
    pub uuid: UuidChoice,
    /// The label, at most [`LABEL_BYTES_MAX`] bytes without NUL.
    pub label: Vec<u8>,
    /// An extended attribute that more inodes than this have is stored once. `None` stores no
    /// extended attributes at all.
    pub xattr_share_above: Option<u32>,
    /// Tells whether inodes with attributes carry a filter that speeds up looking for absent ones.
    pub xattr_filter: bool,
    /// Prefixes of names of extended attributes, such as `trusted.overlay.`, that are written once for the image; Linux 6.4
    /// reads them. At most 128.
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// Writes these prefixes beside the superblock also where there is a packed inode; Linux 6.17 reads that.
    pub plain_xattr_prefixes: bool,
    /// Gives every file this owner.
    pub force_uid: Option<u32>,
    /// Gives every file this group.
    pub force_gid: Option<u32>,
    /// Owners that become others: each must be in one of these ranges, unless there are none, or it is forced.
    pub uid_map: Vec<IdRange>,
    /// Ranges by which groups are mapped, likewise.
    pub gid_map: Vec<IdRange>,
    /// Added to every owner, after forcing and mapping.
    pub uid_offset: u32,
    /// Added to every group, after forcing.
    pub gid_offset: u32,
    /// Gives files their owners, permissions and capabilities by a list; owners are forced and added to after that. Each
    /// file is to be in it.
    pub fs_config: Option<Arc<FsConfig>>,
    /// Gives files their labels of SELinux by a list. None keeps the one that it has in the source.
    pub file_contexts: Option<Arc<FileContexts>>,
    /// The directory that the image will be mounted on, by which these lists know its files; slashes around it do not matter.
    pub mount_point: Vec<u8>,
    /// Appends a hash tree to the image, as dm-verity reads it.
    pub hash_tree: Option<HashTree>,
    /// Lists the blocks of each file in this file, as Android's update tools read it.
    pub block_list: Option<PathBuf>,
    /// Holds what to leave out; an excluded directory is not entered.
    pub exclude: Vec<Exclude>,
    /// Stores a file once for each of its names.
    pub hard_dereference: bool,
    /// Threads that read and compress, at least one. Fewer compress where their encoders do not fit the memory.
    pub workers: usize,
    /// Bytes of the tree (some two hundred for each file), of [`Self::hot`], of the encoders of all workers, and of file content in
    /// flight between reading and writing. Encoders and content have half of it at least, and content an eighth; a
    /// single segment is always allowed, and so is one of the packed inode. The extents of compressed files, 12 bytes
    /// each, come on top. Knowledge of chunks, while equal parts are looked for, is gone before content is written, and
    /// is no more than some 60 MB.
    pub memory_bytes: u64,
    /// The content of files begins at multiples of so many blocks, so that huge pages can map it; of those that are not
    /// compressed it lies in one piece. At most 1 GiB.
    pub data_align_blocks: u32,
    /// The image is a multiple of so many blocks long. At most 1 GiB.
    pub image_align_blocks: u32,
    /// Bytes that the attributes of the root take at least, with the header of 12 bytes in front: room for what is added to
    /// the image later. 0 asks for none.
    pub root_xattr_bytes: u32,
    /// Gives every regular file with content an attribute of this name with its digest, `sha256:` and 32 bytes, by which
    /// kernels may share pages of the same content. A name in none of the namespaces of attributes hides it from users.
    pub digest_xattr: Option<Vec<u8>>,
    /// Tells whether the superblock has a checksum.
    pub checksum: bool,
    /// Byte of the image file at which the image begins; a multiple of 512.
    pub offset: u64,
    /// Writes the image in the sparse form of Android, which leaves out what repeats: `fastboot` writes it to a device, and
    /// `simg2img` makes the image of it. It is kept in a file without a name until it is complete, in [`Self::spool`] or else
    /// beside the image.
    pub android_sparse: bool,
    /// Tells whether the image is on the medium when the build returns.
    pub sync: bool,
    /// Tells whether what holds something else than an image may be overwritten.
    pub overwrite: bool,
    /// Tells whether a file that has several names keeps them: it is written in place then, as mkfs.erofs writes all files. Else
    /// its other names keep what was there.
    pub keeps_names: bool,
    /// In an [`Archive`](crate::Archive), makes the whiteouts of AUFS, which layers of containers have, those of overlayfs:
    /// `.wh.NAME` a device 0:0 of that name, and `.wh..wh..opq` the attribute `trusted.overlay.opaque` of its directory. It
    /// changes nothing with [layers](crate::Layer), the image of which has no whiteouts.
    pub aufs_whiteouts: bool,
    /// Leaves the whiteouts of an [`Archive`](crate::Archive), and the attributes of overlayfs, out of the image, as those of
    /// [layers](crate::Layer) are.
    pub strip_overlay: bool,
    /// Keeps the whiteouts of [layers](crate::Layer), and the attributes of overlayfs, in the image, which may be a layer
    /// itself then.
    pub keep_overlay: bool,
    /// An image that is appended to: the lowest layer is a [`Layer::Base`](crate::Layer::Base) of it, whose files stay where
    /// they are. Its superblock is written last, over the old one. An attribute is stored in each inode that has it.
    pub append: Option<Appended>,
    /// A patch of that image: only what is new or changed is appended, with all directories.
    pub patch: Option<Patch>,
    /// Makes a layer of such a patch instead.
    pub patch_layer: Option<PatchLayer>,
    /// Builds a new image instead, which keeps the places of what is in that one as well.
    pub renew: Option<Renew>,
    /// Tells what becomes of the content of files.
    pub content: Content,
    /// Takes an [`Archive`](crate::Archive) for one of headers alone: no regular file has content behind its header.
    pub bare_headers: bool,
    /// Directory for the content of an [`Archive`](crate::Archive) that is a stream or compressed, until the image is
    /// complete; it has no name there. Without it, that is the image's directory.
    pub spool: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_bits: 12,
            compression: None,
            hints: Vec::new(),
            inline_data: true,
            inline_tails: false,
            fragments: None,
            dedupe: false,
            order: Order::Path,
            first: Vec::new(),
            hot: Arc::default(),
            hot_pcluster_bytes: None,
            hot_cuts_permille: 4,
            holes: Holes::Auto,
            chunk_bytes: None,
            blob_device: None,
            tar_index: false,
            chunk_indexes: false,
            wide: false,
            metabox: None,
            compress_directories: false,
            dot_omitted: false,
            inode_form: InodeForm::Auto,
            ignore_mtime: false,
            image_time: None,
            fixed_time: None,
            clamp_time: None,
            uuid: UuidChoice::FromContent,
            label: Vec::new(),
            xattr_share_above: Some(2),
            xattr_filter: true,
            xattr_prefixes: Vec::new(),
            plain_xattr_prefixes: false,
            force_uid: None,
            force_gid: None,
            uid_map: Vec::new(),
            gid_map: Vec::new(),
            uid_offset: 0,
            gid_offset: 0,
            fs_config: None,
            file_contexts: None,
            mount_point: Vec::new(),
            hash_tree: None,
            block_list: None,
            exclude: Vec::new(),
            hard_dereference: false,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: 256 << 20,
            data_align_blocks: 1,
            image_align_blocks: 1,
            root_xattr_bytes: 0,
            digest_xattr: None,
            checksum: true,
            offset: 0,
            android_sparse: false,
            sync: true,
            overwrite: false,
            keeps_names: false,
            aufs_whiteouts: false,
            strip_overlay: false,
            keep_overlay: false,
            append: None,
            patch: None,
            patch_layer: None,
            renew: None,
            content: Content::Copy,
            bare_headers: false,
            spool: None,
        }
    }
}

impl Options {
    /// Bytes of a block.
    pub const fn block_bytes(&self) -> u32 {
        1 << self.block_bits
    }

    /// The owner and group that the image keeps, of those that the source has.
    ///
    /// # Errors
    ///
    /// Text that tells which of the two is beyond 32 bits, or in no range of its map.
    pub fn owner_of(&self, (uid, gid): (u32, u32)) -> Result<(u32, u32), String> {
        let uid = self
            .force_uid
            .map_or_else(|| owner::mapped("owner", uid, &self.uid_map), Ok)?;
        let gid = self
            .force_gid
            .map_or_else(|| owner::mapped("group", gid, &self.gid_map), Ok)?;
        Ok((
            owner::moved("owner", uid, self.uid_offset)?,
            owner::moved("group", gid, self.gid_offset)?,
        ))
    }

    /// The time that the image keeps, of one that the source has.
    pub fn time_of(&self, found: Timestamp) -> Timestamp {
        let whole = |secs| Timestamp { secs, nanos: 0 };
        match (self.fixed_time, self.clamp_time) {
            (Some(secs), _) => whole(secs),
            (None, Some(secs)) => found.min(whole(secs)),
            (None, None) => found,
        }
    }

    /// Returns whether an entry of a directory is left out.
    pub(crate) fn is_excluded(&self, directory: &[u8], name: &[u8]) -> bool {
        !self.exclude.is_empty() && {
            let path = join(directory, name);
            self.exclude.iter().any(|e| e.matches(&path))
        }
    }

    /// Returns whether the image has the form of those with addresses of 48 bits.
    pub(crate) const fn is_wide(&self) -> bool {
        self.wide || self.dot_omitted || self.metabox.is_some()
    }

    /// Returns whether compressed files have an entry for each extent, which may lie at any byte, and not for each logical
    /// cluster.
    pub(crate) fn has_encoded_extents(&self) -> bool {
        self.is_wide() && self.compression.is_some_and(|c| !c.legacy_index)
    }

    /// Returns whether the last extent of a compressed file may lie behind its inode. Where extents lie at any byte, nothing
    /// is won by that.
    pub(crate) fn has_inline_tails(&self) -> bool {
        self.inline_tails && !self.has_encoded_extents()
    }

    /// Returns whether compressed files may have pclusters of several blocks.
    pub(crate) fn big_pclusters(&self) -> bool {
        self.pcluster_bytes_max() > self.block_bytes() || self.has_encoded_extents()
    }
}
