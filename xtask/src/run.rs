//! Running other programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::Outcome;

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end; its output goes where ours goes.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command
        .status()
        .map_err(|error| format!("{}: {error}", words(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}: {}", words(command)).into())
    }
}

/// Runs a command to its end and gives what it wrote to its standard output.
///
/// # Errors
/// When it cannot be started, fails, or writes something other than UTF-8.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", words(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{complaint}", output.status, words(command)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The command as one would type it.
pub(crate) fn words(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    std::iter::once(program.to_string_lossy())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
