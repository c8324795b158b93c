//! The numbers of a daemon that serves an image.

use serde_json::Value;

use super::Numbers;
use crate::output;

/// As JSON.
pub fn json(numbers: &Numbers) -> Value {
    let mut object = numbers.json();
    object.insert("amplification".into(), amplification(numbers).into());
    object.into()
}

/// Device bytes for each byte served; `None` if none was.
fn amplification(numbers: &Numbers) -> Option<f64> {
    let served = numbers.count("served_bytes");
    (served > 0).then(|| numbers.count("device_bytes") as f64 / served as f64)
}

/// As text for people.
pub fn table(numbers: &Numbers) -> String {
    let bytes = |name: &str| output::bytes(numbers.get(name) as u64);
    let total = |name: &str| output::bytes(numbers.count(name));
    let count = |name: &str| output::count(numbers.count(name));
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
            "process    {}, at most {}, {}",
            bytes("resident_bytes"),
            bytes("resident_peak_bytes"),
            numbers.workers(),
        ),
        format!(
            "served     {} in {} reads; {} as they lie on the device, {} reads from pinned data",
            total("served_bytes"),
            count("requests"),
            total("plain_bytes"),
            count("pinned_hits"),
        ),
        format!(
            "device     {} in {} reads: {}",
            total("device_bytes"),
            count("device_reads"),
            match amplification(numbers) {
                Some(factor) => format!("{factor:.2} bytes for each byte served"),
                None => "nobody has read the content of a file".to_owned(),
            },
        ),
        format!(
            "cache      {} hits, {} misses, {} readers waited for another's; {} given to the kernel unasked, {} parts back from there",
            count("hits"),
            count("misses"),
            count("cohort_waits"),
            total("neighbour_bytes"),
            count("retrieved"),
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
    lines.extend(numbers.requests_line());
    lines.extend(numbers.trace_line());
    lines.extend(numbers.lines());
    lines.join("\n") + "\n"
}
