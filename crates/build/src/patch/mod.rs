//! Patches of an image: what changes is appended, and inodes of other files stay where they are.
//!
//! ```text
//! | superblock | image as it is, with a free slot … | new data | new directories | new inodes | record |
//!       │                                      │                           ▲
//!       │                                      └ the root inode ───────────┘
//!       └ written last, in one sector, when all else is on the medium
//! ```
//!
//! | module | job |
//! |---|---|
//! | `matching` | which files of the new tree are those of the image |
//! | `changed` | what stays of a file whose content changes |
//! | `equal` | runs of bytes that two forms of a file have in common |
//! | `content` | which extents of a file that changes stay where they are |
//! | `chunks` | the same of files without compression |
//! | `kept` | the extents that stay |
//! | `copied` | inodes with other properties, whose data stays |
//! | `former` | content of the packed inode that stays |
//! | `packed` | the packed inode, to which files of a patch are added |
//! | `home` | the place of inodes, the root among them |
//! | `record` | the record behind the patch |
//! | `renewed` | the room of an older image in which a new one lies, with slots for inodes |
//! | `room` | what of that room is free |
//! | `rollback` | a former state that becomes the current one again |
//! | `apply` | a patch that was made elsewhere, of the same image |
//!
//! Each directory names its parent's node id in its entry `..`, so that all of them are new when the root is. A file is not: its
//! inode is named by directories alone.
//!
//! A rebuild over an older image ([`Options::renew`]) is a patch of a copy of it that keeps no former state: what is gone is
//! room for what is new, and inodes and directories that are written anew lie where they did.
//!
//! Nothing that a state refers to is written over. A free slot is none of that: nothing but zeros lie there.

mod apply;
mod changed;
mod chunks;
mod content;
pub(crate) mod copied;
mod equal;
pub(crate) mod former;
pub(crate) mod home;
pub(crate) mod kept;
mod matching;
mod packed;
mod record;
pub(crate) mod renewed;
mod rollback;
mod room;

use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FsError;
use anteros_format::patch::STATES_MAX;
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::base::Base;
use crate::look::Look;
use crate::output::Output;
use crate::plan::Plan;
use crate::ranges::Ranges;
use crate::source::Scanned;
use crate::tree::NodeId;
use crate::{Error, Observer, Options, PatchSummary};

pub use apply::{Difference, apply, apply_to_device};
use copied::Copied;
pub(crate) use home::Patched;
use matching::Origin;
pub(crate) use record::{append_record, record_bytes};
pub use rollback::{Rollback, roll_back, roll_back_device};

/// Bytes of an older image that are copied at once.
const COPIED_BYTES: usize = 1 << 20;

/// Decides which files of the image that is patched stay where they are. Tells the changes.
pub(crate) fn find(
    look: &Look<'_>,
    former: &Scanned,
    plan: &mut Plan,
    observer: &dyn Observer,
) -> Result<PatchSummary, Error> {
    let patch = look.options.patch.as_ref();
    if patch.is_some_and(|patch| patch.number > STATES_MAX) {
        return Err(too_many());
    }
    let append = appended(look.options)?;
    let sb = append.parsed()?;
    let origin = Origin::new(look, former, &sb)?;
    if look.options.patch_layer.is_some() {
        let summary = matching::find(&origin, None, plan, observer)?;
        packed::decide(origin.base, look.options, plan)?;
        return Ok(summary);
    }
    plan.serial = sb.inodes as u32; // they are unique as far as 32 bits suffice
    origin.keep_attributes_of_root(plan)?;
    let first = u64::from(sb.meta_block) << sb.block_bits;
    let block_bytes = sb.block_bytes().into();
    let home = match patch.filter(|_| !look.options.is_wide()) {
        None => Patched::anywhere(first, append.end),
        Some(patch) => {
            let bytes = plan.head_bytes(0);
            Patched::with_root(first, append.end, &patch.free, bytes, block_bytes)
        }
    };
    let summary = matching::find(&origin, Some(&home), plan, observer)?;
    packed::decide(origin.base, look.options, plan)?;
    let renewed = match &look.options.renew {
        Some(renew) => Some(room::find(&origin, (append, renew), plan)?),
        None => None,
    };
    plan.patched = Some(Patched {
        start: renewed.as_ref().map_or(home.start, |room| room.end),
        renewed,
        ..home
    });
    Ok(summary)
}

/// The error of one state more than there may be.
fn too_many() -> Error {
    let text = format!("the image was patched {STATES_MAX} times, which is the most");
    Error::Option(text)
}

/// Appends what lies behind the attributes of an inode that is copied.
pub(crate) fn append_rest(
    (look, former): (&Look<'_>, Option<&Scanned>),
    id: NodeId,
    copied: &Copied,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let base = former.and_then(base_of);
    let start = out.len();
    out.resize(start + copied.rest_bytes() as usize, 0);
    let at = copied.record.address + copied.head_bytes();
    let read = base.map_or(Err(FsError::NotFound), |base| {
        base.read(at, &mut out[start..])
    });
    read.map_err(|cause| Error::FileSystem {
        path: look.source.full_path(look.tree, id),
        action: "read the inode",
        cause,
    })
}

/// Copies the older image into a new one, as far as it stays, without its superblock. An image that is patched is there.
pub(crate) fn begin(
    mut output: Output,
    former: &Scanned,
    plan: &Plan,
    cancel: &AtomicBool,
) -> Result<Output, Error> {
    let (Some(renewed), Some(base)) = (plan.renewed(), base_of(former)) else {
        return Ok(output);
    };
    let read = |at, bytes: &mut [u8]| {
        base.read(at, bytes).map_err(|cause| Error::FileSystem {
            path: former.source.path().to_owned(),
            action: "read the older image",
            cause,
        })
    };
    output.rearrange(&[], 0)?;
    let superblock = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
    let cleared = renewed
        .cleared
        .iter()
        .chain([superblock])
        .collect::<Ranges>();
    let mut buffer = vec![0; COPIED_BYTES];
    for start in (0..renewed.end).step_by(COPIED_BYTES) {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let end = renewed.end.min(start + COPIED_BYTES as u64);
        let bytes = &mut buffer[..(end - start) as usize];
        read(start, bytes)?;
        for part in cleared.within(start..end) {
            bytes[(part.start - start) as usize..(part.end - start) as usize].fill(0);
        }
        output.copy(bytes)?;
    }
    Ok(output)
}

/// The source of the inodes of the image that is patched.
fn base_of(former: &Scanned) -> Option<&dyn Base> {
    former.source.bases().into_iter().flatten().next()
}

/// The image that is patched.
pub(crate) fn appended(options: &Options) -> Result<&crate::Appended, Error> {
    let append = options.append.as_ref();
    append.ok_or_else(|| Error::Option("a patch needs an image that it is of".into()))
}
