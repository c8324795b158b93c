//! `anteros log`: the read-write file system.

mod check;
mod compact;
mod dump;
mod figure;
mod gc;
mod launches;
mod mkfs;
mod mount;
mod open;
mod resize;
mod stat;
mod types;

use crate::failure::Outcome;

pub use open::as_source;

/// Make and mount logs: file systems in a file or on a device, for reading and writing
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    Check(check::Args),
    Stat(stat::Args),
    Dump(dump::Args),
    Gc(gc::Args),
    Compact(compact::Args),
    Launches(launches::Args),
    Resize(resize::Args),
}

impl Args {
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Mkfs(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Stat(args) => args.run(),
            Command::Dump(args) => args.run(),
            Command::Gc(args) => args.run(),
            Command::Compact(args) => args.run(),
            Command::Launches(args) => args.run(),
            Command::Resize(args) => args.run(),
        }
    }
}
