//! Deals with what a build may be asked for, and the checks that make it sound.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use anteros_codec::Codec;
use anteros_core::{Algorithm, Timestamp};
use anteros_format::PCLUSTER_BYTES_MAX;
use anteros_format::superblock::BLOCK_BITS;
use regex::bytes::Regex;

use crate::attributes::{FileContexts, FsConfig};
use crate::hash_tree::HashTree;
use crate::hints::{Hint, Quick, Setting};
use crate::prefixes::Prefixes;
use crate::{Error, Order};

/// Longest label in bytes: the field has 16, and older kernels want a NUL in it.
pub const LABEL_BYTES_MAX: usize = 15;

/// Most blocks of a pcluster. An index entry has room for 2047, but Linux counts 1 MiB in blocks of
/// its page size, 4 KiB, before it knows that the image's are smaller.
pub const PCLUSTER_BLOCKS_MAX: u32 = 256;

/// Files have so many segments at least before these get longer.
const SEGMENTS_MIN: u64 = 2;
/// The largest pcluster for which segments of the packed inode are no longer than those of small files.
const USUAL_PCLUSTER_BYTES: u32 = 64 << 10;
/// Segments double so many times at most: several of them have to fit the memory.
const DOUBLINGS_MAX: u32 = 2;

/// Shift limits of a chunk, relative to the block size: the field has 5 bits.
const CHUNK_SHIFTS: RangeInclusive<u32> = 0..=31;

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
    /// Holds what becomes of holes.
    pub holes: Holes,
    /// Stores every regular file larger than a block in uncompressed chunks of so many bytes: a
    /// power of two of at least a block.
    pub chunk_bytes: Option<u64>,
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
    /// Added to every owner, after forcing.
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
    /// Bytes of file content in flight between reading and writing, and of the encoders of all
    /// workers; a quarter of it is content in any case. A single segment is always allowed, and so is
    /// one of the packed inode. Knowledge of each file (some hundred bytes, and 12 for each compressed
    /// extent) comes on top; that of chunks, while equal parts are looked for, is gone before content is written, and is
    /// no more than some 60 MB.
    pub memory_bytes: u64,
    /// Tells whether the superblock has a checksum.
    pub checksum: bool,
    /// Byte of the image file at which the image begins; a multiple of 512.
    pub offset: u64,
    /// Tells whether the image is on the medium when the build returns.
    pub sync: bool,
    /// Tells whether what holds something else than an image may be overwritten.
    pub overwrite: bool,
    /// In an [`Archive`](crate::Archive), makes the whiteouts of AUFS, which layers of containers have, those of overlayfs:
    /// `.wh.NAME` a device 0:0 of that name, and `.wh..wh..opq` the attribute `trusted.overlay.opaque` of its directory. It
    /// changes nothing with [layers](crate::Layer), the image of which has no whiteouts.
    pub aufs_whiteouts: bool,
    /// Leaves the whiteouts of an [`Archive`](crate::Archive), and the attributes of overlayfs, out of the image, as those of
    /// [layers](crate::Layer) always are.
    pub strip_overlay: bool,
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
            holes: Holes::Auto,
            chunk_bytes: None,
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
            checksum: true,
            offset: 0,
            sync: true,
            overwrite: false,
            aufs_whiteouts: false,
            strip_overlay: false,
            spool: None,
        }
    }
}

/// Describes how files are compressed: streams of a fixed length, as much input in each as fits
/// (the EROFS paper, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The codec, and how hard its encoder tries.
    pub codec: Codec,
    /// Longest stream in bytes: a multiple of the block size, at most 1 MiB.
    pub pcluster_bytes: u32,
    /// Streams that are quicker to read, where these take little more room.
    pub quick: Option<Quick>,
    /// The paper's sliding window: the most input that one stream may take, in bytes.
    pub window_bytes: u32,
    /// Files are cut into segments of so many bytes, a multiple of the block size, which are
    /// compressed at the same time. Those of large files are up to four times as long, for each of
    /// them ends with a stream that is not full. The image depends on this, but not on the number of
    /// workers.
    pub segment_bytes: u32,
    /// A file stays as it is unless compression saves so many percent of it, and at least a byte.
    pub min_gain_percent: u8,
    /// Index entries of 8 bytes instead of 2 or 4.
    pub legacy_index: bool,
}

