//! The names of other tools that this program may be installed under.
//!
//! Scripts that call `mkfs.erofs`, `fsck.erofs`, `dump.erofs`, `erofsfuse` or `mount.erofs` get what these do by default, with
//! their options and exit statuses, and are told by name what this version does not have.

mod dump;
mod erofsfuse;
mod fsck;
mod mkfs;
mod mount;

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, Command, FromArgMatches};

use crate::args::c_number;
use crate::failure::{Outcome, Verdict};

/// Does what the program is asked for under another tool's name; `None` if it was called by its own.
pub fn run(args: &[OsString]) -> Option<Outcome> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    Some(match name {
        mkfs::MKFS => mkfs::run(args),
        fsck::FSCK => fsck::run(args),
        dump::DUMP => dump::run(args),
        erofsfuse::EROFSFUSE => erofsfuse::run(args),
        mount::MOUNT => mount::run(args),
        _ => return None,
    })
}

/// Does the work of a tool whose exit status is 1 whatever is wrong.
fn with_status_1(
    command: Command,
    args: &[OsString],
    work: impl FnOnce(&ArgMatches) -> Outcome,
) -> Outcome {
    let name = command.get_name().to_owned();
    let matches = match command.bin_name(name).try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            error.print()?;
            return Ok(Verdict::Bad);
        }
    };
    match work(&matches) {
        Err(failure) => failure.into_fault(),
        Ok(Verdict::Partial) => Ok(Verdict::Bad),
        outcome => outcome,
    }
}

/// Arguments of which clap has checked everything.
fn parsed<A: FromArgMatches>(matches: &ArgMatches) -> A {
    A::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// A number as C writes it, 0 or more.
fn number(text: &str) -> Result<u64, String> {
    let number = c_number(text)?;
    u64::try_from(number).map_err(|error| error.to_string())
}
