//! Part `throttled`: sequential writing on a device no faster than the paper's, as a share of what the device can do
//! and of the native file system on it (figures 16 and 17 of the bFUSE paper).

use std::process::{Command, Stdio};
use std::time::Instant;

use super::harness::{Bench, Subject};
use super::native::{FILE, Memory, Native};
use super::workload::{Workload, in_turns, one_file};
use crate::bench::device::LoopDevice;
use crate::bench::report::Unit;
use crate::bench::throttle::{Speed, Throttle};
use crate::outcome::Outcome;
use crate::run::run;

const NAME: &str = "one file of 256 MiB in records of 512 KiB";
const WORKLOAD: Workload = one_file(NAME, 256 << 20, |directory| {
    in_turns(directory, 1, 512 << 10, 256 << 20)
});
/// States what is written to the device itself, in MiB.
const RAW_MIB: u64 = 128;

/// The goals look for it.
pub(super) const TO_THE_DEVICE: &str =
    "throttled to 40 MB/s: one file of 256 MiB in records of 512 KiB, to the device";

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn throttled(bench: &mut Bench) -> Outcome {
    let raw = raw_rate(bench)?;
    bench.note(format!(
        "the throttled device itself writes {} (dd of {RAW_MIB} MiB, direct, with fsync)",
        Unit::BytesPerSecond.show(raw)
    ));
    let ways = bench.everybody();
    bench.on_each(Native::throttled, |bench, native| {
        let metrics = [
            (TO_THE_DEVICE.to_owned(), Unit::BytesPerSecond),
            (
                format!("{TO_THE_DEVICE}, share of the device itself"),
                Unit::Percent,
            ),
        ];
        let subject = Subject {
            name: native.kind.name,
            at: None,
            metrics: &metrics,
        };
        bench.contest(&subject, &ways, |bench, way| {
            let [_, stored] = bench.write(native, way, &WORKLOAD)?;
            Ok(vec![stored, 100.0 * stored / raw])
        });
        Ok(())
    })
}

/// Returns how fast the device is without a file system.
fn raw_rate(bench: &Bench) -> Outcome<f64> {
    let memory = Memory::new(bench.place, None)?;
    let throttle = Throttle::mount(
        &memory.directory,
        &bench.place.directory("throttle")?,
        Speed::PAPER,
    )?;
    let device = LoopDevice::attach(&throttle.directory().join(FILE), true, true)?;
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1M", "oflag=direct", "conv=fsync"]);
    dd.arg(format!("of={}", device.node().display()));
    dd.arg(format!("count={RAW_MIB}")).stderr(Stdio::null());
    let start = Instant::now();
    run(&mut dd)?;
    let seconds = start.elapsed().as_secs_f64();
    // In the order in which they must end.
    drop(device);
    drop(throttle);
    drop(memory);
    Ok((RAW_MIB << 20) as f64 / seconds)
}