impl Compression {
    /// Streams of one 4 KiB block.
    pub fn new(codec: impl Into<Codec>) -> Self {
        Self {
            codec: codec.into(),
            pcluster_bytes: 4096,
            quick: None,
            window_bytes: 8 << 20,
            segment_bytes: 4 << 20,
            min_gain_percent: 0,
            legacy_index: false,
        }
    }
}

/// Describes what is packed into one inode, and how that is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragments {
    /// Packs all files, whatever their size.
    pub all: bool,
    /// Longest stream of the packed inode in bytes, as that of files if not given.
    pub pcluster_bytes: Option<u32>,
}

/// Tells what becomes of holes in sparse files. Where they lie is up to the source's file system,
/// so two copies of a tree may differ there; only [`Holes::Ignore`] makes nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Sparse files are stored in chunks, uncompressed, and keep their holes.
    Keep,
    /// Like `Keep` without compression. With it, only for files whose data is an eighth of their
    /// size or less: the others are compressed, holes and all.
    Auto,
    /// Holes are zeros like others.
    Ignore,
}

/// The form of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InodeForm {
    /// Compact where nothing is lost by it.
    Auto,
    /// Compact, or an error where owner, links or size do not fit; times are dropped that do not fit.
    Compact,
    /// Extended.
    Extended,
}

/// The UUID of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UuidChoice {
    /// A hash of all other bytes (UUID version 8).
    FromContent,
    /// This one, all zeros for none.
    Given([u8; 16]),
}

/// Tells what to leave out.
#[derive(Debug, Clone)]
pub enum Exclude {
    /// This path, relative to the source; slashes around it do not matter.
    Path(Vec<u8>),
    /// Each path, relative to the source, in which the expression is found.
    Pattern(Regex),
}

impl Exclude {
    /// An exclusion by regular expression, in the syntax of the `regex` crate.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if it is none.
    pub fn pattern(expression: &str) -> Result<Self, Error> {
        let regex = Regex::new(expression);
        regex
            .map(Self::Pattern)
            .map_err(|e| Error::Option(format!("the exclusion `{expression}`: {e}")))
    }

    /// Returns whether it leaves out this path, given relative to the source.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Path(excluded) => trim_slashes(excluded) == path,
            Self::Pattern(regex) => regex.is_match(path),
        }
    }
}

