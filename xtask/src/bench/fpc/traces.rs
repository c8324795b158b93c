//! Part `traces`: recorded applications done again: what reaches the device, and how long a write and its fsync take
//! (figure 11 of the paper).

use super::workloads::applications;
use crate::bench::log::harness::Bench;
use crate::bench::log::traces::{DEVICE_BYTES, contest};
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn traces(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    for recorded in applications() {
        if let Some(mib) = recorded.f2fs_mib {
            let name = recorded.name;
            bench.note(format!(
                "traces: F2FS wrote {mib} MiB for {name} until synced; that was measured elsewhere"
            ));
        }
        if let Err(error) = recorded.open() {
            bench.note(format!("traces: {} takes no part: {error}", recorded.name));
            continue;
        }
        contest(bench, &memory, &recorded);
    }
    Ok(())
}
