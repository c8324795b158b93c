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
//! | `home` | the place of inodes, the root among them |
//! | `record` | the record behind the patch |
//! | `rollback` | a former state that becomes the current one again |
//! | `apply` | a patch that was made elsewhere, of the same image |
//!
//! Each directory names its parent's node id in its entry `..`, so that all of them are new when the root is. A file is not: its
//! inode is named by directories alone.
//!
//! Nothing that a state refers to is written over. A free slot is none of that: nothing but zeros lie there.

mod apply;
mod changed;
mod chunks;
mod content;
pub(crate) mod copied;
mod equal;
pub(crate) mod home;
pub(crate) mod kept;
mod matching;
mod record;
mod rollback;

use anteros_core::FsError;
use anteros_format::patch::STATES_MAX;

use crate::look::Look;
use crate::plan::Plan;
use crate::source::Scanned;
use crate::tree::NodeId;
use crate::{Error, Observer, Options, PatchSummary};

pub use apply::{Difference, apply, apply_to_device};
use copied::Copied;
pub(crate) use home::Patched;
use matching::Origin;
pub(crate) use record::{append_record, record_bytes};
pub use rollback::{Rollback, roll_back, roll_back_device};

/// Decides which files of the image that is patched stay where they are. Tells the changes.
pub(crate) fn find(
    look: &Look<'_>,
    former: &Scanned,
    plan: &mut Plan,
    observer: &dyn Observer,
) -> Result<PatchSummary, Error> {
    let patch = look.options.patch.as_ref();
    let patch = patch.expect("it was scanned for one");
    if patch.number > STATES_MAX {
        return Err(too_many());
    }
    let append = appended(look.options)?;
    let sb = append.parsed()?;
    plan.serial = sb.inodes as u32; // they are unique as far as 32 bits suffice
    let origin = Origin::new(look, former, &sb)?;
    origin.keep_attributes_of_root(plan)?;
    let first = u64::from(sb.meta_block) << sb.block_bits;
    let block_bytes = sb.block_bytes().into();
    let home = match look.options.is_wide() {
        true => Patched::anywhere(first, append.end),
        false => {
            let bytes = plan.head_bytes(0);
            Patched::with_root(first, append.end, &patch.free, bytes, block_bytes)
        }
    };
    let summary = matching::find(&origin, &home, plan, observer)?;
    plan.patched = Some(home);
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
    let base = former.and_then(|former| former.source.bases().into_iter().flatten().next());
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

/// The image that is patched.
pub(crate) fn appended(options: &Options) -> Result<&crate::Appended, Error> {
    let append = options.append.as_ref();
    append.ok_or_else(|| Error::Option("a patch needs an image that it is of".into()))
}