/// The path of an entry; that of the directory itself if it has no name.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (b"", name) => name.to_vec(),
        (directory, b"") => directory.to_vec(),
        (directory, name) => [directory, name].join(&b'/'),
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let is_slash = |b: &u8| *b == b'/';
    let Some(start) = path.iter().position(|b| !is_slash(b)) else {
        return b"";
    };
    let end = path.iter().rposition(|b| !is_slash(b)).expect("as above");
    &path[start..=end]
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
    /// What is wrong, if one is beyond 32 bits.
    pub fn owner_of(&self, (uid, gid): (u32, u32)) -> Result<(u32, u32), String> {
        let add = |what, id: u32, offset| {
            let sum = id.checked_add(offset);
            sum.ok_or_else(|| format!("its {what} {id} plus {offset} is beyond 32 bits"))
        };
        Ok((
            add("owner", self.force_uid.unwrap_or(uid), self.uid_offset)?,
            add("group", self.force_gid.unwrap_or(gid), self.gid_offset)?,
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

    /// The usual way to compress files.
    pub(crate) fn setting(&self) -> Option<Setting> {
        self.compression.map(|c| c.setting())
    }

    /// The usual way to compress files, those of hints, and that of metadata.
    fn settings(&self) -> impl Iterator<Item = Setting> {
        let hints = self.hints.iter().filter_map(Hint::setting);
        self.setting().into_iter().chain(hints).chain(self.metabox)
    }

    /// The compression of files, or else that of metadata, if anything is compressed.
    pub(crate) fn any_compression(&self) -> Option<Compression> {
        let of_metabox = |setting: Setting| Compression::new(setting.codec);
        self.compression.or_else(|| self.metabox.map(of_metabox))
    }

    /// The codecs that files and metadata may have, each once.
    pub(crate) fn codecs(&self) -> Vec<Codec> {
        let mut codecs = Vec::new();
        for setting in self.settings() {
            let (codec, quick) = setting.codecs();
            for codec in [codec].into_iter().chain(quick) {
                if !codecs.contains(&codec) {
                    codecs.push(codec);
                }
            }
        }
        codecs
    }

    /// The longest pcluster that there may be; none without compression.
    pub fn pcluster_bytes_max(&self) -> u32 {
        let files = self.settings().map(|setting| setting.pcluster_bytes);
        files.chain(self.packed_pcluster_bytes()).max().unwrap_or(0)
    }

    /// The longest pcluster of the packed inode, if there may be one.
    pub(crate) fn packed_pcluster_bytes(&self) -> Option<u32> {
        let files = self.compression?.pcluster_bytes;
        match self.fragments {
            Some(fragments) => Some(fragments.pcluster_bytes.unwrap_or(files)),
            None => self.compress_directories.then_some(files),
        }
    }

    /// The way to compress the packed inode, if there may be one.
    pub(crate) fn packed_setting(&self) -> Option<Setting> {
        Some(Setting {
            pcluster_bytes: self.packed_pcluster_bytes()?,
            ..self.setting()?
        })
    }

    /// Length of the segments of the packed inode in bytes. A few of the longest pclusters fill one: each segment begins with
    /// nothing to refer to.
    pub(crate) fn packed_segment_bytes(&self) -> usize {
        let shortest = self.compression.map_or(0, |c| c.segment_bytes);
        segment_bytes(shortest, self.packed_pcluster_bytes().unwrap_or(0))
    }

    /// Length of the segments of the metabox in bytes.
    pub(crate) fn metabox_segment_bytes(&self) -> usize {
        let shortest = self.any_compression().map_or(0, |c| c.segment_bytes);
        segment_bytes(shortest, self.metabox.map_or(0, |s| s.pcluster_bytes))
    }

    fn encoder_bytes(&self) -> u64 {
        self.codecs().iter().map(Codec::encoder_bytes).sum()
    }

    /// Threads that read and compress: no more than have room for their encoders in three quarters of the memory, and at
    /// least one.
    pub(crate) fn compressing_workers(&self) -> usize {
        let room = self.memory_bytes / 4 * 3;
        let most = room.checked_div(self.encoder_bytes());
        let most = most.and_then(|most| usize::try_from(most).ok());
        most.map_or(self.workers, |most| most.clamp(1, self.workers))
    }

    /// Bytes of content that may be in flight beside the encoders, and as many that may wait for the packed inode if there
    /// is one. A quarter of the memory at the least is content.
    pub(crate) fn content_bytes(&self) -> u64 {
        let encoders = self.encoder_bytes() * self.compressing_workers() as u64;
        let least = self.memory_bytes / 4;
        let content = self.memory_bytes.saturating_sub(encoders).max(least);
        content
            / if self.packed_pcluster_bytes().is_some() {
                2
            } else {
                1
            }
    }

    /// Bytes of inodes that may be on their way, and as many of segments of the metabox if there is one.
    pub(crate) fn inodes_bytes(&self) -> u64 {
        match self.metabox {
            Some(_) => self.content_bytes() / 2,
            None => self.memory_bytes,
        }
    }

    /// Returns whether the superblock is followed by what decoders need to know. Without it, there is LZ4 in single
    /// blocks alone.
    pub(crate) fn compr_cfgs(&self) -> bool {
        let beyond_lz4 = |codec: &Codec| codec.algorithm() != Algorithm::Lz4;
        self.big_pclusters() || self.codecs().iter().any(beyond_lz4)
    }

    /// Returns whether long prefixes of attributes lie in the packed inode.
    pub(crate) fn packs_prefixes(&self) -> bool {
        let is_packed = self.packed_pcluster_bytes().is_some() && self.metabox.is_none();
        is_packed && !self.plain_xattr_prefixes && !self.xattr_prefixes.is_empty()
    }

    /// Returns whether long prefixes of attributes lie beside the superblock, although others would look elsewhere.
    pub(crate) fn has_plain_prefixes(&self) -> bool {
        let is_special = self.metabox.is_some() || self.packed_pcluster_bytes().is_some();
        !self.xattr_prefixes.is_empty() && !self.packs_prefixes() && is_special
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Option(text));
        if !BLOCK_BITS.contains(&self.block_bits) {
            let bits = self.block_bits;
            return refuse(format!(
                "blocks of 2^{bits} bytes; 2^9 to 2^16 are possible"
            ));
        }
        if self.label.len() > LABEL_BYTES_MAX || self.label.contains(&0) {
            let label = self.label.escape_ascii();
            return refuse(format!(
                "the label `{label}`; {LABEL_BYTES_MAX} bytes without NUL are the most"
            ));
        }
        if self.workers == 0 {
            return refuse("no workers; at least one is needed".into());
        }
        if self.offset % 512 != 0 {
            return refuse(format!("the offset {} is no multiple of 512", self.offset));
        }
        self.check_chunks()?;
        self.hash_tree.as_ref().map_or(Ok(()), HashTree::check)?;
        Prefixes::of(self)?;
        if let Some(bytes) = self.packed_pcluster_bytes() {
            check_pcluster(bytes, self.block_bytes())?;
        }
        if self.compression.is_none() && self.compress_directories {
            return refuse("directories are to be compressed, but there is no compression".into());
        }
        if self.compression.is_none() && !self.hints.is_empty() {
            return refuse("hints how to compress, but no compression".into());
        }
        for setting in self.settings() {
            setting.check(self.block_bytes())?;
        }
        self.compression
            .map_or(Ok(()), |c| c.check(self.block_bytes()))
    }

    fn check_chunks(&self) -> Result<(), Error> {
        let Some(bytes) = self.chunk_bytes else {
            return Ok(());
        };
        let shift = bytes
            .checked_ilog2()
            .and_then(|b| b.checked_sub(self.block_bits.into()));
        if bytes.is_power_of_two() && shift.is_some_and(|s| CHUNK_SHIFTS.contains(&s)) {
            return Ok(());
        }
        Err(Error::Option(format!(
            "chunks of {bytes} bytes; a power of two from {} on is needed",
            self.block_bytes()
        )))
    }
}

impl Compression {
    /// Returns how long the segments of a file are that has so many bytes.
    pub(crate) fn segment_bytes_of(&self, size: u64) -> u64 {
        let shortest = u64::from(self.segment_bytes);
        let times = size / (SEGMENTS_MIN * shortest);
        shortest << times.max(1).ilog2().min(DOUBLINGS_MAX)
    }

    fn check(&self, block_bytes: u32) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.segment_bytes == 0 || self.segment_bytes % block_bytes != 0 {
            let bytes = self.segment_bytes;
            return refuse(format!(
                "segments of {bytes} bytes; multiples of {block_bytes} are possible"
            ));
        }
        if self.window_bytes < block_bytes {
            let bytes = self.window_bytes;
            return refuse(format!(
                "a window of {bytes} bytes; a block has {block_bytes}"
            ));
        }
        if self.min_gain_percent > 100 {
            return refuse(format!("a gain of {} percent", self.min_gain_percent));
        }
        Ok(())
    }

    /// The codec and its streams.
    pub(crate) const fn setting(&self) -> Setting {
        Setting {
            codec: self.codec,
            pcluster_bytes: self.pcluster_bytes,
            quick: self.quick,
        }
    }
}

