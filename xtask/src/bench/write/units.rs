//! Part `units`: throughput and context switches by the size of the largest request (figures 6 and 7 of the bFUSE
//! paper).

use super::harness::{Bench, Subject};
use super::native::Native;
use super::throughput::rates;
use super::way::Way;
use super::workload::SEQUENTIAL;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// The smallest unit is 4 KiB, the largest 1 MiB: powers of two in KiB.
const POWERS: std::ops::RangeInclusive<u32> = 2..=10;
const FORMS: [&str; 3] = ["--data daemon", "--data buffer", "--data entries"];

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn units(bench: &mut Bench) -> Outcome {
    bench.on_each(Native::in_memory, |bench, native| {
        let name = native.kind.name;
        let what = format!("units, {name}, by the unit, 2^n KiB");
        let mut metrics = rates(&what).to_vec();
        metrics.push((format!("{what}, context switches"), Unit::Count));
        for power in POWERS {
            let unit = 1 << power;
            let way = |form: &str| {
                let way = bench.ours(&format!("{form} --unit {unit}K"));
                way.called(&format!("anteros {form}"))
            };
            let mut ways = FORMS.map(way).to_vec();
            ways.push(Way::native());
            let subject = Subject {
                name: &format!("{name}, {unit} KiB"),
                at: Some(power.into()),
                metrics: &metrics,
            };
            bench.contest(&subject, &ways, |bench, way| {
                let ([cached, stored], counters) = bench.counted(native, way, &SEQUENTIAL)?;
                Ok(vec![cached, stored, counters.switches as f64])
            });
        }
        Ok(())
    })
}
