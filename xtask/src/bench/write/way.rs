//! A way to write into a directory: straight, or through a daemon that mirrors it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::bench::contest::Contender;
use crate::outcome::Outcome;
use crate::peers;

/// Ways that others are measured by.
pub(super) const NATIVE: &str = "native";
pub(super) const AUTO: &str = "anteros";
pub(super) const DAEMON: &str = "anteros --data daemon";
pub(super) const BASELINE: &str = "anteros --data daemon --unit 4K";
pub(super) const BUFFER: &str = "anteros --data buffer";
pub(super) const CACHE: &str = "anteros --data cache";
pub(super) const WITHOUT_RINGS: &str = "anteros --no-io-uring";
pub(super) const HP: &str = "passthrough_hp";
pub(super) const HP_RINGS: &str = "passthrough_hp -o io_uring";
pub(super) const HP_WITHOUT: &str = "passthrough_hp --nopassthrough";
pub(super) const HP_WITHOUT_ARGUMENTS: [&str; 4] =
    ["--foreground", "--nopassthrough", "SOURCE", "DIR"];

/// A way to write.
#[derive(Clone)]
pub(in crate::bench) struct Way {
    pub(in crate::bench) name: String,
    how: How,
}

#[derive(Clone)]
enum How {
    /// Without a daemon.
    Native,
    /// By a daemon: its words, of which `SOURCE` and `DIR` stand for the two directories.
    Daemon(Vec<OsString>),
    /// By the [daemon that does nothing](super::idle), over io_uring where that is on, or not.
    Idle { io_uring: bool },
}

impl Way {
    pub(super) fn native() -> Self {
        Self {
            name: NATIVE.to_owned(),
            how: How::Native,
        }
    }

    /// The daemon that does nothing.
    pub(super) fn idle(io_uring: bool) -> Self {
        let name = match io_uring {
            true => "a daemon that does nothing",
            false => "the same by /dev/fuse",
        };
        Self {
            name: name.to_owned(),
            how: How::Idle { io_uring },
        }
    }

    /// Returns whether it is that, and if so, how it is asked.
    pub(super) fn is_idle(&self) -> Option<bool> {
        match self.how {
            How::Idle { io_uring } => Some(io_uring),
            _ => None,
        }
    }

    /// `anteros passthru` with some arguments, called `anteros ARGUMENTS`.
    pub(in crate::bench) fn anteros(program: &Path, arguments: &str) -> Self {
        let mut words: Vec<OsString> = vec![program.into()];
        words.extend(["passthru", "SOURCE", "DIR", "--foreground"].map(OsString::from));
        words.extend(arguments.split_ascii_whitespace().map(OsString::from));
        Self {
            name: format!("anteros {arguments}").trim_end().to_owned(),
            how: How::Daemon(words),
        }
    }

    /// The same by another name.
    pub(super) fn called(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }

    /// A mirror of libfuse, with its arguments but for the first few.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn libfuse(name: &str, arguments: &[&str]) -> Outcome<Self> {
        let program = name.split(' ').next().unwrap_or(name);
        let command = peers::libfuse(program)?;
        let mut words = vec![command.get_program().to_owned()];
        words.extend(command.get_args().map(ToOwned::to_owned));
        words.extend(arguments.iter().map(OsString::from));
        Ok(Self {
            name: name.to_owned(),
            how: How::Daemon(words),
        })
    }

    /// The one of them that has all content go through its daemon.
    ///
    /// # Errors
    /// When it is not there and cannot be built.
    pub(in crate::bench) fn libfuse_daemon() -> Outcome<Self> {
        peers::make()?;
        peers::make_libfuse()?;
        Self::libfuse(HP_WITHOUT, &HP_WITHOUT_ARGUMENTS)
    }

    /// The command of the daemon, if there is one.
    pub(in crate::bench) fn daemon(&self, source: &Path, directory: &Path) -> Option<Command> {
        let How::Daemon(words) = &self.how else {
            return None;
        };
        let in_place = |word: &OsString| match word.to_str() {
            Some("DIR") => directory.into(),
            Some("SOURCE") => source.into(),
            Some("source=SOURCE") => format!("source={}", source.display()).into(),
            _ => word.clone(),
        };
        let mut words = words.iter().map(in_place);
        let mut command = Command::new(words.next()?);
        command.args(words);
        Some(command)
    }
}

impl Contender for Way {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> String {
        match &self.how {
            How::Native => "(in SOURCE itself)".to_owned(),
            How::Idle { .. } => "(in this process)".to_owned(),
            How::Daemon(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::words;

    #[test]
    fn a_daemon_is_told_the_directories_where_it_wants_them() {
        let way = Way::anteros(Path::new("anteros"), "--data buffer");
        assert_eq!(way.name, BUFFER);
        let command = way.daemon(Path::new("/a"), Path::new("/b")).unwrap();
        let told = "anteros passthru /a /b --foreground --data buffer";
        assert_eq!(words(&command), told);
        assert!(
            Way::native()
                .daemon(Path::new("/a"), Path::new("/b"))
                .is_none()
        );
    }
}
