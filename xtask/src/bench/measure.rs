//! Commands that take turns, and what each turn cost.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wait4::Wait4;

use super::report::{Comparison, Side, Unit};
use crate::outcome::Outcome;
use crate::run::words;

/// Holds what one run of a command cost.
pub(super) struct Cost {
    wall: Duration,
    /// Processor time, of the command and of the system on its behalf.
    processor: Duration,
    /// The most memory it held at a time. This program's own, a few MB, is the least that can be seen.
    memory_bytes: u64,
}

/// The costs of two commands that did the same work in turns.
pub(super) struct Turns {
    ours: (String, Vec<Cost>),
    peer: (String, Vec<Cost>),
    peer_name: &'static str,
}

/// Runs two commands in turns, each `runs` times; before each turn `prepare` clears the place.
///
/// # Errors
/// When a command or `prepare` fails.
pub(super) fn take_turns(
    runs: usize,
    mut ours: Command,
    mut peer: Command,
    mut prepare: impl FnMut() -> Outcome,
) -> Outcome<Turns> {
    let mut turns = Turns {
        ours: (words(&ours), Vec::new()),
        peer: (words(&peer), Vec::new()),
        peer_name: "erofs-utils",
    };
    for _ in 0..runs {
        prepare()?;
        turns.ours.1.push(cost(&mut ours)?);
        prepare()?;
        turns.peer.1.push(cost(&mut peer)?);
    }
    Ok(turns)
}

impl Turns {
    /// Tells who the peer is, if not the peer of all images.
    pub(super) fn beside(self, peer_name: &'static str) -> Self {
        Self { peer_name, ..self }
    }

    /// Compares the time from start to end.
    pub(super) fn wall(&self, metric: &str, subject: &str) -> Comparison {
        self.compare(metric, subject, Unit::Seconds, |cost| {
            cost.wall.as_secs_f64()
        })
    }

    /// Compares the time of all processors.
    pub(super) fn processor(&self, metric: &str, subject: &str) -> Comparison {
        self.compare(metric, subject, Unit::Seconds, |cost| {
            cost.processor.as_secs_f64()
        })
    }

    /// Compares the peak of memory.
    pub(super) fn memory(&self, metric: &str, subject: &str) -> Comparison {
        self.compare(metric, subject, Unit::Bytes, |cost| {
            cost.memory_bytes as f64
        })
    }

    /// Compares a figure that each side has once, such as the size of what it made.
    pub(super) fn figure(
        &self,
        metric: &str,
        subject: &str,
        unit: Unit,
        ours: f64,
        peer: f64,
    ) -> Comparison {
        let sides = [(&self.ours.0, ours), (&self.peer.0, peer)];
        comparison(
            self.peer_name,
            metric,
            subject,
            unit,
            sides.map(|(command, figure)| (command, vec![figure])),
        )
    }

    fn compare(
        &self,
        metric: &str,
        subject: &str,
        unit: Unit,
        figure: fn(&Cost) -> f64,
    ) -> Comparison {
        let sides = [&self.ours, &self.peer];
        let figures = |costs: &[Cost]| costs.iter().map(figure).collect();
        comparison(
            self.peer_name,
            metric,
            subject,
            unit,
            sides.map(|(command, costs)| (command, figures(costs))),
        )
    }
}

/// The commands and figures of anteros and of the peer, side by side.
fn comparison(
    peer_name: &str,
    metric: &str,
    subject: &str,
    unit: Unit,
    [ours, peer]: [(&String, Vec<f64>); 2],
) -> Comparison {
    let side = |name: &str, (command, figures): (&String, Vec<f64>)| Side {
        name: name.to_owned(),
        command: command.clone(),
        figures: Ok(figures),
    };
    Comparison {
        metric: metric.to_owned(),
        subject: subject.to_owned(),
        at: None,
        unit,
        yardsticks: &[],
        sides: vec![side("anteros", ours), side(peer_name, peer)],
    }
}

/// Runs a command, silently, and tells what it cost.
fn cost(command: &mut Command) -> Outcome<Cost> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", words(command)))?;
    let end = child.wait4()?;
    let wall = start.elapsed();
    if !end.status.success() {
        return Err(format!("{}: {}", end.status, words(command)).into());
    }
    Ok(Cost {
        wall,
        processor: end.rusage.utime + end.rusage.stime,
        memory_bytes: end.rusage.maxrss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes() {
        // The variable of the shell holds 32 MiB.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "x=$(head -c 33554432 /dev/zero | tr '\\0' x); test ${#x} = 33554432",
        ]);
        let cost = cost(&mut command).unwrap();
        assert!(
            (32 << 20..1 << 30).contains(&cost.memory_bytes),
            "{} bytes",
            cost.memory_bytes
        );
        assert!(cost.processor > Duration::ZERO);
    }

    #[test]
    fn a_command_that_fails_has_no_cost() {
        assert!(cost(&mut Command::new("false")).is_err());
    }

    #[test]
    fn commands_take_turns_and_each_finds_the_place_cleared() {
        let mut cleared = 0;
        let turns = take_turns(3, Command::new("true"), Command::new("true"), || {
            cleared += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(cleared, 6);
        assert_eq!(turns.ours.1.len(), 3);
        assert_eq!(turns.peer.1.len(), 3);
    }
}
