//! The numbers of a daemon that mirrors a directory.

use serde_json::{Map, Value};

use super::Numbers;
use crate::output;

/// The number whose labels say who moves the content of files, and why.
pub const INFO: &str = "mirror_info";
/// With this way, reads and writes go past the daemon.
const UNSEEN: &str = "kernel";

/// As JSON.
pub fn json(numbers: &Numbers) -> Value {
    let mut object = numbers.json();
    let words = numbers.words(INFO).unwrap_or_default();
    let is_seen = words.get("way").is_none_or(|way| way != UNSEEN);
    for (name, word) in words {
        object.insert(name, word.into());
    }
    object.insert("sees_reads_and_writes".into(), is_seen.into());
    let flushes: Map<_, _> = flushes(numbers)
        .map(|(reason, count)| (reason, count.into()))
        .collect();
    if !flushes.is_empty() {
        object.insert("buffer_flushes".into(), flushes.into());
    }
    object.into()
}

fn flushes(numbers: &Numbers) -> impl Iterator<Item = (String, u64)> {
    numbers
        .labelled("buffer_flushes_total")
        .filter_map(|(labels, count)| {
            let reason = labels.into_iter().find(|(name, _)| name == "reason")?;
            Some((reason.1, count as u64))
        })
}

/// As text for people.
pub fn table(numbers: &Numbers) -> String {
    let bytes = |name: &str| output::bytes(numbers.get(name) as u64);
    let gauge = |name: &str| output::count(numbers.get(name) as u64);
    let words = numbers.words(INFO).unwrap_or_default();
    let word = |name: &str| words.get(name).map_or("", |word| word);
    let way = word("way");
    let mut lines = vec![format!("content    {way}: {}", word("why"))];
    if way == UNSEEN {
        let text = "           what it reads and writes by itself does not come by here, and is in no number below";
        lines.push(text.into());
    }
    lines.extend([
        format!(
            "terms      at most {} at once, names believed for {} s, {}",
            bytes("unit_bytes"),
            numbers.get("timeout_seconds"),
            numbers.workers(),
        ),
        format!(
            "process    {}, at most {}",
            bytes("resident_bytes"),
            bytes("resident_peak_bytes"),
        ),
        format!(
            "held       {} known inodes, {} open files, {} open directories",
            gauge("known_inodes"),
            gauge("open_files"),
            gauge("open_directories"),
        ),
    ]);
    lines.extend(numbers.requests_line());
    if numbers.has("buffer_bytes") {
        lines.extend(buffer_lines(numbers));
    }
    lines.extend(numbers.trace_line());
    lines.extend(numbers.lines());
    lines.join("\n") + "\n"
}

fn buffer_lines(numbers: &Numbers) -> [String; 5] {
    let bytes = |name: &str| output::bytes(numbers.get(name) as u64);
    let total = |name: &str| output::bytes(numbers.count(name));
    let count = |name: &str| output::count(numbers.count(name));
    let flushes: Vec<_> = flushes(numbers)
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{reason} {}", output::count(count)))
        .collect();
    [
        format!(
            "buffer     {} of memory, at most {} of {}; {} gathered for a write, kept for {} ms",
            bytes("buffer_bytes"),
            bytes("buffer_peak_bytes"),
            bytes("buffer_max_bytes"),
            bytes("buffer_region_bytes"),
            (numbers.get("buffer_interval_seconds") * 1e3).round(),
        ),
        format!(
            "  in       {} in {} writes; {} of them not buffered, {} waited for memory; {} buffered now, at most {}",
            total("buffer_bytes_in"),
            count("buffer_writes_in"),
            count("buffer_writes_through"),
            count("buffer_waits"),
            bytes("buffered_bytes"),
            bytes("buffered_peak_bytes"),
        ),
        format!(
            "  out      {} in {} writes",
            total("buffer_bytes_out"),
            count("buffer_writes_out"),
        ),
        format!(
            "  flushed  {}",
            match flushes.is_empty() {
                true => "never".to_owned(),
                false => flushes.join(", "),
            }
        ),
        format!(
            "  errors   {}, {} lost, {} that nobody was told of",
            count("buffer_errors"),
            total("buffer_lost_bytes"),
            count("buffer_unreported_errors"),
        ),
    ]
}
