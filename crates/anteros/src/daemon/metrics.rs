//! The numbers of a daemon that serves an image.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anteros_image::ImageFs;

use super::exposition::Exposition;
use super::faults::Faults;
use super::latencies::Latencies;
use super::recording::Recording;
use super::workers::Workers;

/// The numbers of a daemon.
pub struct Metrics {
    started: Instant,
    memory_bytes_max: u64,
    pub latencies: Latencies,
    pub faults: Arc<Faults>,
    /// Bytes handed to the kernel unasked.
    pub neighbour_bytes: AtomicU64,
}

impl Metrics {
    /// Of a daemon that starts now, with so much memory.
    pub fn new(memory_bytes_max: u64) -> Self {
        Self {
            started: Instant::now(),
            memory_bytes_max,
            latencies: Latencies::default(),
            faults: Arc::default(),
            neighbour_bytes: AtomicU64::new(0),
        }
    }

    /// The text that `anteros stat` shows.
    pub fn text(
        &self,
        fs: &ImageFs,
        workers: Workers,
        recording: Option<&Recording>,
        uid: u32,
    ) -> String {
        let mut text = Exposition::default();
        let stats = fs.image().read_statistics();
        text.gauge("up_seconds", self.started.elapsed().as_secs_f64());
        workers.tell(&mut text);
        text.gauge("memory_max_bytes", self.memory_bytes_max as f64);
        text.gauge("cache_bytes", stats.memory_bytes as f64);
        text.gauge("cache_peak_bytes", stats.memory_peak_bytes as f64);
        text.gauge("cache_max_bytes", stats.memory_max_bytes as f64);
        text.gauge("metadata_bytes", stats.metadata_bytes as f64);
        text.gauge("pinned_bytes", fs.pinned_bytes() as f64);
        text.process();
        text.counter("faults", self.faults.count());
        let neighbours = self.neighbour_bytes.load(Ordering::Relaxed);
        text.counter("neighbour_bytes", neighbours);
        text.counter("cohort_waits", stats.cohort_waits);
        for (name, value) in stats.counters() {
            text.counter(name, value);
        }
        text.latencies(&self.latencies);
        if let Some(recording) = recording {
            recording.count(&mut text);
        }
        text.finish(&self.faults, uid)
    }
}
