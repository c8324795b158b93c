//! Leaving the terminal: this program starts itself again in the background, waits until the child says
//! that the mount stands, and leaves.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Kind, Outcome, Verdict};

/// States what the background process says when the mount stands.
const READY: &str = "ready";

/// The arguments of this program that do what it was asked for under another tool's name.
#[derive(Debug)]
pub struct Told {
    /// The arguments, the command first.
    pub arguments: Vec<OsString>,
    /// The exit status of that tool, whatever fails.
    pub status: u8,
}

/// Runs this program again as a daemon and waits until the mount stands. Under another tool's name, the arguments that do
/// the same are told.
pub fn start(subject: &Path, told: Option<Told>) -> Outcome {
    let program = std::env::current_exe().map_err(|e| Failure::system(subject, &e))?;
    let status_told = told.as_ref().map(|told| told.status);
    let arguments = told.map_or_else(
        || std::env::args_os().skip(1).collect(),
        |told| told.arguments,
    );
    let mut child = Command::new(program)
        .args(detached(arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::os)?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(Failure::os)?;
    if line.trim_end() == READY {
        return Ok(Verdict::Good);
    }
    // The child has told why.
    let status = child.wait().map_err(Failure::os)?;
    let own_status = || status.code().unwrap_or(Kind::System as i32);
    std::process::exit(status_told.map_or_else(own_status, i32::from));
}

/// The arguments of the child: behind `--` there are no options.
fn detached(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let options = arguments.iter().take_while(|argument| *argument != "--");
    arguments.insert(options.count(), "--detach".into());
    arguments
}

/// Tells the parent that the mount stands, and lets go of its terminal, streams and directory.
pub fn detach() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
