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

use anteros_core::{FileKind, FsError};
use anteros_format::inode::{FORMAT_EXTENDED, FORMAT_NLINK_1, RawCompactInode, RawExtendedInode};

use crate::Error;
use crate::base::Record;
use crate::look::Look;
use crate::plan::{Intent, Plan};
use crate::tree::{Node, NodeId};

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
