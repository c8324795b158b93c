//! The numbers of a daemon that serves a log.

use serde_json::{Map, Value};

use super::Numbers;
use crate::output;

/// The number whose labels name the log.
pub const INFO: &str = "log_info";

/// As JSON.
pub fn json(numbers: &Numbers) -> Value {
    let mut object = numbers.json();
    for (name, word) in numbers.words(INFO).unwrap_or_default() {
        object.insert(name, word.into());
    }
    let causes: Map<_, _> = causes(numbers)
        .map(|(cause, bytes)| (cause, bytes.into()))
        .collect();
    object.insert("log_device_bytes".into(), causes.into());
    object.insert("write_amplification".into(), amplification(numbers).into());
    object.into()
}

/// Why bytes were written to the device, and how many.
fn causes(numbers: &Numbers) -> impl Iterator<Item = (String, u64)> {
    numbers
        .labelled("log_device_bytes_total")
        .filter_map(|(labels, bytes)| {
            let cause = labels.into_iter().find(|(name, _)| name == "cause")?;
            Some((cause.1, bytes as u64))
        })
}

/// Bytes written to the device for each byte that a user wrote; `None` if no user wrote any.
fn amplification(numbers: &Numbers) -> Option<f64> {
    let device: u64 = causes(numbers).map(|(_, bytes)| bytes).sum();
    let user = numbers.count("log_user_bytes");
    (user > 0).then(|| device as f64 / user as f64)
}

/// As text for people.
pub fn table(numbers: &Numbers) -> String {
    let bytes = |name: &str| output::bytes(numbers.get(name) as u64);
    let gauge = |name: &str| output::count(numbers.get(name) as u64);
    let count = |name: &str| output::count(numbers.count(name));
    let words = numbers.words(INFO).unwrap_or_default();
    let word = |name: &str| words.get(name).map_or("", |word| word);
    let device: u64 = causes(numbers).map(|(_, bytes)| bytes).sum();
    let by_cause: Vec<_> = causes(numbers)
        .map(|(cause, bytes)| format!("{cause} {}", output::bytes(bytes)))
        .collect();
    let amplification = amplification(numbers).map_or_else(
        || "nobody has written anything".to_owned(),
        |factor| format!("{factor:.2} bytes for each byte that users wrote"),
    );
    let mut lines = vec![
        format!(
            "log        {} {}",
            output::name(word("label").as_bytes()),
            word("uuid")
        ),
        format!(
            "space      {} of {} used, {} of that promised; {} inodes, {} nodes",
            bytes("log_used_bytes"),
            bytes("log_capacity_bytes"),
            bytes("log_promised_bytes"),
            gauge("log_inodes"),
            gauge("log_nodes"),
        ),
        format!(
            "segments   {}: {} free, {} more with the next checkpoint",
            gauge("log_segments"),
            gauge("log_free_segments"),
            gauge("log_emptied_segments"),
        ),
        format!(
            "memory     {} of content, nodes and directories, ceiling {}",
            bytes("log_memory_bytes"),
            bytes("log_memory_max_bytes"),
        ),
        format!(
            "process    {}, at most {}, {} workers",
            bytes("resident_bytes"),
            bytes("resident_peak_bytes"),
            gauge("workers"),
        ),
        format!(
            "written    {} by users",
            output::bytes(numbers.count("log_user_bytes"))
        ),
        format!("device     {}: {amplification}", output::bytes(device)),
        format!("  why      {}", by_cause.join(", ")),
        format!(
            "syncs      {}, with {} flushes; {} groups, {} checkpoints, {} segments cleaned",
            count("log_syncs"),
            count("log_flushes"),
            count("log_groups"),
            count("log_checkpoints"),
            count("log_cleaned_segments"),
        ),
    ];
    lines.extend(numbers.lines());
    lines.join("\n") + "\n"
}
