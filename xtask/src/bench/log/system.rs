//! Participants: our log, file systems of the kernel, and mirrors of a directory on one of them.

use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::contest::Contender;
use crate::bench::mounted::{Daemon, Mounted};
use crate::bench::place::Place;
use crate::bench::write::native::Kind;
use crate::bench::write::way::Way;
use crate::outcome::Outcome;
use crate::run::output;

pub(in crate::bench) const OURS: &str = "anteros log";
pub(in crate::bench) const EXT4: &str = "ext4";
pub(in crate::bench) const HOLLOW: &str = "hollow daemon";
pub(in crate::bench) const MIRROR: &str = "passthru on ext4";
pub(in crate::bench) const MIRROR_DAEMON: &str = "passthru --data daemon on ext4";
pub(in crate::bench) const MIRROR_LIBFUSE: &str = "passthrough_hp --nopassthrough on ext4";

/// Something that can be made on a device and mounted.
#[derive(Clone)]
pub(in crate::bench) struct System {
    pub(in crate::bench) name: String,
    how: How,
    /// After how many recorded launches its files are compressed in the background; 0: never.
    pub(in crate::bench) launches: usize,
}

#[derive(Clone)]
enum How {
    /// Ours: the program, and arguments of the mount.
    Log(PathBuf, Vec<OsString>),
    /// One of the kernel's, and options of its mount.
    Kernel(&'static Kind, Option<&'static CStr>),
    Mirror(&'static Kind, Way),
    /// A daemon that keeps nothing but names: the program that is it.
    Hollow(PathBuf),
}

impl System {
    /// Our log, mounted with some arguments. Unless these say so, it compresses nothing.
    pub(in crate::bench) fn log(program: &Path, arguments: &str) -> Self {
        let mut words: Vec<&str> = arguments.split_ascii_whitespace().collect();
        if !words.contains(&"--policy") {
            words.extend(["--policy", "none"]);
        }
        Self {
            name: format!("{OURS} {arguments}").trim_end().to_owned(),
            how: How::Log(
                program.to_owned(),
                words.into_iter().map(OsString::from).collect(),
            ),
            launches: 0,
        }
    }

    /// A file system of the kernel; on ext4, mirrors as well.
    pub(in crate::bench) fn of_kernel(kind: &'static Kind, program: &Path) -> Vec<Self> {
        let mut systems = vec![Self::of_kernel_alone(kind)];
        if kind.name == EXT4 {
            for (name, arguments) in [(MIRROR, ""), (MIRROR_DAEMON, "--data daemon")] {
                systems.push(Self {
                    name: name.to_owned(),
                    how: How::Mirror(kind, Way::anteros(program, arguments)),
                    launches: 0,
                });
            }
        }
        systems
    }

    /// libfuse's mirror of a directory on ext4, all of whose content goes through its daemon.
    ///
    /// # Errors
    /// When it is not there and cannot be built.
    pub(in crate::bench) fn of_libfuse(kind: &'static Kind) -> Outcome<Self> {
        Ok(Self {
            name: MIRROR_LIBFUSE.to_owned(),
            how: How::Mirror(kind, Way::libfuse_daemon()?),
            launches: 0,
        })
    }

    /// A file system of the kernel, as it is mounted by default.
    pub(in crate::bench) fn of_kernel_alone(kind: &'static Kind) -> Self {
        Self {
            name: kind.name.to_owned(),
            how: How::Kernel(kind, None),
            launches: 0,
        }
    }

    /// The same, mounted with some options.
    pub(in crate::bench) fn of_kernel_with(kind: &'static Kind, options: &'static CStr) -> Self {
        let told = options.to_string_lossy();
        Self {
            name: format!("{} {}", kind.name, told.trim_start_matches("nodiscard,")),
            how: How::Kernel(kind, Some(options)),
            launches: 0,
        }
    }

    /// A daemon that keeps nothing but names, and nothing when it is unmounted.
    ///
    /// # Errors
    /// When this program is not found any more.
    pub(in crate::bench) fn hollow() -> Outcome<Self> {
        Ok(Self {
            name: HOLLOW.to_owned(),
            how: How::Hollow(std::env::current_exe()?),
            launches: 0,
        })
    }

