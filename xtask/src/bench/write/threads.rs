//! Part `threads`: the buffer with a thread that flushes, and with writers that flush (figure 10 of the bFUSE paper).

use super::harness::{Bench, Subject};
use super::native::Native;
use super::throughput::rates;
use super::way::Way;
use super::workload::{PAPER, SEQUENTIAL};
use crate::outcome::Outcome;

/// With the paper's unit: the name and the arguments; the first is what the others are compared with.
const WAYS: [(&str, &str); 5] = [
    ("anteros, no buffer", "--data daemon"),
    ("anteros --data buffer", "--data buffer"),
    (
        "anteros --data buffer, by writers",
        "--data buffer --flush-by-writers",
    ),
    ("anteros --data entries", "--data entries"),
    (
        "anteros --data entries, by writers",
        "--data entries --flush-by-writers",
    ),
];

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn threads(bench: &mut Bench) -> Outcome {
    let mut ways = WAYS
        .map(|(name, arguments)| bench.ours(&format!("{arguments} --unit 512K")).called(name))
        .to_vec();
    ways.push(Way::native());
    let ways = bench.startable(ways)?;
    bench.on_each(Native::in_memory, |bench, native| {
        let subject = Subject {
            name: native.kind.name,
            at: None,
            metrics: &rates(&format!("threads: {PAPER}")),
        };
        bench.contest(&subject, &ways, |bench, way| {
            Ok(bench.write(native, way, &SEQUENTIAL)?.to_vec())
        });
        Ok(())
    })
}
