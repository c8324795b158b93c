//! Inodes of an image that is appended to, which stay as they are.
//!
//! ```text
//! | superblock | old data and metadata … | new data … | new directories | all inodes |
//!       └ written last, when all else is on the medium          those of old files are copies ┘
//! ```
//!
//! All inodes of the new tree lie together, so that the root has a small number. Those of files that were there before are
//! copies, with all that lies behind them; their data stays where it is. A copy begins at a slot as well, and one that is longer
//! than a block and ends with inline data at the same byte of a block: so all of it means the same there.

use std::mem::offset_of;

use anteros_core::{FileKind, FsError, FsResult, Ino};
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::features::Incompat;
use anteros_format::inode::{FORMAT_EXTENDED, FORMAT_NLINK_1, RawCompactInode, RawExtendedInode};
use anteros_format::superblock::Superblock;

use crate::look::Look;
use crate::plan::{Intent, Plan};
use crate::tree::{Node, NodeId};
use crate::{Error, Options};

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

impl Appended {
    /// The superblock, parsed.
    pub(crate) fn parsed(&self) -> Result<Superblock, Error> {
        let parsed = Superblock::parse(&self.superblock);
        parsed.map_err(|fault| Error::Option(format!("the image to append to: {fault:?}")))
    }
}

/// Bytes of an inode at which its number lies, and its links in either form.
const INO: usize = offset_of!(RawCompactInode, i_ino);
const COMPACT_NLINK: usize = offset_of!(RawCompactInode, i_nb);
const EXTENDED_NLINK: usize = offset_of!(RawExtendedInode, i_nlink);

/// Longest record. An index of 16 bytes for each block of 64 GiB is no longer.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Has all files keep their inodes that were in the image before.
pub(crate) fn find(look: &Look<'_>, plan: &mut Plan) -> Result<(), Error> {
    if look.options.append.is_none() {
        return Ok(());
    }
    let bases = look.source.bases();
    for id in look.tree.ids() {
        look.check_cancelled()?;
        let Some((number, ino)) = look.source.answers(id) else {
            continue;
        };
        let Some(base) = bases[number] else { continue };
        if look.tree.node(id).kind == FileKind::Directory {
            continue;
        }
        let record = base.record(ino).map_err(|cause| fault(look, id, cause))?;
        if record.bytes > RECORD_BYTES_MAX {
            let reason = format!(
                "its inode takes {} bytes; {RECORD_BYTES_MAX} are the most",
                record.bytes
            );
            return Err(unstorable(look, id, reason));
        }
        plan.nodes[id as usize].intent = Intent::Kept(record);
    }
    Ok(())
}

/// Appends the inode of a file that was in the image before, with the number and the links that it has now.
pub(crate) fn append(
    look: &Look<'_>,
    id: NodeId,
    record: &Record,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let bases = look.source.bases();
    let base = look
        .source
        .answers(id)
        .and_then(|(number, _)| bases[number]);
    let base = base.expect("only inodes of one are kept");
    let start = out.len();
    out.resize(start + record.bytes as usize, 0);
    let bytes = &mut out[start..];
    let read = base.read(record.address, bytes);
    read.map_err(|cause| fault(look, id, cause))?;
    let node = look.tree.node(id);
    match relink(bytes, node, id) {
        true => Ok(()),
        false => {
            let reason = format!("its inode has no place for {} links", node.nlink);
            Err(unstorable(look, id, reason))
        }
    }
}

/// Gives an inode the number and the links that it has now; answers whether there is room for these.
fn relink(bytes: &mut [u8], node: &Node, id: NodeId) -> bool {
    let format = bytes
        .first_chunk()
        .map_or(0, |&raw| u16::from_le_bytes(raw));
    let nlink = node.nlink.to_le_bytes();
    let is_extended = format & FORMAT_EXTENDED != 0;
    put(bytes, INO, &(id + 1).to_le_bytes())
        && match u16::try_from(node.nlink) {
            _ if is_extended => put(bytes, EXTENDED_NLINK, &nlink),
            _ if format & FORMAT_NLINK_1 != 0 => node.nlink == 1,
            Ok(nlink) => put(bytes, COMPACT_NLINK, &nlink.to_le_bytes()),
            Err(_) => false,
        }
}

/// Writes a field; answers whether there is one.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> bool {
    let field = bytes.get_mut(at..at + value.len());
    field.map(|field| field.copy_from_slice(value)).is_some()
}

fn fault(look: &Look<'_>, id: NodeId, cause: FsError) -> Error {
    Error::FileSystem {
        path: look.source.full_path(look.tree, id),
        action: "read the inode",
        cause,
    }
}

fn unstorable(look: &Look<'_>, id: NodeId, reason: String) -> Error {
    Error::Unstorable {
        path: look.source.full_path(look.tree, id),
        reason,
    }
}

/// Returns why nothing can be appended with these options.
pub(crate) fn refusal(options: &Options) -> Result<(), Error> {
    let Some(append) = &options.append else {
        return Ok(());
    };
    let sb = append.parsed()?;
    let refuse = |why: String| Err(Error::Option(format!("to append to an image: {why}")));
    let cannot = [
        (
            sb.metabox.is_some() || options.metabox.is_some(),
            "compressed metadata",
        ),
        (sb.extra_devices > 0, "an image of several devices"),
        (options.fragments.is_some(), "packing files together"),
        (options.compress_directories, "compressed directories"),
        (options.hash_tree.is_some(), "a hash tree"),
        (options.offset > 0, "an offset"),
        (options.android_sparse, "the sparse form of Android"),
        (crate::devices::is_wanted(options), "extra devices"),
        (options.has_prefixes(), "prefixes or digests as attributes"),
        (
            options.xattr_share_above.is_none(),
            "leaving attributes out",
        ),
        (
            options.is_wide() != sb.incompat.contains(Incompat::FORTY_EIGHT_BIT),
            "another form of addresses (-E48bit)",
        ),
        (!options.exclude.is_empty(), "leaving paths out"),
        (
            options.fs_config.is_some() || options.file_contexts.is_some(),
            "lists of owners or labels",
        ),
        (options.block_list.is_some(), "a list of blocks"),
        (
            options.root_xattr_bytes > 0,
            "room for attributes of the root",
        ),
    ];
    if let Some((_, what)) = cannot.iter().find(|(is_told, _)| *is_told) {
        return refuse(format!("{what} cannot be"));
    }
    if options.block_bits != sb.block_bits {
        return refuse(format!(
            "blocks of {} bytes, and it has {}",
            options.block_bytes(),
            sb.block_bytes()
        ));
    }
    let (told, found) = (options.algorithms(), sb.algorithms);
    let is_known = told.iter().all(|algorithm| found.contains(algorithm));
    if options.compression.is_some()
        && !(is_known && covers(&append.cfgs, &options.cfgs(), options))
    {
        return refuse(
            "its superblock says nothing of that compression, or of clusters or windows that large"
                .into(),
        );
    }
    Ok(())
}

/// Returns whether decoders for one configuration can do what another asks for.
fn covers(found: &ComprCfgs, told: &ComprCfgs, options: &Options) -> bool {
    let has_lz4 = options.algorithms().contains(anteros_core::Algorithm::Lz4);
    let lz4 = !has_lz4 || found.lz4_max_pcluster_blocks >= told.lz4_max_pcluster_blocks;
    lz4 && found.lzma_dict_bytes >= told.lzma_dict_bytes
        && found.deflate_window_bits >= told.deflate_window_bits
        && found.zstd_window_log >= told.zstd_window_log
}