    /// Tells whether what was written is there when it is mounted again.
    pub(in crate::bench) fn is_lasting(&self) -> bool {
        !matches!(self.how, How::Hollow(_))
    }

    pub(in crate::bench) fn is_mirror(&self) -> bool {
        matches!(self.how, How::Mirror(..))
    }

    pub(in crate::bench) fn has_daemon(&self) -> bool {
        !matches!(self.how, How::Kernel(..))
    }

    pub(in crate::bench) fn is_log(&self) -> bool {
        matches!(self.how, How::Log(..))
    }

    /// The same with further arguments, if it is ours.
    pub(in crate::bench) fn with(&self, more: &[&str]) -> Self {
        let mut system = self.clone();
        if let How::Log(_, arguments) = &mut system.how {
            arguments.extend(more.iter().map(OsString::from));
        }
        system
    }

    /// Copy of a system, whose files are compressed in the background after some launches were recorded.
    pub(in crate::bench) fn compacted(&self, launches: usize) -> Self {
        Self {
            name: format!("{}, compacted", self.name),
            launches,
            ..self.clone()
        }
    }

    /// Has a mounted log of ours compress files in the background, and returns what is told of that.
    ///
    /// # Errors
    /// When it is no log, or that fails.
    pub(in crate::bench) fn compact(&self, directory: &Path) -> Outcome<Value> {
        self.ask(&["log", "compact", "--json"], directory)
    }

    /// Returns what a mounted log of ours has counted.
    ///
    /// # Errors
    /// When it is no log, or does not answer.
    pub(in crate::bench) fn statistics(&self, directory: &Path) -> Outcome<Value> {
        self.ask(&["stat", "--json"], directory)
    }

    /// Returns what our program answers of something, as JSON.
    ///
    /// # Errors
    /// When this is none of ours, or it fails.
    pub(in crate::bench) fn ask(&self, words: &[&str], directory: &Path) -> Outcome<Value> {
        let How::Log(program, _) = &self.how else {
            return Err("no log".into());
        };
        let mut command = Command::new(program);
        let told = output(command.args(words).arg(directory))?;
        Ok(serde_json::from_str(&told)?)
    }

    /// Makes one on a device, whatever lies there.
    ///
    /// # Errors
    /// When its program fails.
    pub(in crate::bench) fn make(&self, node: &Path) -> Outcome {
        match &self.how {
            How::Log(program, _) => {
                let mut command = Command::new(program);
                command.args(["log", "mkfs", "--force"]).arg(node);
                output(&mut command).map(drop)
            }
            How::Kernel(kind, _) | How::Mirror(kind, _) => kind.make(node),
            How::Hollow(_) => Ok(()),
        }
    }

    /// Mounts the one that is on a device.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub(in crate::bench) fn mount(&self, place: &Place, node: &Path) -> Outcome<Stand> {
        let (mount, native) = (place.directory("mount")?, place.directory("native")?);
        match &self.how {
            How::Log(..) => Stand::served(&mut self.log_mount(node, &mount)?, mount),
            How::Kernel(kind, options) => Ok(Stand {
                daemon: None,
                native: Some(kind.mount_with(node, &native, *options)?),
                directory: native,
            }),
            How::Hollow(program) => {
                let mut command = Command::new(program);
                Stand::served(command.arg("hollow").arg(&mount), mount)
            }
            How::Mirror(kind, way) => {
                let mounted = kind.mount(node, &native)?;
                let source = native.join("source");
                fs::create_dir_all(&source)?;
                let mut command = way
                    .daemon(&source, &mount)
                    .ok_or("a way without a daemon")?;
                Ok(Stand {
                    daemon: Some(Daemon::start(&mut command, &mount)?),
                    native: Some(mounted),
                    directory: mount,
                })
            }
        }
    }

