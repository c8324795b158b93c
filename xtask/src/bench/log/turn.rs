//! A turn: a system made anew on a device, mounted, something done with it, and its end.

use std::path::Path;
use std::time::Instant;

use super::harness::Bench;
use super::system::{Stand, System};
use crate::bench::caches::drop_caches;
use crate::bench::device::LoopDevice;
use crate::bench::place::Place;
use crate::bench::write::tally::{Tally, Tracing};
use crate::outcome::Outcome;

/// States what the log discards at once, in sectors: a segment.
const DISCARD_SECTORS: u64 = 4096;

/// A system that has its turn. Its device is gone when it is dropped.
pub(in crate::bench) struct Turn<'a> {
    place: &'a Place,
    system: &'a System,
    // Dropped in this order.
    stand: Option<Stand>,
    counted: Option<Counted>,
    device: LoopDevice,
}

/// Holds what a device had written at some moment, and the discards from then on.
struct Counted {
    before: u64,
    discards: Option<Tally>,
}

impl Bench<'_> {
    /// Makes a system on the device that a file is, and mounts it.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(in crate::bench) fn turn<'a>(
        &'a self,
        system: &'a System,
        file: &Path,
    ) -> Outcome<Turn<'a>> {
        let device = LoopDevice::attach(file, false, true)?;
        system.make(device.node())?;
        let stand = system.mount(self.place, device.node())?;
        Ok(Turn {
            place: self.place,
            system,
            stand: Some(stand),
            counted: None,
            device,
        })
    }

    /// Counts from now on what is written to the device of a turn.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(in crate::bench) fn count(&self, turn: &mut Turn) -> Outcome {
        rustix::fs::sync();
        let filter = format!(
            "dev == {} && nr_sector == {DISCARD_SECTORS} && rwbs ~ \"N*\"",
            turn.device.number()?
        );
        let events = [("block/block_rq_complete", filter)];
        let tally = |tracing: &Tracing| tracing.count(&events, None);
        turn.counted = Some(Counted {
            discards: self.tracing.as_ref().map(tally).transpose()?,
            before: turn.device.traffic()?.bytes_written,
        });
        Ok(())
    }
}

impl Turn<'_> {
    /// Returns what is mounted.
    ///
    /// # Errors
    /// When it is not, now.
    pub(in crate::bench) fn stand(&self) -> Outcome<&Stand> {
        Ok(self.stand.as_ref().ok_or("nothing is mounted")?)
    }

    /// Returns where one writes.
    ///
    /// # Errors
    /// When nothing is mounted, now.
    pub(in crate::bench) fn directory(&self) -> Outcome<&Path> {
        Ok(self.stand()?.directory())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// When a daemon does not end well.
    pub(in crate::bench) fn unmount(&mut self) -> Outcome {
        self.stand.take().map_or(Ok(()), Stand::end)
    }

    /// Unmounts, and has the log checked.
    ///
    /// # Errors
    /// When a daemon does not end well, or the log has faults.
    pub(in crate::bench) fn end(mut self) -> Outcome {
        self.unmount()?;
        self.system.check(self.device.node())
    }

    /// Ends the daemon without any notice.
    pub(in crate::bench) fn kill(&mut self) {
        if let Some(stand) = self.stand.take() {
            stand.kill();
        }
    }

    /// Mounts the device, of which nothing is in the page cache, and says how many seconds that took. Programs need
    /// not come from the disk.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub(in crate::bench) fn mount_timed(&mut self) -> Outcome<f64> {
        drop_caches()?;
        self.system.warm()?;
        let start = Instant::now();
        self.stand = Some(self.system.mount(self.place, self.device.node())?);
        Ok(start.elapsed().as_secs_f64())
    }

    /// Goes on with another device, on which nothing is mounted yet.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(in crate::bench) fn move_to(&mut self, file: &Path) -> Outcome {
        self.unmount()?;
        self.device = LoopDevice::attach(file, false, true)?;
        Ok(())
    }

    /// Mounts what was unmounted, as it is on the device.
    ///
    /// # Errors
    /// When it cannot be unmounted or mounted.
    pub(in crate::bench) fn mount_again(&mut self) -> Outcome {
        self.unmount()?;
        self.mount_timed().map(drop)
    }

    /// The same, with further arguments if it is a log of ours.
    ///
    /// # Errors
    /// When it cannot be unmounted or mounted.
    pub(in crate::bench) fn mount_again_with(&mut self, arguments: &[&str]) -> Outcome {
        self.unmount()?;
        drop_caches()?;
        let system = self.system.with(arguments);
        self.stand = Some(system.mount(self.place, self.device.node())?);
        Ok(())
    }

    /// The device below.
    pub(in crate::bench) fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// The bytes that were written to the device since the count began, discards aside.
    ///
    /// # Errors
    /// When the kernel does not tell, or nothing was counted.
    pub(in crate::bench) fn written(&self) -> Outcome<u64> {
        let counted = self.counted.as_ref().ok_or("nothing is counted")?;
        let discards = counted.discards.as_ref().map_or(Ok(0), Tally::so_far)?;
        let written = self.device.traffic()?.bytes_written - counted.before;
        Ok(written - discards * DISCARD_SECTORS * 512)
    }
}
