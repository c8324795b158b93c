//! Reports of benchmarks: figures beside figures, as a table, as JSON and as a page.

use serde_json::{Value, json};

use super::goal::{self, Goal};
use super::machine::Machine;

/// Tells what a figure counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Seconds,
    BytesPerSecond,
    /// Pieces of work done in a second.
    PerSecond,
    Count,
    Percent,
    /// A multiple, of which less is better.
    Times,
}

/// The figures of one side of a comparison, one per turn.
pub(super) struct Side {
    /// Names who it is, such as `erofsfuse`.
    pub(super) name: String,
    /// The command as one would type it.
    pub(super) command: String,
    /// One per turn, at least one; or why there are none.
    pub(super) figures: Result<Vec<f64>, String>,
}

/// The figures of a side in short.
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// A side that others are measured by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Yardstick {
    /// Holds what the column is called.
    pub(super) label: &'static str,
    /// The name of the side.
    pub(super) side: &'static str,
}

/// The same work done by anteros, which comes first, and by its peers.
pub(super) struct Comparison {
    /// Holds what is compared, such as `build: wall time`; comparisons of one metric share a plot.
    pub(super) metric: String,
    /// On what, such as `minbase -zlz4`.
    pub(super) subject: String,
    /// Tells where the subject lies on a scale that the whole metric shares; such a metric is drawn as curves.
    pub(super) at: Option<f64>,
    pub(super) unit: Unit,
    /// The sides that all are measured by; where there are none, anteros is by each of its peers.
    pub(super) yardsticks: &'static [Yardstick],
    pub(super) sides: Vec<Side>,
}

/// A benchmark that ran.
pub(super) struct Report {
    pub(super) name: String,
    pub(super) machine: Machine,
    /// Programs and their versions.
    pub(super) versions: Vec<String>,
    /// Holds what one must know to read the figures: above all what is missing.
    pub(super) notes: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) goals: Vec<Goal>,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::BytesPerSecond => "bytes per second",
            Self::PerSecond => "per second",
            Self::Count => "count",
            Self::Percent => "percent",
            Self::Times => "times",
        }
    }

    /// Returns how to read a figure and a ratio: the ratio is our figure in units of the peer's.
    pub(super) fn direction(self) -> &'static str {
        match self {
            Self::Bytes | Self::Seconds => "less is better, a ratio below 1 favours anteros",
            Self::BytesPerSecond | Self::PerSecond => {
                "more is better, a ratio above 1 favours anteros"
            }
            Self::Count | Self::Times => "less is better, a ratio below 1 favours anteros",
            Self::Percent => "a share, neither better nor worse by itself",
        }
    }

    /// A figure in words: `64.2 MB`, `2.81 s`.
    pub(super) fn show(self, figure: f64) -> String {
        match self {
            Self::Bytes => format!("{:.1} MB", figure / 1e6),
            Self::BytesPerSecond => format!("{:.1} MB/s", figure / 1e6),
            Self::PerSecond => format!("{figure:.0} /s"),
            Self::Count => format!("{figure:.0}"),
            Self::Percent => format!("{figure:.1} %"),
            Self::Times => format!("{figure:.2}"),
            Self::Seconds if figure < 1e-3 => format!("{:.0} µs", figure * 1e6),
            Self::Seconds if figure < 1.0 => format!("{:.1} ms", figure * 1e3),
            Self::Seconds => format!("{figure:.2} s"),
        }
    }
}

impl Side {
    /// The figures in short, if there are any.
    pub(super) fn spread(&self) -> Option<Spread> {
        let mut sorted = self.figures.as_ref().ok()?.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: middle(&sorted),
            least: *sorted.first()?,
            greatest: *sorted.last()?,
        })
    }

    /// The figure in the middle, if there are any.
    pub(super) fn median(&self) -> Option<f64> {
        self.spread().map(|spread| spread.median)
    }
}

