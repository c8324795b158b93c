//! Segments that a checkpoint has made free: what was kept of them goes, and the device hears that they hold nothing.

use std::io::ErrorKind;

use anteros_core::unpoisoned;

use crate::layout::{BLOCK_BYTES, SEGMENT_BLOCKS};
use crate::store::blocks::Store;

impl Store {
    /// Tells the device of the segments that hold nothing any more. That is advice: what fails is told, and no more.
    pub(crate) fn discard_released(&mut self) {
        let reading = self.reading.clone();
        let _nobody_reads = unpoisoned(reading.write());
        let released = self.segments.release();
        for &segment in &released {
            let start = self.segments.start(segment);
            self.ahead.forget(start..start + u64::from(SEGMENT_BLOCKS));
        }
        let bytes = u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES as u64;
        for segment in released {
            if !self.discards {
                return;
            }
            if !self.gives_back(segment) {
                continue;
            }
            let at = self.segments.start(segment) * BLOCK_BYTES as u64;
            match self.device.discard(at, bytes) {
                Err(error) if error.kind() == ErrorKind::Unsupported => self.discards = false,
                Err(error) => {
                    self.statistics.failed_discards += 1;
                    // One tells as much as many.
                    if self.warnings.is_empty() {
                        let text = format!("{bytes} bytes at {at} could not be discarded: {error}");
                        self.warnings.push(text);
                    }
                }
                Ok(()) => {}
            }
        }
    }
}
