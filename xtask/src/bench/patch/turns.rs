//! Time, and the bytes that are read, of a patch that is made, of one that is applied, and of a rebuild.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::case::Case;
use crate::bench::contest::{Contender, Contest};
use crate::bench::report::{Comparison, Unit, Yardstick};
use crate::outcome::Outcome;
use crate::run::words;

const REBUILD: &str = "mkfs, rebuild";
const APPLY: &str = "patch --apply";

const BY_REBUILD: &[Yardstick] = &[Yardstick {
    label: "of a rebuild",
    side: REBUILD,
}];

const TIME: &str = "update: wall time";
const READ: &str = "update: bytes read";

/// As many times as fast as a rebuild a patch is to be applied.
pub(super) const APPLY_RATIO_MIN: f64 = 20.0;

/// A way to the new image.
struct Way {
    name: &'static str,
    command: String,
    make: Box<dyn Fn() -> Command>,
    /// A copy of the old image that is changed.
    changes: Option<PathBuf>,
}

impl Contender for Way {
    fn name(&self) -> &str {
        self.name
    }

    fn command(&self) -> String {
        self.command.clone()
    }
}

impl Case<'_> {
    /// Lets all ways take turns. What bytes are read does not count those that come by mapping.
    pub(super) fn times(&self) -> Vec<Comparison> {
        let metrics = [
            (TIME.to_owned(), Unit::Seconds),
            (READ.to_owned(), Unit::Bytes),
        ];
        let contest = Contest {
            metrics: &metrics,
            subject: &self.subject,
            at: None,
            yardsticks: BY_REBUILD,
            runs: self.bench.runs(),
        };
        contest.hold(&self.ways(), |way| {
            if let Some(copy) = &way.changes {
                fs::copy(&self.old, copy)?;
            }
            let (seconds, read) = cost(&mut (way.make)())?;
            Ok(vec![seconds, read])
        })
    }

    fn ways(&self) -> Vec<Way> {
        let again = self.bench.path("again.erofs");
        let mut patch = self.bench.anteros("patch");
        patch.arg("--quiet").arg(&again);
        let [mut from, mut apply] = [(); 2].map(|()| again_of(&patch));
        from.arg("--from").arg(&self.trees.new);
        apply.arg("--apply").arg(&self.exported);
        let rebuild = self.mkfs(&self.bench.path("rebuilt-again.erofs"), &self.trees.new);
        vec![
            way("patch --from", from, Some(&again)),
            way(APPLY, apply, Some(&again)),
            way(REBUILD, rebuild, None),
        ]
    }
}

fn way(name: &'static str, command: Command, changes: Option<&Path>) -> Way {
    Way {
        name,
        command: words(&command),
        changes: changes.map(Path::to_owned),
        make: Box::new(move || again_of(&command)),
    }
}

/// Makes a copy of a command's program and arguments.
fn again_of(command: &Command) -> Command {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    again
}

/// The time of a rebuild in units of that of a patch that is applied, if a comparison is of these.
pub(super) fn apply_ratio(times: &Comparison) -> Option<(String, f64)> {
    let median = |name: &str| times.sides.iter().find(|side| side.name == name)?.median();
    let ratio = median(REBUILD)? / median(APPLY)?;
    (times.metric == TIME).then(|| (times.subject.clone(), ratio))
}

/// Runs a command; answers the seconds it took and the bytes that it asked to read.
fn cost(command: &mut Command) -> Outcome<(f64, f64)> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let pid = Pid::from_child(&child);
    // What it read is told until it is waited for.
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let seconds = start.elapsed().as_secs_f64();
    let io = fs::read_to_string(format!("/proc/{}/io", child.id()))?;
    let status = child.wait()?;
    match status.success() {
        true => Ok((seconds, read_bytes(&io)?)),
        false => Err(format!("{status}: {}", words(command)).into()),
    }
}

/// The bytes that calls to read have answered.
fn read_bytes(io: &str) -> Outcome<f64> {
    let told = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(told
        .ok_or("the kernel does not tell what is read")?
        .parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_reads_is_told() {
        let mut head = Command::new("head");
        head.args(["-c", "3000000", "/dev/zero"]);
        let (seconds, read) = cost(&mut head).unwrap();
        assert!(seconds > 0.0 && (3e6..4e6).contains(&read), "{read} bytes");
        assert!(cost(&mut Command::new("false")).is_err());
    }
}
