//! `bench image`: what images cost to build, to extract and to check, and how large they are, beside erofs-utils.
//!
//! Images and extracted trees lie in memory where that can be had: it is the programs that are compared, not the disk,
//! and anteros alone waits until its image is on it. Both builders get the same options. Both readers get the same
//! image, the peer's. `fsck.erofs` decodes the data only when told to extract, so that is what `anteros check`, which
//! always does, is compared with.

use std::path::Path;

use super::corpora::corpus;
use super::findings::Findings;
use super::images::Bench;
use super::names::names;
use super::options::Options;
use super::part;
use super::report::Comparison;
use crate::outcome::Outcome;

/// The options of the images.
const CONFIGURATIONS: [&[&str]; 6] = [
    &["-zlz4", "-C4096"],
    &["-zlz4", "-C16384"],
    &["-zlz4", "-C65536"],
    &["-zlz4hc,9", "-C4096"],
    &["-zlz4hc,9", "-C16384"],
    &["-zlz4hc,9", "-C65536"],
];

/// A part of the benchmark.
#[derive(Clone, Copy)]
enum Part {
    Trees,
    Names,
}

const PARTS: [(&str, Part); 2] = [("trees", Part::Trees), ("names", Part::Names)];

/// Runs the benchmark.
///
/// # Errors
/// When a program or a corpus cannot be had, or a command fails.
pub(super) fn image(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    let bench = Bench::new(options)?;
    let mut comparisons = Vec::new();
    for (_, part) in parts {
        comparisons.extend(match part {
            Part::Trees => bench.trees(options)?,
            Part::Names => names(&bench.anteros, &bench.scratch, bench.runs)?,
        });
    }
    bench.finish(comparisons)
}

impl Bench {
    /// Everything about all trees.
    fn trees(&self, options: &Options) -> Outcome<Vec<Comparison>> {
        let mut comparisons = Vec::new();
        for name in options.corpora_or(&["minbase"]) {
            let corpus = corpus(&name)?;
            for configuration in CONFIGURATIONS {
                let subject = format!("{name} {}", configuration.join(" "));
                eprintln!("bench image: {subject}");
                comparisons.extend(self.compare(&corpus, configuration, &subject)?);
            }
        }
        Ok(comparisons)
    }

    /// Everything about one corpus with one configuration.
    fn compare(
        &self,
        corpus: &Path,
        configuration: &[&str],
        subject: &str,
    ) -> Outcome<Vec<Comparison>> {
        let ours = self.scratch.join("ours.erofs");
        let peer = self.scratch.join("peer.erofs");
        let mut comparisons = self.build(corpus, configuration, subject, &ours, &peer)?;
        comparisons.extend(self.read(subject, &peer)?);
        Ok(comparisons)
    }
}
