//! The names of other tools that this program may be installed under.
//!
//! Scripts that call `mkfs.erofs`, `fsck.erofs`, `dump.erofs`, `erofsfuse` or `mount.erofs` get what these do by default, with
//! their options and exit statuses, and are told by name what this version does not have. By the names `mount.erofs.anteros`
//! and `mount.fuse.anteros`, mount(8) finds our daemon.

mod arguments;
mod dump;
mod erofsfuse;
mod fsck;
#[cfg(feature = "whole")]
mod mkfs;
mod mount;

use std::ffi::OsString;
use std::path::Path;

use crate::failure::Outcome;

/// Does what the program is asked for under another tool's name; `None` if it was called by its own.
pub fn run(args: &[OsString]) -> Option<Outcome> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    Some(match name {
        #[cfg(feature = "whole")]
        mkfs::MKFS => mkfs::run(args),
        fsck::FSCK => fsck::run(args),
        dump::DUMP => dump::run(args),
        erofsfuse::EROFSFUSE => erofsfuse::run(args),
        _ if mount::NAMES.contains(&name) => mount::run(args, name),
        _ => return None,
    })
}
