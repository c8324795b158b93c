//! Arguments as other tools take them.

use std::ffi::OsString;

use clap::{ArgMatches, Command, FromArgMatches};

use crate::args::c_number;
use crate::failure::{Outcome, Verdict};

/// Does the work of a tool whose exit status is 1 whatever is wrong.
pub fn with_status_1(
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
pub fn parsed<A: FromArgMatches>(matches: &ArgMatches) -> A {
    A::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// A number as C writes it, 0 or more.
pub fn number(text: &str) -> Result<u64, String> {
    let number = c_number(text)?;
    u64::try_from(number).map_err(|error| error.to_string())
}
