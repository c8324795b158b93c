//! `anteros completions`

use clap::{Command, CommandFactory};

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
        let mut command = offered(&crate::Cli::command());
        clap_complete::generate(self.shell, &mut command, "anteros", &mut text);
        std::io::Write::write_all(&mut std::io::stdout(), &text)?;
        Ok(Verdict::Good)
    }
}

/// A command without what its help hides, which shells would offer all the same.
fn offered(command: &Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut offered = Command::new(leaked(command.get_name())).about(about);
    if let Some(version) = command.get_version() {
        offered = offered.version(leaked(version));
    }
    offered
        .args(shown.cloned())
        .subcommands(command.get_subcommands().map(self::offered))
}

/// Text that stays until the program ends, which it does soon.
fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}