/// The figure in the middle of a sorted list; the mean of the two in the middle when their number is even.
fn middle(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

impl Comparison {
    /// Our median in units of this side's; nothing for our own side, and when either has no figure.
    pub(super) fn ratio(&self, side: &Side) -> Option<f64> {
        let ours = self.sides.first()?;
        if std::ptr::eq(ours, side) {
            return None;
        }
        Some(ours.median()? / side.median()?)
    }

    /// The side of a name.
    pub(super) fn side(&self, name: &str) -> Option<&Side> {
        self.sides.iter().find(|side| side.name == name)
    }

    /// A side's median in units of another side's: of times how fast it is, so that more is better, as of rates.
    pub(super) fn share(&self, side: &Side, of: &str) -> Option<f64> {
        let (figure, whole) = (side.median()?, self.side(of)?.median()?);
        let share = match self.unit {
            Unit::Seconds => whole / figure,
            _ => figure / whole,
        };
        share.is_finite().then_some(share)
    }

    /// Returns what the columns of ratios are called.
    pub(super) fn columns(&self) -> Vec<&'static str> {
        match self.yardsticks {
            [] => vec!["ratio"],
            _ => self.present().map(|one| one.label).collect(),
        }
    }

    /// The ratios of a side, one for each column.
    pub(super) fn ratios(&self, side: &Side) -> Vec<Option<f64>> {
        match self.yardsticks {
            [] => vec![self.ratio(side)],
            _ => {
                let share = |one: &Yardstick| self.share(side, one.side);
                self.present().map(share).collect()
            }
        }
    }

    /// The yardsticks that took part.
    fn present(&self) -> impl Iterator<Item = &'static Yardstick> {
        let takes_part = |one: &&Yardstick| self.side(one.side).is_some();
        self.yardsticks.iter().filter(takes_part)
    }

    fn json(&self) -> Value {
        let sides = self.sides.iter().map(|side| self.side_json(side));
        json!({
            "metric": self.metric,
            "subject": self.subject,
            "at": self.at,
            "unit": self.unit.name(),
            "direction": self.unit.direction(),
            "sides": sides.collect::<Vec<_>>(),
        })
    }

    fn side_json(&self, side: &Side) -> Value {
        let spread = side.spread();
        json!({
            "name": side.name,
            "command": side.command,
            "figures": side.figures.as_ref().ok(),
            "failure": side.figures.as_ref().err(),
            "median": spread.as_ref().map(|spread| spread.median),
            "min": spread.as_ref().map(|spread| spread.least),
            "max": spread.as_ref().map(|spread| spread.greatest),
            "ratios": self.ratios_json(side),
        })
    }

    fn ratios_json(&self, side: &Side) -> Value {
        let ratios = self.ratios(side).into_iter().map(Value::from);
        let columns = self.columns().into_iter().map(str::to_owned);
        Value::Object(columns.zip(ratios).collect())
    }

    fn print(&self) {
        for (index, side) in self.sides.iter().enumerate() {
            let subject = if index == 0 { &self.subject } else { "" };
            let name = &side.name;
            let told = match (&side.figures, side.spread()) {
                (Err(failure), _) => format!("failed: {failure}"),
                (Ok(_), spread) => self.row(side, spread.as_ref()),
            };
            println!("  {subject:<34} {name:<36} {told}");
        }
    }

    fn row(&self, side: &Side, spread: Option<&Spread>) -> String {
        let Some(spread) = spread else {
            return String::new();
        };
        let [median, least, greatest] =
            [spread.median, spread.least, spread.greatest].map(|figure| self.unit.show(figure));
        let ratios = self.ratios(side).into_iter().map(|ratio| {
            let ratio = ratio.map(|ratio| format!("{ratio:.3}"));
            format!(" {:>11}", ratio.unwrap_or_default())
        });
        format!(
            "{median:>12} {least:>12} {greatest:>12}{}",
            ratios.collect::<String>()
        )
    }
}

impl Report {
    /// The comparisons of each metric, metrics in the order of their first comparison.
    pub(super) fn by_metric(&self) -> Vec<(&str, Vec<&Comparison>)> {
        let mut groups: Vec<(&str, Vec<&Comparison>)> = Vec::new();
        for comparison in &self.comparisons {
            match groups
                .iter_mut()
                .find(|(metric, _)| *metric == comparison.metric)
            {
                Some((_, group)) => group.push(comparison),
                None => groups.push((&comparison.metric, vec![comparison])),
            }
        }
        groups
    }

