//! Part `strategies`: sequential reading with each of our daemon's ways to decode (section 5.6 of the EROFS paper).

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::contender::Contender;
use super::format::{EROFS_4K, EROFS_64K};
use super::harness::{Bench, State};
use super::pattern::{self, Pattern};
use super::patterns::throughput;
use crate::bench::report::Unit;
use crate::outcome::Outcome;
use crate::run::output;

/// The first is what the daemon does by itself, which the others are compared with.
const STRATEGIES: [&str; 5] = ["auto", "vmap", "buffer", "rolling", "in-place"];
/// States how much is read.
const BYTES: u64 = 512 << 20;

/// Runs the part on each corpus that is one file.
///
/// # Errors
/// When a corpus cannot be had or read.
pub(super) fn strategies(bench: &mut Bench) -> Outcome {
    let help = output(Command::new(&bench.anteros).args(["mount", "--help"]))?;
    if !help.contains("--strategy") {
        bench.note("strategies not measured: `anteros mount` has no option --strategy".to_owned());
        return Ok(());
    }
    for (name, corpus, file) in bench.single_file_corpora("strategies", &["text1g"])? {
        let genuine = corpus.join(&file);
        let plan = pattern::plan(Pattern::Sequential, genuine.metadata()?.len(), BYTES, 1);
        let genuine = pattern::read(&genuine, &plan)?;
        for (size, format) in [("4K", EROFS_4K), ("64K", EROFS_64K)] {
            let contenders = STRATEGIES.map(|strategy| {
                Contender::anteros(&bench.anteros, &["--strategy", strategy], format.clone())
            });
            bench.prepare(&contenders, &corpus);
            for state in [State::Cold, State::Warm] {
                let subject = format!("{name} {size}");
                eprintln!("bench read: strategies, {subject}, {}", state.name());
                let metrics = [
                    throughput("strategies", state, "sequential, 1 reader"),
                    (
                        format!("strategies, {}: decoded in place", state.name()),
                        Unit::Percent,
                    ),
                ];
                bench.contest(&metrics, &subject, &contenders, |bench, contender| {
                    let mut in_place = 0.0;
                    let read = |directory: &Path| {
                        let reading = pattern::read(&directory.join(&file), &plan)?;
                        in_place = in_place_percent(bench, directory)?;
                        Ok(reading)
                    };
                    let mut figures =
                        bench.throughput(contender, &corpus, state, &genuine, read)?;
                    figures.push(in_place);
                    Ok(figures)
                });
            }
        }
    }
    Ok(())
}

/// Returns how many of the extents that the daemon has decoded it decoded in place.
fn in_place_percent(bench: &Bench, mount: &Path) -> Outcome<f64> {
    let share = in_place_share(&bench.statistics(mount)?);
    Ok(100.0 * share.ok_or("`anteros stat` counts nothing decoded")?)
}

/// The share of `decodes_in_place_total` in all `decodes_*_total`.
fn in_place_share(stat: &Value) -> Option<f64> {
    let is_decode = |name: &str| name.starts_with("decodes_") && name.ends_with("_total");
    let decodes = stat.as_object()?.iter().filter(|(name, _)| is_decode(name));
    let all: f64 = decodes.filter_map(|(_, count)| count.as_f64()).sum();
    let in_place = stat["decodes_in_place_total"].as_f64()?;
    (all > 0.0).then(|| in_place / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_all_ways_to_decode() {
        let stat = serde_json::json!({
            "decodes_in_place_total": 3.0,
            "decodes_rolling_total": 1.0,
            "decoded_bytes_total": 9e9,
        });
        assert_eq!(in_place_share(&stat), Some(0.75));
        assert_eq!(in_place_share(&serde_json::json!({})), None);
    }
}
