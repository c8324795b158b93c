//! Compressed storage for devices and images: builds, mounts, checks and extracts EROFS images.
//!
//! Each command is a module of [`command`]: its arguments, and what it does with the libraries.
//! What they share lies beside it: [`args`] (arguments that several take), [`failure`] (messages,
//! hints and exit statuses), [`output`] (text, JSON and progress), [`drawing`] (files that drawings are written into),
//! [`linux`] (which kernels mount an image), [`places`] (what is mounted where), [`profiles`] (access profiles in files), [`patch_file`] (patches in files),
//! [`interrupt`] (Ctrl-C), [`volume`] (how much there is to read). `left_out` is there where commands are not.

// What the commands that are left out need besides is left out by the linker.
#![cfg_attr(not(feature = "whole"), allow(dead_code))]

mod args;
mod command;
mod daemon;
mod drawing;
mod failure;
mod interrupt;
#[cfg(not(feature = "whole"))]
mod left_out;
mod linux;
mod loops;
mod options;
mod output;
mod patch_file;
mod places;
mod profiles;
mod volume;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Outcome;

/// The version, and what is in this program.
const VERSION: &str = match cfg!(feature = "whole") {
    true => concat!(
        env!("CARGO_PKG_VERSION"),
        "\nAll commands; LZ4, LZMA, DEFLATE, Zstandard"
    ),
    false => concat!(
        env!("CARGO_PKG_VERSION"),
        "\nThe commands that read images; LZ4, LZMA, DEFLATE, Zstandard"
    ),
};

#[cfg_attr(
    feature = "whole",
    doc = "Build, mount, check and extract EROFS images; mirror directories; keep files in a log."
)]
#[cfg_attr(
    not(feature = "whole"),
    doc = "Mount, check and extract EROFS images. This program has the commands that read images alone."
)]
///
/// Of an option that is given more than once the last one counts.
#[derive(Debug, Parser)]
#[command(
    name = "anteros",
    version,
    long_version = VERSION,
    max_term_width = 100,
    args_override_self = true,
    after_help = failure::STATUS_HELP
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "whole")]
    Mkfs(Box<command::mkfs::Args>),
    #[cfg(feature = "whole")]
    Patch(command::patch::Args),
    #[cfg(feature = "whole")]
    Advise(command::advise::Args),
    Mount(command::mount::Args),
    #[cfg(feature = "whole")]
    Passthru(command::passthru::Args),
    Umount(command::umount::Args),
    Stat(command::stat::Args),
    #[cfg(feature = "whole")]
    Trace(command::trace::Args),
    #[cfg(feature = "whole")]
    Profile(command::profile::Args),
    #[cfg(feature = "whole")]
    Log(command::log::Args),
    Ls(command::ls::Args),
    Cat(command::cat::Args),
    Extract(command::extract::Args),
    Tar(command::tar::Args),
    Dump(command::dump::Args),
    Check(command::check::Args),
    #[cfg(feature = "whole")]
    Verify(command::verify::Args),
    #[cfg(feature = "whole")]
    Completions(command::completions::Args),
    #[cfg(feature = "whole")]
    Manual(command::manual::Args),
}

fn main() -> ExitCode {
    if anteros_fuse::is_guardian() {
        return failure::exit(daemon::guard());
    }
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(outcome) = command::peer::run(&args) {
        return failure::exit(outcome);
    }
    #[cfg(not(feature = "whole"))]
    if let Some(failure) = left_out::failure(&args) {
        return failure::exit(Err(failure));
    }
    let cli = Cli::try_parse_from(args).unwrap_or_else(|e| e.exit());
    failure::exit(run(cli.command))
}

fn run(command: Command) -> Outcome {
    match command {
        #[cfg(feature = "whole")]
        Command::Mkfs(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Patch(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Advise(args) => args.run(),
        Command::Mount(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Passthru(args) => args.run(),
        Command::Umount(args) => args.run(),
        Command::Stat(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Trace(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Profile(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Log(args) => args.run(),
        Command::Ls(args) => args.run(),
        Command::Cat(args) => args.run(),
        Command::Extract(args) => args.run(),
        Command::Tar(args) => args.run(),
        Command::Dump(args) => args.run(),
        Command::Check(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Verify(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Completions(args) => args.run(),
        #[cfg(feature = "whole")]
        Command::Manual(args) => args.run(),
    }
}
