//! The commands.

pub mod cat;
pub mod check;
pub mod completions;
pub mod dump;
pub mod extract;
pub mod log;
pub mod ls;
pub mod manual;
pub mod mkfs;
pub mod mount;
pub mod passthru;
pub mod stat;
pub mod trace;
pub mod umount;
pub mod verify;

use std::ffi::OsString;
use std::path::Path;

/// Names of other tools that this program answers to when it is installed under them.
const NAMES: [(&str, &str); 1] = [("mkfs.erofs", "mkfs")];

/// Puts the command in front of the arguments when the program is called by another tool's name.
pub fn by_name(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let name = args
        .first()
        .and_then(|arg| Path::new(arg).file_name()?.to_str());
    let command = NAMES.iter().find(|(tool, _)| Some(*tool) == name);
    if let Some((_, command)) = command {
        args.insert(1, command.into());
    }
    args
}
