//! Contenders that take turns, so that whatever else the machine does falls on all.

use super::report::{Comparison, Side, Unit, Yardstick};
use crate::outcome::Outcome;

/// Describes who takes part in a contest.
pub(super) trait Contender {
    fn name(&self) -> &str;
    /// The command as one would type it.
    fn command(&self) -> String;
}

/// Something that contenders do in turns; a turn yields one figure per metric.
pub(super) struct Contest<'a> {
    pub(super) metrics: &'a [(String, Unit)],
    pub(super) subject: &'a str,
    /// Tells where the subject lies on the scale of the metrics, if they have one.
    pub(super) at: Option<f64>,
    pub(super) yardsticks: &'static [Yardstick],
    /// Tells how many turns each has.
    pub(super) runs: usize,
}

impl Contest<'_> {
    /// Lets all take their turns: one comparison per metric.
    ///
    /// Each round another contender begins, so that nobody is always first or always comes after the same one. A
    /// contender that failed has no further turn.
    pub(super) fn hold<C: Contender>(
        &self,
        contenders: &[C],
        mut turn: impl FnMut(&C) -> Outcome<Vec<f64>>,
    ) -> Vec<Comparison> {
        let mut results: Vec<Result<Vec<Vec<f64>>, String>> =
            vec![Ok(Vec::new()); contenders.len()];
        for round in 0..self.runs {
            for index in order(contenders.len(), round, self.runs) {
                let (contender, result) = (&contenders[index], &mut results[index]);
                let Ok(turns) = result else { continue };
                match turn(contender) {
                    Ok(figures) => turns.push(figures),
                    Err(error) => {
                        let (subject, name) = (self.subject, contender.name());
                        eprintln!("bench: {subject}: {name}: {error}");
                        *result = Err(error.to_string());
                    }
                }
            }
        }
        let comparison = |(index, (metric, unit)): (usize, &(String, Unit))| Comparison {
            metric: metric.clone(),
            subject: self.subject.to_owned(),
            at: self.at,
            unit: *unit,
            yardsticks: self.yardsticks,
            sides: sides(contenders, &results, index),
        };
        self.metrics.iter().enumerate().map(comparison).collect()
    }
}

/// The order of a round: those who begin the rounds are spread over all.
fn order(count: usize, round: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let first = round * count / rounds.max(1);
    (first..count).chain(0..first)
}

/// Everybody's figures of one metric.
fn sides<C: Contender>(
    contenders: &[C],
    results: &[Result<Vec<Vec<f64>>, String>],
    metric: usize,
) -> Vec<Side> {
    let of_metric = |turns: &Vec<Vec<f64>>| turns.iter().map(|figures| figures[metric]).collect();
    let side = |(contender, result): (&C, &Result<Vec<Vec<f64>>, String>)| Side {
        name: contender.name().to_owned(),
        command: contender.command(),
        figures: result.as_ref().map(of_metric).map_err(Clone::clone),
    };
    contenders.iter().zip(results).map(side).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Contender for &str {
        fn name(&self) -> &str {
            self
        }

        fn command(&self) -> String {
            (*self).to_owned()
        }
    }

    #[test]
    fn everybody_has_a_turn_in_each_round_and_another_one_begins() {
        let rounds: Vec<Vec<usize>> = (0..2).map(|round| order(4, round, 2).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2, 3], [2, 3, 0, 1]]);
    }

    #[test]
    fn who_failed_has_no_further_turn_and_no_figures() {
        let contest = Contest {
            metrics: &[
                ("a".to_owned(), Unit::Seconds),
                ("b".to_owned(), Unit::Bytes),
            ],
            subject: "all",
            at: None,
            yardsticks: &[],
            runs: 3,
        };
        let mut turns = Vec::new();
        let comparisons = contest.hold(&["good", "bad"], |contender| {
            turns.push(*contender);
            match *contender {
                "good" => Ok(vec![1.0, 2.0]),
                _ => Err("broken".into()),
            }
        });
        assert_eq!(turns.iter().filter(|name| **name == "bad").count(), 1);
        assert_eq!(comparisons[1].sides[0].figures, Ok(vec![2.0; 3]));
        assert_eq!(comparisons[0].sides[1].figures, Err("broken".to_owned()));
    }
}
