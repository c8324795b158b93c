//! `anteros profile`: which parts of which files programs read.
//!
//! `tree` has the files that a profile names, `fit` says which ranges of a profile they still have, `extents` where they lie in an image, `arguments` has what
//! several commands take. Each command is a module beside them; `reads` reads records of mounts, and `lists` the lists of
//! other programs.

mod arguments;
mod convert;
mod extents;
pub mod fit;
mod lists;
mod merge;
mod reads;
mod record;
mod runs;
mod show;
mod sort;
pub mod tree;
mod walk;
mod warm;

use crate::failure::Outcome;

/// Make and use access profiles: which parts of which files a program reads
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Merge(merge::Args),
    Convert(convert::Args),
    Record(record::Args),
    Sort(sort::Args),
    Warm(warm::Args),
    Show(show::Args),
}

impl Args {
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Merge(args) => args.run(),
            Command::Convert(args) => args.run(),
            Command::Record(args) => args.run(),
            Command::Sort(args) => args.run(),
            Command::Warm(args) => args.run(),
            Command::Show(args) => args.run(),
        }
    }
}
