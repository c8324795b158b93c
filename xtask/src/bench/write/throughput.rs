//! Part `throughput`: how fast each way writes, in patterns from large records to a sync after each small one: to the
//! page cache, when the last file is closed, and to the device, when all is synced as well.

use super::harness::{Bench, Subject};
use super::native::Native;
use super::workload::WORKLOADS;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// The two figures of a turn.
pub(super) const STATES: [&str; 2] = ["to the page cache", "to the device"];

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn throughput(bench: &mut Bench) -> Outcome {
    let ways = bench.everybody();
    bench.on_each(Native::in_memory, |bench, native| {
        for workload in &WORKLOADS {
            let metrics = STATES.map(|state| (metric(workload.name, state), workload.unit));
            let subject = Subject {
                name: native.kind.name,
                at: None,
                metrics: &metrics,
            };
            bench.contest(&subject, &ways, |bench, way| {
                Ok(bench.write(native, way, workload)?.to_vec())
            });
        }
        Ok(())
    })
}

/// Returns what the comparison of a workload is called.
pub(super) fn metric(workload: &str, state: &str) -> String {
    format!("throughput: {workload}, {state}")
}

/// The metrics of both figures of a turn, told in bytes per second.
pub(super) fn rates(what: &str) -> [(String, Unit); 2] {
    STATES.map(|state| (format!("{what}, {state}"), Unit::BytesPerSecond))
}