    /// Prints all of it as a table.
    pub(super) fn print(&self) {
        println!("{}\n{}", self.machine, self.versions.join("\n"));
        for note in &self.notes {
            println!("note: {note}");
        }
        for (metric, group) in self.by_metric() {
            let direction = group[0].unit.direction();
            println!("\n{metric} ({direction})");
            let columns = group[0].columns().into_iter();
            println!(
                "  {:<71} {:>12} {:>12} {:>12}{}",
                "",
                "median",
                "least",
                "greatest",
                columns
                    .map(|column| format!(" {column:>11}"))
                    .collect::<String>()
            );
            group.iter().for_each(|comparison| comparison.print());
        }
        goal::print(&self.goals);
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "benchmark": self.name,
            "machine": self.machine.json(),
            "versions": self.versions,
            "notes": self.notes,
            "comparisons": self.comparisons.iter().map(Comparison::json).collect::<Vec<_>>(),
            "goals": self.goals.iter().map(Goal::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::html;

    fn side(name: &str, figures: &[f64]) -> Side {
        Side {
            name: name.to_owned(),
            command: "true".to_owned(),
            figures: Ok(figures.to_vec()),
        }
    }

    fn comparison(at: Option<f64>, sides: Vec<Side>) -> Comparison {
        Comparison {
            metric: "image size".to_owned(),
            subject: "tree <small> & fine".to_owned(),
            at,
            unit: Unit::Bytes,
            yardsticks: &[],
            sides,
        }
    }

    fn report(comparisons: Vec<Comparison>) -> Report {
        Report {
            name: "image".to_owned(),
            machine: Machine::read(),
            versions: vec!["peer 1.0".to_owned()],
            notes: vec!["dwarfs is missing".to_owned()],
            comparisons,
            goals: Vec::new(),
        }
    }

    fn failed(name: &str) -> Side {
        Side {
            figures: Err("no <such> thing".to_owned()),
            ..side(name, &[])
        }
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(side("a", &[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(side("a", &[4.0, 1.0, 3.0, 2.0]).median(), Some(2.5));
    }

    #[test]
    fn figures_are_shown_with_their_unit() {
        assert_eq!(Unit::Bytes.show(64_212_992.0), "64.2 MB");
        assert_eq!(Unit::BytesPerSecond.show(512.04e6), "512.0 MB/s");
        assert_eq!(Unit::Seconds.show(0.000_247), "247 µs");
        assert_eq!(Unit::Seconds.show(0.0471), "47.1 ms");
        assert_eq!(Unit::Seconds.show(2.809), "2.81 s");
    }

    #[test]
    fn a_ratio_is_ours_in_units_of_the_peers() {
        let sides = vec![side("anteros", &[1.0]), side("peer", &[4.0]), failed("odd")];
        let comparison = comparison(None, sides);
        let ratios = comparison.sides.iter().map(|side| comparison.ratio(side));
        assert_eq!(ratios.collect::<Vec<_>>(), [None, Some(0.25), None]);
    }

    #[test]
    fn a_share_is_of_the_yardstick_and_more_of_it_is_faster() {
        let sides = vec![side("anteros", &[2.0]), side("native", &[1.0])];
        let mut comparison = Comparison {
            unit: Unit::Seconds,
            yardsticks: &[Yardstick {
                label: "of native",
                side: "native",
            }],
            ..comparison(None, sides)
        };
        let ours = |comparison: &Comparison| comparison.ratios(&comparison.sides[0]);
        assert_eq!(ours(&comparison), [Some(0.5)]);
        comparison.unit = Unit::PerSecond;
        assert_eq!(ours(&comparison), [Some(2.0)]);
        assert_eq!(comparison.json()["sides"][1]["ratios"]["of native"], 1.0);
    }

    #[test]
    fn the_page_escapes_what_it_quotes_and_names_every_side() {
        let sides = vec![
            side("anteros", &[1.0]),
            side("peer", &[2.0]),
            failed("third"),
        ];
        let page = html::page(&report(vec![comparison(None, sides)]));
        assert!(page.contains("tree &lt;small&gt; &amp; fine"));
        assert!(!page.contains("<small>"));
        assert!(page.contains("0.500"));
        assert!(page.contains("no &lt;such&gt; thing"));
        assert!(page.contains("dwarfs is missing"));
    }

    #[test]
    fn a_metric_on_a_scale_is_drawn_as_curves() {
        let point = |at: f64| {
            let sides = vec![side("anteros", &[1.0 + at]), side("peer", &[2.0])];
            comparison(Some(at), sides)
        };
        let page = html::page(&report(vec![point(0.0), point(50.0)]));
        assert_eq!(page.matches("<polyline").count(), 2);
    }

    #[test]
    fn a_failure_is_told_in_json() {
        let sides = vec![side("anteros", &[1.0]), failed("peer")];
        let json = comparison(None, sides).json();
        assert_eq!(json["sides"][1]["failure"], "no <such> thing");
        assert_eq!(json["sides"][1]["median"], Value::Null);
    }
}
