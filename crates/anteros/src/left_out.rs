//! The commands that a program lacks which reads images alone.

use std::ffi::OsString;
use std::path::Path;

use crate::failure::{Failure, Kind};

/// Their names.
const COMMANDS: [&str; 11] = [
    "mkfs",
    "patch",
    "advise",
    "passthru",
    "trace",
    "profile",
    "log",
    "verify",
    "completions",
    "manual",
    "mkfs.erofs",
];

/// Returns what is wrong where one of them is called, by its own name or as a command.
pub fn failure(args: &[OsString]) -> Option<Failure> {
    let own_name = args.first().and_then(|path| Path::new(path).file_name());
    let names = own_name
        .into_iter()
        .chain(args.get(1).map(OsString::as_os_str));
    let name = names
        .filter_map(|name| name.to_str())
        .find(|name| COMMANDS.contains(name))?;
    let message = format!("{name}: this program has the commands that read images alone");
    Some(Failure::new(Kind::Usage, message).hint("the program with all commands has it"))
}
