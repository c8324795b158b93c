//! Part `calls`: what writing 512 MiB in records of 512 KiB takes (table 3 of the bFUSE paper): write calls of the
//! daemon, requests to the device and those of them for journal and metadata, context switches, processor time.

use super::counters::Counters;
use super::harness::{Bench, Subject};
use super::native::Native;
use super::tally::{Tally, Tracing};
use super::turn::timed;
use super::way::{self, Way};
use super::workload::{SEQUENTIAL, SEQUENTIAL_BYTES};
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// The largest request that the paper's device takes, in KiB.
const REQUEST_KB_MAX: &str = "512";

/// Ways that no other part has: the paper's.
const FURTHER: [&str; 3] = [
    "--data daemon --unit 512K",
    "--data entries --unit 512K",
    "--data buffer --unit 512K",
];

/// Calls that write at a place in a file, as daemons do; answers to the kernel have none.
const WRITES: [(&str, &str); 4] = [
    ("syscalls/sys_enter_pwrite64", ""),
    ("syscalls/sys_enter_pwritev", ""),
    ("syscalls/sys_enter_pwritev2", ""),
    ("syscalls/sys_enter_splice", "off_out != 0"),
];

/// The goals look for it.
pub(super) const WRITE_CALLS: &str = "calls: write calls of the daemon";

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn calls(bench: &mut Bench) -> Outcome {
    let tracing = match tracing(bench) {
        Ok(tracing) => Some(tracing),
        Err(error) => {
            bench.note(format!("write calls are not counted: {error}"));
            None
        }
    };
    let mut ways = bench.everybody();
    ways.extend(FURTHER.map(|arguments| bench.ours(arguments)));
    bench.on_each(Native::in_memory, |bench, native| {
        native.device().set("max_sectors_kb", REQUEST_KB_MAX)?;
        let mut metrics = vec![
            ("calls: requests to write that the device had", Unit::Count),
            (
                "calls: bytes that the device wrote beyond the data",
                Unit::Bytes,
            ),
            ("calls: context switches of the whole system", Unit::Count),
            ("calls: context switches of the daemon", Unit::Count),
            ("calls: processor time of the daemon", Unit::Seconds),
        ];
        if tracing.is_some() {
            metrics.push((WRITE_CALLS, Unit::Count));
            metrics.push(("calls: requests for journal and metadata", Unit::Count));
        }
        let named = |(name, unit): &(&str, Unit)| ((*name).to_owned(), *unit);
        let metrics: Vec<_> = metrics.iter().map(named).collect();
        let subject = Subject {
            name: native.kind.name,
            at: None,
            metrics: &metrics,
        };
        bench.contest(&subject, &ways, |bench, way| {
            let mut figures = costs(bench, native, way)?;
            if let Some(tracing) = &tracing {
                figures.push(write_calls(bench, native, way, tracing)?);
                figures.push(metadata_requests(bench, native, way, tracing)?);
            }
            Ok(figures)
        });
        Ok(())
    })
}

/// Tracing that knows the calls.
fn tracing(bench: &Bench) -> Outcome<Tracing> {
    let tracing = Tracing::mount(bench.place)?;
    drop(tracing.count(&writes(), None)?);
    Ok(tracing)
}

fn writes() -> [(&'static str, String); 4] {
    WRITES.map(|(event, filter)| (event, filter.to_owned()))
}

/// Returns what is counted without tracing, which would cost something itself.
fn costs(bench: &Bench, native: &Native, way: &Way) -> Outcome<Vec<f64>> {
    let (_, counters) = bench.counted(native, way, &SEQUENTIAL)?;
    let Counters {
        switches,
        daemon,
        device,
    } = counters;
    Ok(vec![
        device.writes as f64,
        device.bytes_written.saturating_sub(SEQUENTIAL_BYTES) as f64,
        switches as f64,
        daemon.switches as f64,
        daemon.processor_seconds,
    ])
}

/// The daemon's calls that write; nobody's where the kernel or the writer itself writes.
fn write_calls(bench: &Bench, native: &Native, way: &Way, tracing: &Tracing) -> Outcome<f64> {
    if way.name == way::NATIVE {
        return Ok(0.0);
    }
    tallied(bench, native, way, |process| {
        tracing.count(&writes(), process)
    })
}

/// The requests to the device that the file system marked as metadata, as which a journal counts too.
fn metadata_requests(bench: &Bench, native: &Native, way: &Way, tracing: &Tracing) -> Outcome<f64> {
    let number = native.device().number()?;
    let filter = format!("dev == {number} && rwbs ~ \"*W*M*\"");
    let events = [("block/block_rq_issue", filter)];
    tallied(bench, native, way, |_| tracing.count(&events, None))
}

/// Counts something, told the process of the daemon, from the start of the work until all is on the device.
fn tallied(
    bench: &Bench,
    native: &Native,
    way: &Way,
    start: impl FnOnce(Option<u32>) -> Outcome<Tally>,
) -> Outcome<f64> {
    bench.fresh(native, way, SEQUENTIAL.prepare, |served| {
        let tally = start(served.pid())?;
        timed(served, &SEQUENTIAL)?;
        Ok(tally.so_far()? as f64)
    })
}
