//! Part `steady`: databases that fill a share of the device, and transactions that go on: what is cleaned counts as well.
//!
//! As `bench log --only ageing` has it, but that a compressor makes of a page what it mostly makes of those of recorded databases.

use crate::bench::log::ageing::{DEVICE_BYTES, Kind, METRICS, Pattern, SHARES, turn};
use crate::bench::log::harness::Bench;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

/// A third of a page is noise.
const DATABASES: Kind = Kind {
    suffix: ".db",
    noise: 168,
};

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn steady(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = bench.systems.clone();
    let metrics = METRICS.map(|(what, unit)| (format!("steady: {what}"), unit));
    for share in SHARES {
        let subject = format!("{share} % full of databases");
        bench.contest(&subject, &metrics, &systems, |bench, system| {
            let wanted = (share, Pattern::Mixed, DATABASES);
            turn(bench, system, &memory.file, wanted)
        });
    }
    Ok(())
}
