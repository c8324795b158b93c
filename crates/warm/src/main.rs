//! `anteros-warm`: reads what a profile names below a directory into the page cache, in the order of the profile.
//!
//! It takes no image apart. `anteros profile sort` puts a profile into the order of one.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anteros_trace::profile::Profile;
use anteros_warm::{Directory, core_of, cut, free_memory, warm, within_limit};

const USAGE: &str = "\
usage: anteros-warm [--all] DIRECTORY PROFILE

Reads the parts of files below DIRECTORY that all rounds of PROFILE have read into the page cache, in the order of
PROFILE, up to half of the memory that is free. It says nothing unless something goes wrong.

  --all      reads all parts, not only those that all rounds have read
  --help     prints this
  --version  prints the version

Exit status: 0 all was read, 2 wrong arguments or profile, 5 an error of the system, 6 some was not read.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let told = |name: &str| arguments.iter().any(|argument| argument == name);
    if told("--help") || told("-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if told("--version") {
        println!("anteros-warm {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let is_option = |argument: &&OsString| argument.as_encoded_bytes().starts_with(b"-");
    let (options, paths): (Vec<_>, Vec<_>) = arguments.iter().partition(is_option);
    match (
        &paths[..],
        options.iter().find(|option| **option != "--all"),
    ) {
        ([directory, profile], None) => read(
            Path::new(directory),
            Path::new(profile),
            !options.is_empty(),
        ),
        (_, Some(unknown)) => failed(
            2,
            format_args!("unknown option {}\n\n{USAGE}", Path::new(unknown).display()),
        ),
        _ => failed(
            2,
            format_args!("a directory and a profile are needed\n\n{USAGE}"),
        ),
    }
}

fn read(directory: &Path, profile: &Path, all: bool) -> ExitCode {
    let found = match File::open(profile) {
        Ok(file) => Profile::read(file),
        Err(error) => return failed(5, format_args!("{}: {error}", profile.display())),
    };
    let found = match found {
        Ok(found) => core_of(&found, all),
        Err(error) => return failed(2, format_args!("{}: {error}", profile.display())),
    };
    let directory = match Directory::open(directory) {
        Ok(opened) => opened,
        Err(error) => return failed(5, format_args!("{}: {error}", directory.display())),
    };
    let (found, missing) = cut(&directory, found);
    let (ranges, left_out) = within_limit(found.into_iter(), free_memory());
    let warmed = warm(&directory, &ranges, &|| true);
    let mut code = ExitCode::SUCCESS;
    for (count, what) in [
        (missing, "ranges are not there"),
        (warmed.failed, "ranges could not be read"),
        (
            warmed.changed,
            "ranges have other content than the profile says",
        ),
        (
            left_out,
            "bytes are left out, beyond half of the memory that is free",
        ),
    ] {
        if count > 0 {
            code = failed(6, format_args!("{count} {what}"));
        }
    }
    code
}

fn failed(code: u8, what: impl Display) -> ExitCode {
    eprintln!("anteros-warm: {what}");
    ExitCode::from(code)
}
