//! Leaving the terminal: this program starts itself again in the background, waits until the child says
//! that the mount stands, and leaves.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Kind, Outcome, Verdict};

/// States what the background process says when the mount stands.
const READY: &str = "ready";

/// Runs this program again as a daemon and waits until the mount stands.
pub fn start(subject: &Path) -> Outcome {
    let program = std::env::current_exe().map_err(|e| Failure::system(subject, &e))?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detach")
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
    std::process::exit(status.code().unwrap_or(Kind::System as i32));
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
