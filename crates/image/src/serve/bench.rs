//! Work on behalf of a reader: the workbench that it borrows, what is fetched ahead, what is counted.

use std::sync::atomic::Ordering;

use anteros_format::inode::Inode;

use super::counters::{ReadStatistics, add};
use super::serving::Workbench;
use super::sizes::{PAGE_BYTES, RUN_BYTES};
use crate::image::Image;
use crate::map::{Location, Map, Source};

impl Image {
    /// Lends a workbench. Those that came back are used again.
    pub(crate) fn with_bench<T>(&self, work: impl FnOnce(&mut Workbench) -> T) -> T {
        let serve = &self.serve;
        let mut bench = serve.benches().pop().unwrap_or_default();
        serve.busy.fetch_add(1, Ordering::Relaxed);
        let result = work(&mut bench);
        serve.busy.fetch_sub(1, Ordering::Relaxed);
        bench.encoded.truncate(RUN_BYTES);
        bench.encoded.shrink_to(RUN_BYTES);
        serve.benches().push(bench);
        result
    }

    /// Notes a read of data, and fetches what follows it if it continues others.
    pub(crate) fn fetch_ahead(&self, at: Location, len: u64) {
        if let Some((next, len)) = self.serve.streams.read(at, len) {
            self.will_need(next, len);
        }
    }

    /// Has the device fetch what a read of these bytes of a file will need. Errors are those of the
    /// read.
    pub(crate) fn prefetch(&self, inode: &Inode, map: &Map, offset: u64) {
        if offset >= inode.size {
            return;
        }
        let Ok(extent) = self.extent_at(inode, map, offset) else {
            return;
        };
        match extent.source {
            Source::Pcluster(pcluster) => self.will_need(pcluster.location, pcluster.bytes.into()),
            Source::Raw(location) => {
                let at = location.plus(offset - extent.offset);
                at.into_iter().for_each(|at| self.will_need(at, PAGE_BYTES));
            }
            Source::Hole | Source::Fragment { .. } => {}
        }
    }

    /// Counts a read of file content for someone outside.
    pub(crate) fn count_served(&self, bytes: usize) {
        add(&self.serve.counters.requests, 1);
        add(&self.serve.counters.served_bytes, bytes as u64);
    }

    /// Counts a read of pinned content.
    pub(crate) fn count_pinned(&self) {
        add(&self.serve.counters.pinned_hits, 1);
    }

    /// Returns what reading has cost since the image was opened.
    pub fn read_statistics(&self) -> ReadStatistics {
        let serve = &self.serve;
        let (now, peak) = serve.memory.used();
        ReadStatistics {
            cohort_waits: serve.pclusters.waits(),
            memory_bytes: now as u64,
            memory_peak_bytes: peak as u64,
            memory_max_bytes: serve.memory.limit() as u64,
            metadata_bytes: self.metadata_cached() as u64,
            ..serve.counters.snapshot()
        }
    }
}
