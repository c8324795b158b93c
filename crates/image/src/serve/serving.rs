//! State that serves reads: the cache, the account of memory, the workbenches.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use anteros_codec::{Decoder, RollingWindow};
use anteros_core::unpoisoned;
use anteros_format::Nid;

use super::ahead::Streams;
use super::counters::Counters;
use super::memory::{Lease, Memory};
use super::pclusters::Pclusters;
use super::suspended::Rest;

/// Tells how pclusters are decoded (EROFS paper, §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// As the policy of §4.2 says: in place where the margin allows, through a small buffer where
    /// little comes out, else through the rolling window; a scratch mapping where nothing else fits.
    #[default]
    Auto,
    /// Always into a fresh scratch mapping, as large as what comes out, and copied from there.
    Vmap,
    /// Into a buffer of the worker where that is large enough, else as [`Vmap`](Self::Vmap).
    Buffer,
    /// Unwanted fronts through a rolling window; what is wanted whole straight into the reader's
    /// buffer, never in place.
    Rolling,
    /// In place where the margin allows, else straight into the reader's buffer; unwanted fronts never
    /// through the rolling window.
    InPlace,
}

/// Holds what serves reads: the cache, and what decoding needs.
pub(crate) struct Serve {
    pub(crate) strategy: Strategy,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pclusters: Pclusters,
    pub(crate) counters: Counters,
    pub(super) streams: Streams,
    pub(crate) on_neighbours: OnceLock<NeighbourHook>,
    pub(crate) on_rest: OnceLock<RestHook>,
    pub(crate) on_packed: OnceLock<PackedHook>,
    /// Tells whether short extents, which cost little to decode, are decoded whole for their neighbours.
    pub(crate) neighbours_of_all: AtomicBool,
    pub(super) benches: Mutex<Vec<Workbench>>,
    /// Threads at work.
    pub(super) busy: AtomicUsize,
    /// On so many cores, and no more than there are benches for.
    pub(super) cores: usize,
}

/// Told of decoded bytes of a file that nobody asked for: the file, the offset, the bytes. Says whether it
/// took them all.
pub(crate) type NeighbourHook = Box<dyn Fn(Nid, u64, &[u8]) -> bool + Send + Sync>;

/// Told of the rest of a long extent that is not read in order.
pub(crate) type RestHook = Box<dyn Fn(Rest) + Send + Sync>;

/// Asked for bytes of the packed inode, from an offset on, before they are decoded again. Says whether it has filled in all.
pub(crate) type PackedHook = Box<dyn Fn(u64, &mut [u8]) -> bool + Send + Sync>;

/// Holds what one thread works with: decoders and small buffers that are used again and again.
#[derive(Default)]
pub(crate) struct Workbench {
    pub(crate) decoder: Decoder,
    /// Encoded bytes of a run.
    pub(crate) encoded: Vec<u8>,
    /// Holds what comes out of a decoder when only a part of it is wanted.
    pub(crate) buffer: Vec<u8>,
    /// Made when it is first needed.
    pub(super) rolling: Option<RollingWindow>,
}

impl Serve {
    /// Serves so many readers with so much memory.
    pub(crate) fn new(strategy: Strategy, bytes_max: usize, readers: usize) -> Self {
        let memory = Memory::new(bytes_max);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            strategy,
            pclusters: Pclusters::new(memory.clone()),
            memory,
            counters: Counters::default(),
            streams: Streams::default(),
            on_neighbours: OnceLock::new(),
            on_rest: OnceLock::new(),
            on_packed: OnceLock::new(),
            neighbours_of_all: AtomicBool::new(false),
            benches: Mutex::default(),
            busy: AtomicUsize::new(0),
            cores: cores.min(readers),
        }
    }

    /// Takes memory, from the cache if need be; `None` for more than there can ever be. Whoever calls
    /// this holds no lease outside of the cache.
    pub(crate) fn lease(&self, bytes: usize) -> Option<Lease> {
        self.memory.lease(bytes, || self.pclusters.give_up_one())
    }

    /// Takes memory, from the cache if need be, without waiting for anyone.
    pub(crate) fn try_lease(&self, bytes: usize) -> Option<Lease> {
        loop {
            let lease = self.memory.try_lease(bytes);
            if lease.is_some() || !self.pclusters.give_up_one() {
                return lease;
            }
        }
    }

    /// Cores on which none of our threads is at work.
    pub(super) fn idle_cores(&self) -> usize {
        self.cores.saturating_sub(self.busy.load(Ordering::Relaxed))
    }

    pub(super) fn benches(&self) -> std::sync::MutexGuard<'_, Vec<Workbench>> {
        unpoisoned(self.benches.lock())
    }
}
