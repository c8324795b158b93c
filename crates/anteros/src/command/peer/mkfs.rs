//! The names of other tools that this program may be installed under.
//!
//! Scripts that call `mkfs.erofs` get what it does by default, and are told by name which of its options this version does
//! not have. Other tools of erofs-utils have options of their own, to which no command answers: it is named instead.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, FromArgMatches};

use super::mkfs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

const MKFS: &str = "mkfs.erofs";

/// States what the program prints under the name of mkfs.erofs for `-V`. Scripts look for the second line.
const VERSION: &str = concat!(
    "mkfs.erofs (anteros) ",
    env!("CARGO_PKG_VERSION"),
    "\navailable compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n"
);

/// Other tools of erofs-utils, and the command to use instead.
const OTHERS: [(&str, &str); 4] = [
    (
        "fsck.erofs",
        "anteros check IMAGE` or `anteros extract IMAGE DIRECTORY",
    ),
    ("dump.erofs", "anteros dump IMAGE"),
    ("erofsfuse", "anteros mount --fuse IMAGE DIRECTORY"),
    ("mount.erofs", "anteros mount IMAGE DIRECTORY"),
];

/// Options that mkfs.erofs 1.9 has, and this version has not.
const NOT_SUPPORTED: [&str; 29] = [
    "--zD",
    "--MZ",
    "--file-contexts",
    "--mount-point",
    "--root-xattr-isize",
    "--blobdev",
    "--dsunit",
    "--fsalignblks",
    "--async-queue-limit",
    "--tar",
    "--ungzip",
    "--gzip",
    "--unxz",
    "--unlzma",
    "--gzinfo",
    "--sort",
    "--aufs",
    "--ovlfs-strip",
    "--clean",
    "--incremental",
    "--vmdk-desc",
    "--s3",
    "--oci",
    "--xattr-inode-digest",
    "--zfeature-bits",
    "--product-out",
    "--fs-config-file",
    "--random-pclusterblks",
    "--random-algorithms",
];

/// Does what the program is asked for under another tool's name; `None` if it was called by its own.
pub fn run(args: &[OsString]) -> Option<Outcome> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    if name == MKFS {
        return Some(mkfs(args));
    }
    let (tool, instead) = OTHERS.iter().find(|(tool, _)| *tool == name)?;
    let message = format!("{tool}: anteros does not answer to this name");
    Some(Err(
        Failure::new(Kind::Usage, message).hint(format_args!("use `{instead}`"))
    ))
}

fn mkfs(args: &[OsString]) -> Outcome {
    let command = clap::Command::new(MKFS)
        .bin_name(MKFS)
        .version(VERSION)
        .max_term_width(100)
        .args_override_self(true)
        .disable_version_flag(true)
        .arg(
            clap::Arg::new("version")
                .short('V')
                .long("version")
                .help("Print the version and the algorithms")
                .action(clap::ArgAction::SetTrue)
                .exclusive(true),
        );
    let command = mkfs::Args::augment_args(command);
    let matches = match command.try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return refusal(&error).map_or_else(|| error.exit(), Err),
    };
    if matches.get_flag("version") {
        output::text(VERSION)?;
        return Ok(Verdict::Good);
    }
    let mut args = mkfs::Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    args.is_peer = true;
    args.run()
}

/// The words for an option that is not there; `None` if it is another kind of mistake.
fn refusal(error: &clap::Error) -> Option<Failure> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let name = argument.split('=').next().unwrap_or(argument);
    if NOT_SUPPORTED.contains(&name) {
        let message = format!("{MKFS}: option {name} is not supported yet");
        return Some(Failure::new(Kind::Usage, message));
    }
    let message = format!("{MKFS}: there is no option {argument}");
    Some(Failure::new(Kind::Usage, message).hint("--help lists all options"))
}
