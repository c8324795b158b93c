//! The numbers of a daemon that serves a log.

use std::time::Duration;

use anteros_log::{Class, ClassStatistics};
use serde_json::{Map, Value, json};

use super::numbers::{LOG_INFO, Numbers};
use crate::output;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// As JSON.
pub fn json(numbers: &Numbers) -> Value {
    let mut object = numbers.json();
    for (name, word) in numbers.words(LOG_INFO).unwrap_or_default() {
        object.insert(name, word.into());
    }
    let causes: Map<_, _> = causes(numbers)
        .map(|(cause, bytes)| (cause, bytes.into()))
        .collect();
    object.insert("log_device_bytes".into(), causes.into());
    object.insert("write_amplification".into(), amplification(numbers).into());
    let classes: Map<_, _> = classes(numbers)
        .map(|(class, of)| (class.name().into(), class_json(&of)))
        .collect();
    object.insert("log_classes".into(), classes.into());
    object.into()
}

/// Returns what became of the content of each class.
fn classes(numbers: &Numbers) -> impl Iterator<Item = (Class, ClassStatistics)> {
    let number = |what: &str, class: Class| {
        let class = class.name();
        numbers.get(&format!("log_class_{what}_total{{class=\"{class}\"}}"))
    };
    Class::ALL.into_iter().map(move |class| {
        let count = |what| number(what, class) as u64;
        let time = |what| Duration::from_secs_f64(number(what, class).max(0.0));
        let of = ClassStatistics {
            pages: count("pages"),
            stored_bytes: count("stored_bytes"),
            compressed_pages: count("compressed_pages"),
            left_pages: count("left_pages"),
            touched_blocks: count("touched_blocks"),
            least_blocks: count("least_blocks"),
            read_blocks: count("read_blocks"),
            read_stored_pages: count("read_stored_pages"),
            read_pages: count("read_pages"),
            compressing: time("compressing_seconds"),
            decompressing: time("decompressing_seconds"),
        };
        (class, of)
    })
}

fn class_json(of: &ClassStatistics) -> Value {
    json!({
        "written_bytes": of.pages * PAGE,
        "stored_bytes": of.stored_bytes,
        "ratio": of.ratio(),
        "compressed_pages": of.compressed_pages,
        "left_pages": of.left_pages,
        "compressing_seconds": of.compressing.as_secs_f64(),
        "touched_blocks": of.touched_blocks,
        "least_blocks": of.least_blocks,
        "car": of.car(),
        "read_blocks": of.read_blocks,
        "read_stored_pages": of.read_stored_pages,
        "read_pages": of.read_pages,
        "decompressing_seconds": of.decompressing.as_secs_f64(),
        "dar": of.dar(),
    })
}

/// Returns what was written and read of the content of a class, in a line; `None` if nothing was.
fn class_line(class: Class, of: &ClassStatistics) -> Option<String> {
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mut said = Vec::new();
    if let Some(ratio) = of.ratio() {
        let (written, stored) = (of.pages * PAGE, of.stored_bytes);
        let (written, stored) = (output::bytes(written), output::bytes(stored));
        said.push(format!("{written} takes {stored}, {ratio:.2} of it"));
    }
    if of.compressed_pages + of.left_pages > 0 || !of.compressing.is_zero() {
        said.push(format!(
            "{} pages compressed in {}, {} left as they are",
            output::count(of.compressed_pages),
            millis(of.compressing),
            output::count(of.left_pages)
        ));
    }
    said.extend(of.car().map(|car| format!("CAR {car:.2}")));
    said.extend(of.dar().map(|dar| {
        let pages = output::count(of.read_pages);
        let took = millis(of.decompressing);
        format!("{pages} pages decompressed in {took}, DAR {dar:.2}")
    }));
    (!said.is_empty()).then(|| format!("{:<10} {}", class.name(), said.join("; ")))
}

/// Returns why bytes were written to the device, and how many.
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

/// Returns how full the packed blocks are, if there are any.
pub fn packed_line(blocks: u64, slots: u64) -> Option<String> {
    (blocks > 0).then(|| {
        format!(
            "packed     {} blocks with {} valid slots, {:.1} in each",
            output::count(blocks),
            output::count(slots),
            slots as f64 / blocks as f64
        )
    })
}

/// Returns what was done while nobody used the log, if anything was.
fn idle_line(numbers: &Numbers) -> Option<String> {
    let count = |name: &str| numbers.count(&format!("log_idle_{name}"));
    let (read, written) = (count("read_bytes"), count("written_bytes"));
    (read > 0).then(|| {
        format!(
            "idle       {} compressed to {} in {:.1} s of a processor, interrupted {} times",
            output::bytes(read),
            output::bytes(written),
            numbers.get("log_idle_processor_seconds_total"),
            output::count(count("interruptions")),
        )
    })
}

/// Returns what the log has recorded of launches, if anything.
fn launch_line(numbers: &Numbers) -> Option<String> {
    let number = |name: &str| numbers.get(&format!("log_launch_{name}")) as u64;
    let files = number("files");
    (files > 0).then(|| {
        format!(
            "launches   {} of {} files read, {} of that put together",
            output::bytes(number("bytes")),
            output::count(files),
            output::bytes(number("gathered_bytes")),
        )
    })
}

/// As text for people.
pub fn table(numbers: &Numbers) -> String {
    let bytes = |name: &str| output::bytes(numbers.get(name) as u64);
    let gauge = |name: &str| output::count(numbers.get(name) as u64);
    let count = |name: &str| output::count(numbers.count(name));
    let words = numbers.words(LOG_INFO).unwrap_or_default();
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
            "space      {} of {} used, {} of that preallocated; {} inodes, {} nodes",
            bytes("log_used_bytes"),
            bytes("log_capacity_bytes"),
            bytes("log_preallocated_bytes"),
            gauge("log_inodes"),
            gauge("log_nodes"),
        ),
        format!(
            "segments   {}: {} free, {} more with the next checkpoint",
            gauge("log_segments"),
            gauge("log_free_segments"),
            gauge("log_prefree_segments"),
        ),
        format!(
            "memory     {} of content, nodes and directories, ceiling {}",
            bytes("log_memory_bytes"),
            bytes("log_memory_max_bytes"),
        ),
        format!(
            "process    {}, at most {}, {}",
            bytes("resident_bytes"),
            bytes("resident_peak_bytes"),
            numbers.workers(),
        ),
        format!(
            "written    {} by users",
            output::bytes(numbers.count("log_user_bytes"))
        ),
        format!("device     {}: {amplification}", output::bytes(device)),
        format!("  why      {}", by_cause.join(", ")),
        format!(
            "syncs      {}, with {} flushes; {} groups, {} checkpoints, {} segments cleaned, holes of {} filled",
            count("log_syncs"),
            count("log_flushes"),
            count("log_groups"),
            count("log_checkpoints"),
            count("log_cleaned_segments"),
            count("log_threaded_segments"),
        ),
    ];
    lines.extend(numbers.requests_line());
    let scrubbed = numbers.count("log_scrubbed_bytes");
    lines.extend((scrubbed > 0).then(|| format!("scrubbed   {}", output::bytes(scrubbed))));
    lines.extend(idle_line(numbers));
    lines.extend(launch_line(numbers));
    let blocks = numbers.get("log_packed_blocks") as u64;
    let slots = numbers.get("log_packed_slots") as u64;
    lines.extend(packed_line(blocks, slots));
    lines.extend(classes(numbers).filter_map(|(class, of)| class_line(class, &of)));
    lines.extend(numbers.lines());
    lines.join("\n") + "\n"
}
