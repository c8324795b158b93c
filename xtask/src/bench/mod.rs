//! `cargo xtask bench`: anteros beside its peers, in one run on one machine.
//!
//! A benchmark yields comparisons. In a comparison two commands take turns, so that whatever else the machine does
//! falls on both; the figure is the median of the turns, told with the least and the greatest. Comparisons go to the
//! terminal as a table, and with the machine, the versions and every command to `target/bench/NAME.json` and to a page
//! that needs nothing else, `target/bench/NAME.html`.

mod html;
mod image;
mod machine;
mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Outcome;
use crate::run::output;
use machine::Machine;

/// What a figure counts. Less is better for each of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Seconds,
}

/// The figures of one side of a comparison, one per turn.
struct Side {
    /// The command as one would type it.
    command: String,
    figures: Vec<f64>,
}

/// The same work done by anteros and by a peer.
struct Comparison {
    /// What is compared, such as `build: wall time`; comparisons of one metric share a plot.
    metric: &'static str,
    /// On what, such as `minbase -zlz4`.
    subject: String,
    unit: Unit,
    ours: Side,
    peer: Side,
}

/// A benchmark that ran.
struct Report {
    name: String,
    machine: Machine,
    /// Programs and their versions.
    versions: Vec<String>,
    comparisons: Vec<Comparison>,
}

/// What the command line asks for.
struct Options {
    corpora: Vec<String>,
    runs: usize,
}

/// Runs a benchmark and writes its report.
///
/// # Errors
/// When a corpus or a peer cannot be had, a command fails, or the report cannot be written.
pub(crate) fn bench(name: &str, options: &[&str]) -> Outcome {
    let options = Options::of(options)?;
    let (versions, comparisons) = match name {
        "image" => image::image(&options)?,
        _ => return Err(format!("no benchmark {name}; there is: image").into()),
    };
    let report = Report {
        name: name.to_owned(),
        machine: Machine::read(),
        versions,
        comparisons,
    };
    report.print();
    report.write(Path::new("target/bench"))
}

/// Makes a corpus, unless it is there, and prints where it is.
///
/// # Errors
/// When it is not there and cannot be made.
pub(crate) fn print_corpus(name: &str) -> Outcome {
    println!("{}", corpus(name)?.display());
    Ok(())
}

/// Makes a corpus, unless it is there, and tells where it is.
fn corpus(name: &str) -> Outcome<PathBuf> {
    let path = output(
        Command::new("scripts/corpus.sh")
            .arg(name)
            .stderr(Stdio::inherit()),
    )?;
    Ok(PathBuf::from(path.trim_end()))
}

impl Options {
    fn of(mut words: &[&str]) -> Outcome<Self> {
        let mut options = Self {
            corpora: Vec::new(),
            runs: 3,
        };
        loop {
            words = match words {
                [] => break,
                ["--corpus", name, rest @ ..] => {
                    options.corpora.push((*name).to_owned());
                    rest
                }
                ["--runs", count, rest @ ..] => {
                    options.runs = count.parse::<usize>()?.max(1);
                    rest
                }
                [word, ..] => return Err(format!("bench: unknown option {word}").into()),
            }
        }
        if options.corpora.is_empty() {
            options.corpora.push("minbase".to_owned());
        }
        Ok(options)
    }
}

impl Side {
    /// The figure in the middle; the mean of the two in the middle when their number is even.
    fn median(&self) -> f64 {
        let mut sorted = self.figures.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        }
    }

    fn least(&self) -> f64 {
        self.figures.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn greatest(&self) -> f64 {
        self.figures.iter().copied().fold(0.0, f64::max)
    }

    fn json(&self) -> Value {
        json!({
            "command": self.command,
            "figures": self.figures,
            "median": self.median(),
            "min": self.least(),
            "max": self.greatest(),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }

    /// A figure in words: `64.2 MB`, `2.81 s`.
    fn show(self, figure: f64) -> String {
        match self {
            Self::Bytes => format!("{:.1} MB", figure / 1e6),
            Self::Seconds if figure < 1.0 => format!("{:.1} ms", figure * 1e3),
            Self::Seconds => format!("{figure:.2} s"),
        }
    }
}

impl Comparison {
    /// Our median in units of the peer's: under one is better.
    fn ratio(&self) -> f64 {
        self.ours.median() / self.peer.median()
    }

    fn json(&self) -> Value {
        json!({
            "metric": self.metric,
            "subject": self.subject,
            "unit": self.unit.name(),
            "ours": self.ours.json(),
            "peer": self.peer.json(),
            "ratio": self.ratio(),
        })
    }
}

impl Report {
    /// The comparisons of each metric, metrics in the order of their first comparison.
    fn by_metric(&self) -> Vec<(&'static str, Vec<&Comparison>)> {
        let mut groups: Vec<(&'static str, Vec<&Comparison>)> = Vec::new();
        for comparison in &self.comparisons {
            match groups
                .iter_mut()
                .find(|(metric, _)| *metric == comparison.metric)
            {
                Some((_, group)) => group.push(comparison),
                None => groups.push((comparison.metric, vec![comparison])),
            }
        }
        groups
    }

    fn print(&self) {
        println!("{}\n{}", self.machine, self.versions.join("\n"));
        for (metric, group) in self.by_metric() {
            println!(
                "\n{metric:<52} {:>12} {:>12} {:>8}",
                "anteros", "peer", "ratio"
            );
            for comparison in group {
                let show = |side: &Side| comparison.unit.show(side.median());
                let (ours, peer) = (show(&comparison.ours), show(&comparison.peer));
                println!(
                    "  {:<50} {ours:>12} {peer:>12} {:>8.3}",
                    comparison.subject,
                    comparison.ratio()
                );
            }
        }
    }

    fn write(&self, directory: &Path) -> Outcome {
        fs::create_dir_all(directory)?;
        let json = directory.join(&self.name).with_extension("json");
        let html = directory.join(&self.name).with_extension("html");
        fs::write(&json, serde_json::to_string_pretty(&self.json())?)?;
        fs::write(&html, html::page(self))?;
        println!("\nwritten: {} and {}", json.display(), html.display());
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "benchmark": self.name,
            "machine": self.machine.json(),
            "versions": self.versions,
            "comparisons": self.comparisons.iter().map(Comparison::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(figures: &[f64]) -> Side {
        Side {
            command: "true".to_owned(),
            figures: figures.to_vec(),
        }
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(side(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(side(&[4.0, 1.0, 3.0, 2.0]).median(), 2.5);
    }

    #[test]
    fn figures_are_shown_with_their_unit() {
        assert_eq!(Unit::Bytes.show(64_212_992.0), "64.2 MB");
        assert_eq!(Unit::Seconds.show(0.0471), "47.1 ms");
        assert_eq!(Unit::Seconds.show(2.809), "2.81 s");
    }

    #[test]
    fn the_page_escapes_what_it_quotes_and_names_every_subject() {
        let comparison = Comparison {
            metric: "image size",
            subject: "tree <small> & fine".to_owned(),
            unit: Unit::Bytes,
            ours: side(&[1.0]),
            peer: side(&[2.0]),
        };
        let report = Report {
            name: "image".to_owned(),
            machine: Machine::read(),
            versions: vec!["peer 1.0".to_owned()],
            comparisons: vec![comparison],
        };
        let page = html::page(&report);
        assert!(page.contains("tree &lt;small&gt; &amp; fine"));
        assert!(!page.contains("<small>"));
        assert!(page.contains("0.500"));
    }
}