impl Setting {
    fn check(&self, block_bytes: u32) -> Result<(), Error> {
        check_pcluster(self.pcluster_bytes, block_bytes)?;
        let checked = self.codec.check();
        checked.map_err(|e| Error::Option(e.to_string()))?;
        self.quick.map_or(Ok(()), |quick| quick.check(self.codec))
    }
}

impl Quick {
    fn check(&self, first: Codec) -> Result<(), Error> {
        if self.percent > 100 {
            let percent = self.percent;
            return Err(Error::Option(format!(
                "{percent} percent of room for quick clusters; 100 are the most"
            )));
        }
        let Some(codec) = self.codec else {
            return Ok(());
        };
        if codec.algorithm() == first.algorithm() {
            return Err(Error::Option(format!(
                "quick clusters by {0}, as all others; another algorithm is needed",
                first.algorithm()
            )));
        }
        let checked = codec.check();
        checked.map_err(|e| Error::Option(e.to_string()))
    }
}

/// Length of segments that hold some pclusters of so many bytes: as long as those of small files, or longer.
fn segment_bytes(shortest: u32, pcluster_bytes: u32) -> usize {
    let times = pcluster_bytes / USUAL_PCLUSTER_BYTES;
    (shortest as usize) << times.max(1).ilog2().min(DOUBLINGS_MAX)
}

