//! The numbers of a daemon, as its text tells them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::requests;
use crate::daemon::latencies::OPERATIONS;
use crate::daemon::workers::IO_URING_INFO;
use crate::output;

/// The number whose labels name a log.
pub const LOG_INFO: &str = "log_info";

/// The numbers of a daemon by name, and its last faults.
pub struct Numbers {
    values: BTreeMap<String, f64>,
    faults: Vec<String>,
}

impl Numbers {
    pub fn parse(text: &str) -> Self {
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

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn get(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or_default()
    }

    pub fn count(&self, name: &str) -> u64 {
        self.get(&format!("{name}_total")) as u64
    }

    /// Returns how many workers answer, and where they get their requests.
    pub fn workers(&self) -> String {
        let over = match self.get("over_io_uring") {
            0.0 => "",
            _ => " over io_uring",
        };
        format!("{} workers{over}", self.get("workers"))
    }

    /// Returns whether requests come over io_uring, or why not, in a word; `None` if the daemon does not tell.
    fn io_uring(&self) -> Option<String> {
        let words = self.words(IO_URING_INFO)?;
        Some(requests::by_now(words.get("io_uring")?).to_owned())
    }

    /// Returns why requests do not come over io_uring, if they do not.
    pub fn requests_line(&self) -> Option<String> {
        requests::line(&self.io_uring()?)
    }

    /// Returns what is recorded, if anything is.
    pub fn trace_line(&self) -> Option<String> {
        self.has("trace_bytes").then(|| {
            format!(
                "trace      {} accesses in {}, {} dropped; `anteros trace` tells of them",
                output::count(self.count("trace_accesses")),
                output::bytes(self.get("trace_bytes") as u64),
                output::count(self.count("trace_dropped")),
            )
        })
    }

    /// The labels of the number of this name that has some, with their values.
    pub fn words(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let labels = self.labelled(name).next()?.0;
        Some(labels.into_iter().collect())
    }

    /// The numbers of this name with their labels.
    pub fn labelled(&self, name: &str) -> impl Iterator<Item = (Vec<(String, String)>, f64)> {
        let prefix = format!("{name}{{");
        self.values.iter().filter_map(move |(name, value)| {
            let labels = name.strip_prefix(&prefix)?.strip_suffix('}')?;
            Some((labels_of(labels), *value))
        })
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

    fn answers(&self, operation: &str) -> f64 {
        self.get(&format!("answer_seconds_count{{op=\"{operation}\"}}"))
    }

    /// Everything that both kinds of daemon tell.
    pub fn json(&self) -> Map<String, Value> {
        let plain = self.values.iter().filter(|(name, _)| !name.contains('{'));
        let mut object: Map<_, _> = plain
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let latencies = OPERATIONS.iter().filter_map(|(_, name)| {
            let percentile = |part| self.percentile(name, part);
            percentile(0.5)?;
            let latency = json!({
                "answers": self.answers(name),
                "p50_seconds": percentile(0.5),
                "p90_seconds": percentile(0.9),
                "p99_seconds": percentile(0.99),
            });
            Some(((*name).to_owned(), latency))
        });
        object.extend(self.io_uring().map(|word| ("io_uring".into(), word.into())));
        object.insert("latencies".into(), latencies.collect());
        object.insert("faults".into(), self.faults.clone().into());
        object
    }

    /// Latencies and faults, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = OPERATIONS
            .iter()
            .filter_map(|(_, name)| {
                let micros = |part| Some(self.percentile(name, part)? * 1e6);
                Some(format!(
                    "{name:<10} {} answers: half within {} µs, 90 % within {} µs, 99 % within {} µs",
                    self.answers(name),
                    micros(0.5)?.round(),
                    micros(0.9)?.round(),
                    micros(0.99)?.round(),
                ))
            })
            .collect();
        lines.push(format!("faults     {}", self.count("faults")));
        let faults = self.faults.iter();
        lines.extend(faults.map(|fault| format!("           {fault}")));
        lines
    }
}

/// Takes labels apart, in which a backslash stands before quotes and backslashes, and before an n for a new line.
fn labels_of(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, value)) = rest.split_once("=\"") {
        let mut words = String::new();
        let mut chars = value.chars();
        while let Some(char) = chars.next() {
            match char {
                '"' => break,
                '\\' => words.extend(
                    chars
                        .next()
                        .map(|char| if char == 'n' { '\n' } else { char }),
                ),
                char => words.push(char),
            }
        }
        labels.push((name.trim_start_matches(',').to_owned(), words));
        rest = chars.as_str();
    }
    labels
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

    #[test]
    fn words_are_told_as_they_were_written() {
        let text = "anteros_info{way=\"a b\",why=\"\\\"x\\\\y\\\"\\n, z=\\\"\"} 1\n\
                    anteros_info_total{reason=\"r\"} 7\nanteros_plain 3\n";
        let numbers = Numbers::parse(text);
        let words = numbers.words("info").unwrap();
        assert_eq!(words["way"], "a b");
        assert_eq!(words["why"], "\"x\\y\"\n, z=\"");
        assert_eq!(words.len(), 2);
        assert!(numbers.words("plain").is_none());
        let labelled: Vec<_> = numbers.labelled("info_total").collect();
        assert_eq!(labelled, [(vec![("reason".into(), "r".into())], 7.0)]);
    }
}
