//! Part `schedulers`: each scheduler that the device may have, on a device no faster than the paper's (figures 13 and
//! 16 of the bFUSE paper).

use super::harness::{Bench, Subject};
use super::native::Native;
use super::way::{self, Way};
use super::workload::{Workload, in_turns, one_file};
use crate::bench::report::Unit;
use crate::outcome::Outcome;

const NAME: &str = "one file of 128 MiB in records of 512 KiB";
const WORKLOAD: Workload = one_file(NAME, 128 << 20, |directory| {
    in_turns(directory, 1, 512 << 10, 128 << 20)
});

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn schedulers(bench: &mut Bench) -> Outcome {
    let mut ways = bench.named(&[way::AUTO, way::BUFFER, way::BASELINE]);
    ways.push(bench.ours("--data daemon --unit 512K"));
    ways.push(Way::native());
    bench.on_each(Native::throttled, |bench, native| {
        for scheduler in native.device().schedulers() {
            native.device().set("scheduler", &scheduler)?;
            let metric = format!("schedulers: {NAME} at 40 MB/s, to the device");
            let subject = Subject {
                name: &format!("{}, {scheduler}", native.kind.name),
                at: None,
                metrics: &[(metric, Unit::BytesPerSecond)],
            };
            bench.contest(&subject, &ways, |bench, way| {
                let [_, stored] = bench.write(native, way, &WORKLOAD)?;
                Ok(vec![stored])
            });
        }
        Ok(())
    })
}