    /// Has the program of a daemon read from the disk.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(in crate::bench) fn warm(&self) -> Outcome {
        match &self.how {
            How::Log(program, _) => output(Command::new(program).arg("--version")).map(drop),
            _ => Ok(()),
        }
    }

    /// Has a log that is not mounted say whether it is whole.
    ///
    /// # Errors
    /// When it is not.
    pub(in crate::bench) fn check(&self, node: &Path) -> Outcome {
        let How::Log(program, _) = &self.how else {
            return Ok(());
        };
        let checked = Command::new(program)
            .args(["log", "check"])
            .arg(node)
            .output()?;
        match checked.status.success() {
            true => Ok(()),
            false => {
                let told = [checked.stdout, checked.stderr].concat();
                Err(format!("the log has faults: {}", String::from_utf8_lossy(&told)).into())
            }
        }
    }

    /// Returns what mounts our log.
    fn log_mount(&self, node: &Path, directory: &Path) -> Outcome<Command> {
        let How::Log(program, arguments) = &self.how else {
            return Err("no log".into());
        };
        let mut command = Command::new(program);
        command.args(["log", "mount", "--foreground"]);
        // What is measured is to change nothing by itself, unless that is measured.
        if !arguments.iter().any(|argument| argument == "--idle-after") {
            command.arg("--idle-cpu=0");
        }
        command.args(arguments).args([node, directory]);
        Ok(command)
    }
}

impl Contender for System {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> String {
        match &self.how {
            How::Log(..) => {
                let command = self.log_mount(Path::new("DEVICE"), Path::new("DIR"));
                let command = command.map_or(String::new(), |command| crate::run::words(&command));
                match self.launches {
                    0 => command,
                    times => format!(
                        "{command}; {times} launches with --launches; anteros log compact DIR"
                    ),
                }
            }
            How::Kernel(kind, None) => format!("mount -t {} DEVICE DIR", kind.name),
            How::Kernel(kind, Some(options)) => {
                let options = options.to_string_lossy();
                format!("mount -t {} -o {options} DEVICE DIR", kind.name)
            }
            How::Mirror(_, way) => way.command(),
            How::Hollow(_) => "cargo xtask hollow DIR".to_owned(),
        }
    }
}

/// A system that is mounted, until dropped.
pub(in crate::bench) struct Stand {
    // Dropped in this order.
    daemon: Option<Daemon>,
    native: Option<Mounted>,
    directory: PathBuf,
}

impl Stand {
    /// Starts a daemon with nothing of the kernel's below it.
    fn served(command: &mut Command, directory: PathBuf) -> Outcome<Self> {
        Ok(Self {
            daemon: Some(Daemon::start(command, &directory)?),
            native: None,
            directory,
        })
    }

    /// Returns where one writes.
    pub(in crate::bench) fn directory(&self) -> &Path {
        &self.directory
    }

    /// As `sync(1)` would do: which does not reach a daemon, so its names are asked for besides.
    ///
    /// # Errors
    /// When something cannot be written.
    pub(in crate::bench) fn sync(&self) -> Outcome {
        let directory = File::open(&self.directory)?;
        directory.sync_all()?;
        rustix::fs::syncfs(directory)?;
        rustix::fs::sync();
        Ok(())
    }

    /// The most memory that the daemon held; nothing where there is none.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(in crate::bench) fn memory_peak(&self) -> Outcome<u64> {
        self.daemon.as_ref().map_or(Ok(0), Daemon::memory_peak)
    }

    /// Unmounts: all that was written is on the device afterwards.
    ///
    /// # Errors
    /// When a daemon does not end well.
    pub(in crate::bench) fn end(self) -> Outcome {
        let ended = self.daemon.map_or(Ok(()), Daemon::end);
        drop(self.native);
        ended
    }

    /// Ends the daemon without any notice.
    pub(in crate::bench) fn kill(self) {
        if let Some(daemon) = self.daemon {
            daemon.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_arguments_come_behind_and_only_ours_takes_them() {
        let program = Path::new("anteros");
        let ours = System::log(program, "--order data").with(&["--checkpoint", "9"]);
        assert_eq!(ours.name, "anteros log --order data");
        let told = "anteros log mount --foreground --idle-cpu=0 --order data --policy none --checkpoint 9 DEVICE DIR";
        assert_eq!(ours.command(), told);
        let other = System::log(program, "--policy record").command();
        assert_eq!(
            other,
            "anteros log mount --foreground --idle-cpu=0 --policy record DEVICE DIR"
        );
    }
}
