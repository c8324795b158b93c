//! `anteros stat`

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::daemon::metrics::{ATTRIBUTE, OPERATIONS};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Show what a FUSE mount has cost so far: memory, reads, decoding, latencies, faults
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where `anteros mount` has mounted an image
    directory: PathBuf,

    /// As JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// As the text that Prometheus and its node exporter read
    #[arg(long)]
    prometheus: bool,
}

/// The numbers of a daemon by name, and its last faults.
struct Numbers {
    values: BTreeMap<String, f64>,
    faults: Vec<String>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let text = read(&self.directory)?;
        let shown = match (self.prometheus, self.json) {
            (true, _) => output::text(&text),
            (_, true) => output::json(&Numbers::parse(&text).json()),
            _ => output::text(&Numbers::parse(&text).table()),
        };
        shown?;
        Ok(Verdict::Good)
    }
}

fn read(directory: &Path) -> Result<String, Failure> {
    // Longer than the text ever is, and the most that an attribute may have.
    let mut value = vec![0; 64 << 10];
    match rustix::fs::getxattr(directory, ATTRIBUTE, &mut value) {
        Ok(len) => Ok(String::from_utf8_lossy(&value[..len]).into_owned()),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            let message = format!("{}: no FUSE mount of anteros", directory.display());
            let hint = "name the directory itself that `anteros mount --fuse` was given; \
                        what the kernel mounts has no such numbers";
            Err(Failure::new(Kind::System, message).hint(hint))
        }
        Err(errno) => Err(Failure::system(directory, &io::Error::from(errno))),
    }
}

impl Numbers {
    fn parse(text: &str) -> Self {
        let values = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("anteros_")?.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        let faults = text
            .lines()
            .filter_map(|line| line.strip_prefix("# fault "));
        Self {
            values: values.collect(),
            faults: faults.map(str::to_owned).collect(),
        }
    }

    fn get(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or_default()
    }

    fn count(&self, name: &str) -> u64 {
        self.get(&format!("{name}_total")) as u64
    }

    /// The time that so large a part of the answers kept within; `None` if there were none.
    fn percentile(&self, operation: &str, part: f64) -> Option<f64> {
        let of = |what: &str| format!("answer_seconds_{what}{{op=\"{operation}\"");
        let count = self.get(&format!("{}}}", of("count")));
        let classes = self.values.iter().filter_map(|(name, &answers)| {
            let limit = name.strip_prefix(&of("bucket"))?.split('"').nth(1)?;
            Some((limit.parse::<f64>().ok()?, answers))
        });
        let enough = classes.filter(|(_, answers)| *answers >= count * part);
        let limit = enough.map(|(limit, _)| limit).min_by(f64::total_cmp);
        limit.filter(|_| count > 0.0)
    }

    /// Device bytes for each byte served.
    fn amplification(&self) -> f64 {
        self.count("device_bytes") as f64 / self.count("served_bytes").max(1) as f64
    }

    fn json(&self) -> serde_json::Value {
        let plain = self.values.iter().filter(|(name, _)| !name.contains('{'));
        let mut object: serde_json::Map<_, _> = plain
            .map(|(name, value)| (name.clone(), serde_json::json!(value)))
            .collect();
        let latencies = OPERATIONS.iter().filter_map(|(_, name)| {
            let percentile = |part| self.percentile(name, part);
            percentile(0.5)?;
            let count = self.get(&format!("answer_seconds_count{{op=\"{name}\"}}"));
            Some((
                (*name).to_owned(),
                serde_json::json!({
                    "answers": count,
                    "p50_seconds": percentile(0.5),
                    "p90_seconds": percentile(0.9),
                    "p99_seconds": percentile(0.99),
                }),
            ))
        });
        object.insert("latencies".into(), latencies.collect());
        object.insert("amplification".into(), self.amplification().into());
        object.insert("faults".into(), self.faults.clone().into());
        object.into()
    }

    fn table(&self) -> String {
        let bytes = |name: &str| output::bytes(self.get(name) as u64);
        let total = |name: &str| output::bytes(self.count(name));
        let count = |name: &str| output::count(self.count(name));
        let mut lines = vec![
            format!(
                "memory     {} of caches and decoding, at most {} of {}; metadata {}; pinned {}; ceiling {}",
                bytes("cache_bytes"),
                bytes("cache_peak_bytes"),
                bytes("cache_max_bytes"),
                bytes("metadata_bytes"),
                bytes("pinned_bytes"),
                bytes("memory_max_bytes"),
            ),
            format!(
                "process    {}, at most {}, {} workers",
                bytes("resident_bytes"),
                bytes("resident_peak_bytes"),
                self.get("workers"),
            ),
            format!(
                "served     {} in {} reads; {} as they lie on the device, {} reads from pinned data",
                total("served_bytes"),
                count("requests"),
                total("plain_bytes"),
                count("pinned_hits"),
            ),
            format!(
                "device     {} in {} reads: {:.2} bytes for each byte served",
                total("device_bytes"),
                count("device_reads"),
                self.amplification(),
            ),
            format!(
                "cache      {} hits, {} misses, {} readers waited for another's; {} given to the kernel unasked",
                count("hits"),
                count("misses"),
                count("cohort_waits"),
                total("neighbour_bytes"),
            ),
            format!(
                "decoded    {}: {} extents in place, {} direct, {} by buffer, {} rolling, {} by vmap, {} kept; {} pieces of streams",
                total("decoded_bytes"),
                count("decodes_in_place"),
                count("decodes_direct"),
                count("decodes_buffer"),
                count("decodes_rolling"),
                count("decodes_vmap"),
                count("decodes_kept"),
                count("decodes_stream"),
            ),
        ];
        lines.extend(OPERATIONS.iter().filter_map(|(_, name)| {
            let micros = |part| Some(self.percentile(name, part)? * 1e6);
            Some(format!(
                "{name:<10} {} answers: half within {} µs, 90 % within {} µs, 99 % within {} µs",
                self.get(&format!("answer_seconds_count{{op=\"{name}\"}}")),
                micros(0.5)?.round(),
                micros(0.9)?.round(),
                micros(0.99)?.round(),
            ))
        }));
        lines.push(format!("faults     {}", count("faults")));
        lines.extend(
            self.faults
                .iter()
                .map(|fault| format!("           {fault}")),
        );
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_classes() {
        let text = "\
anteros_answer_seconds_bucket{op=\"read\",le=\"0.000001\"} 0
anteros_answer_seconds_bucket{op=\"read\",le=\"0.000002\"} 50
anteros_answer_seconds_bucket{op=\"read\",le=\"0.000004\"} 99
anteros_answer_seconds_bucket{op=\"read\",le=\"+Inf\"} 100
anteros_answer_seconds_count{op=\"read\"} 100
# fault /file: broken";
        let numbers = Numbers::parse(text);
        assert_eq!(numbers.percentile("read", 0.5), Some(2e-6));
        assert_eq!(numbers.percentile("read", 0.51), Some(4e-6));
        assert_eq!(numbers.percentile("read", 1.0), Some(f64::INFINITY));
        assert_eq!(numbers.percentile("lookup", 0.5), None);
        assert_eq!(numbers.faults, ["/file: broken"]);
    }
}