fn check_pcluster(bytes: u32, block_bytes: u32) -> Result<(), Error> {
    let max = PCLUSTER_BYTES_MAX.min(PCLUSTER_BLOCKS_MAX * block_bytes);
    if bytes > 0 && bytes % block_bytes == 0 && bytes <= max {
        return Ok(());
    }
    Err(Error::Option(format!(
        "pclusters of {bytes} bytes; multiples of {block_bytes} up to {max} are possible"
    )))
}

#[cfg(test)]
mod tests {
    use anteros_codec::Effort;

    use super::*;

    #[test]
    fn segments_of_the_packed_inode_hold_some_pclusters() {
        let mib = |pcluster_bytes| {
            let options = Options {
                compression: Some(Compression::new(Effort::Fast)),
                fragments: Some(Fragments {
                    all: true,
                    pcluster_bytes: Some(pcluster_bytes),
                }),
                ..Options::default()
            };
            options.packed_segment_bytes() >> 20
        };
        let sizes = [4 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];
        assert_eq!(sizes.map(mib), [4, 4, 8, 16, 16]);
    }

    #[test]
    fn encoders_take_their_part_of_the_memory() {
        let lzma = |dict_bytes| Codec::Lzma {
            level: 9,
            extreme: false,
            dict_bytes,
        };
        let options = |codec: Codec, memory_bytes, workers| Options {
            compression: Some(Compression::new(codec)),
            memory_bytes,
            workers,
            ..Options::default()
        };
        let content = |codec, bytes, workers| options(codec, bytes, workers).content_bytes() >> 20;
        let mib = |mib: u64| mib << 20;
        assert!((245..256).contains(&content(Effort::Fast.into(), mib(256), 2)));
        assert!((128..200).contains(&content(lzma(4 << 20), mib(256), 2)));
        assert_eq!(content(lzma(8 << 20), mib(256), 100), 256 - 98);
        let workers = |codec, bytes, workers| options(codec, bytes, workers).compressing_workers();
        assert_eq!(workers(lzma(8 << 20), mib(256), 100), 1);
        assert_eq!(workers(lzma(4 << 20), mib(256), 100), 3);
        assert_eq!(workers(lzma(4 << 20), mib(1), 100), 1);
        assert_eq!(workers(Effort::Fast.into(), mib(256), 100), 100);
    }

    #[test]
    fn segments_of_large_files_are_longer() {
        let compression = Compression::new(Effort::Fast);
        let mib = |size: u64| compression.segment_bytes_of(size << 20) >> 20;
        let sizes = [0, 4, 15, 16, 31, 32, 300, 1 << 20, 1 << 40];
        assert_eq!(sizes.map(mib), [4, 4, 4, 8, 8, 16, 16, 16, 16]);
    }
}
