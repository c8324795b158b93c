//! `anteros completions`

use clap::CommandFactory;

use crate::failure::{Outcome, Verdict};

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "anteros", &mut text);
        std::io::Write::write_all(&mut std::io::stdout(), &text)?;
        Ok(Verdict::Good)
    }
}
