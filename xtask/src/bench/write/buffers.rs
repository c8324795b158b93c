//! Part `buffers`: throughput and requests to the device by the size of the buffer, of what is gathered for one write,
//! and by the interval (figures 11 to 15 of the bFUSE paper).

use super::harness::{Bench, Subject};
use super::native::Native;
use super::throughput::rates;
use super::workload::SEQUENTIAL;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

const FORMS: [&str; 2] = ["--data buffer", "--data entries"];

/// An option with its values and where each lies on a scale.
struct Option {
    name: &'static str,
    scale: &'static str,
    values: &'static [(&'static str, f64)],
}

const OPTIONS: [Option; 3] = [
    Option {
        name: "--buffer",
        scale: "2^n MiB",
        values: &[
            ("2M", 1.0),
            ("4M", 2.0),
            ("8M", 3.0),
            ("16M", 4.0),
            ("32M", 5.0),
            ("64M", 6.0),
        ],
    },
    Option {
        name: "--region",
        scale: "2^n KiB",
        values: &[
            ("64K", 6.0),
            ("256K", 8.0),
            ("512K", 9.0),
            ("1M", 10.0),
            ("2M", 11.0),
            ("4M", 12.0),
        ],
    },
    Option {
        name: "--interval",
        scale: "10^n ms",
        values: &[("1", 0.0), ("10", 1.0), ("100", 2.0), ("1000", 3.0)],
    },
];

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn buffers(bench: &mut Bench) -> Outcome {
    bench.on_each(Native::in_memory, |bench, native| {
        for option in &OPTIONS {
            by(bench, native, option);
        }
        Ok(())
    })
}

fn by(bench: &mut Bench, native: &Native, option: &Option) {
    let (filesystem, Option { name, scale, .. }) = (native.kind.name, option);
    let what = format!("buffers, {filesystem}, by {name}, {scale}");
    let mut metrics = rates(&what).to_vec();
    metrics.push((format!("{what}, requests to the device"), Unit::Count));
    for (value, at) in option.values {
        let way = |form: &str| {
            let way = bench.ours(&format!("{form} {name} {value}"));
            way.called(&format!("anteros {form}"))
        };
        let mut ways = FORMS.map(way).to_vec();
        ways.push(bench.ours("--data daemon"));
        let subject = Subject {
            name: &format!("{filesystem}, {name} {value}"),
            at: Some(*at),
            metrics: &metrics,
        };
        bench.contest(&subject, &ways, |bench, way| {
            let ([cached, stored], counters) = bench.counted(native, way, &SEQUENTIAL)?;
            Ok(vec![cached, stored, counters.device.writes as f64])
        });
    }
}
