//! Serving reads of any part of any file, in bounded memory (EROFS paper, §3.2, §3.3, §4.2, §4.3).
//!
//! ```text
//!   a request ─► its extents ─┬─ whole ones ──► run: read into the end of the request's own buffer,
//!                             │                 decoded over themselves: no other memory
//!                             ├─ parts ───────► part: through the cache of pclusters
//!                             └─ plain, holes ► straight through
//! ```
//!
//! - `run`: pclusters that the request uses up at once, many with one read of the device.
//! - `part`: pclusters of which a request uses a part.
//! - `pclusters`: the cache of the latter; one reader makes an entry, the others wait for it.
//! - `parked`: decoders suspended in the middle of a long extent.
//! - `ahead`: what the device is asked for before anyone wants it.
//! - `memory`: the account of what all of that takes.
//! - `counters`: what it costs.
//!
//! What decodes is the worker that took the request; it borrows a [`Workbench`] for that. The plain
//! way to the same bytes, for jobs that read everything once, is [`Reader`](crate::Reader); tests
//! compare the two.

pub(crate) mod ahead;
pub(crate) mod counters;
pub(crate) mod memory;
pub(crate) mod parked;
pub(crate) mod part;
pub(crate) mod pclusters;
pub(crate) mod run;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anteros_codec::{Decoder, Params, RollingWindow};
use anteros_core::Algorithm;
use anteros_format::inode::Inode;
use anteros_format::{EXTENT_BYTES_MAX, Nid, PCLUSTER_BYTES_MAX};

use crate::map::{Location, Source};
use crate::{Image, Map};
use ahead::Streams;
use counters::{Counters, ReadStatistics, add};
use memory::{Lease, Memory};
use parked::Rest;
use pclusters::Pclusters;

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
    streams: Streams,
    pub(crate) on_neighbours: OnceLock<NeighbourHook>,
    pub(crate) on_rest: OnceLock<RestHook>,
    /// Tells whether short extents, which cost little to decode, are decoded whole for their neighbours.
    pub(crate) neighbours_of_all: AtomicBool,
    benches: Mutex<Vec<Workbench>>,
    /// Threads at work.
    busy: AtomicUsize,
    /// On so many cores, and no more than there are benches for.
    cores: usize,
}

/// Told of decoded bytes of a file that nobody asked for: the file, the offset, the bytes. Says whether it
/// took them all.
pub(crate) type NeighbourHook = Box<dyn Fn(Nid, u64, &[u8]) -> bool + Send + Sync>;

/// Told of the rest of a long extent to which readers came back.
pub(crate) type RestHook = Box<dyn Fn(Rest) + Send + Sync>;

/// Holds what one thread works with: decoders and small buffers that are used again and again.
#[derive(Default)]
pub(crate) struct Workbench {
    pub(crate) decoder: Decoder,
    /// Encoded bytes of a run.
    pub(crate) encoded: Vec<u8>,
    /// Holds what comes out of a decoder when only a part of it is wanted.
    pub(crate) buffer: Vec<u8>,
    /// Made when it is first needed.
    rolling: Option<RollingWindow>,
}

/// The longest front that is decoded into a worker's buffer; longer ones of LZ4 go through the rolling
/// window.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Sizes what readers ask for: pages, of this size or a multiple of it.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Encoded bytes that a run gathers, besides those that lie in the reader's buffer. A single larger
/// pcluster is a run of its own.
pub(crate) const RUN_BYTES: usize = 128 << 10;

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
    fn idle_cores(&self) -> usize {
        self.cores.saturating_sub(self.busy.load(Ordering::Relaxed))
    }

    fn benches(&self) -> std::sync::MutexGuard<'_, Vec<Workbench>> {
        self.benches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

    /// Returns what the image says about its streams.
    pub(crate) const fn params(&self) -> Params {
        Params {
            lzma_dict_bytes: self.compr_cfgs().lzma_dict_bytes,
            zstd_window_log: self.compr_cfgs().zstd_window_log,
        }
    }

    /// The least [`cache_bytes`](crate::OpenOptions::cache_bytes) that so many reading threads need,
    /// whose reads are so long: a cache of metadata, what each thread keeps for itself, and what one
    /// of them may need for the largest pcluster that the format allows.
    pub fn cache_bytes_min(&self, readers: usize, read_bytes: usize) -> usize {
        let data = self.read_memory_min() + readers * self.bench_memory(read_bytes);
        // An eighth of all is for metadata.
        data + data.div_ceil(7)
    }

    /// The most memory that a single read may need at a time besides what its thread keeps, in bytes:
    /// a pcluster and what decoding it from its beginning takes.
    pub(crate) fn read_memory_min(&self) -> usize {
        // An inline pcluster's may be wanted while another's is held.
        const SPARE: usize = 64 << 10;
        let decoding = self.decoder_bytes(EXTENT_BYTES_MAX as usize);
        PCLUSTER_BYTES_MAX as usize + parked::RECENT_BYTES + SPARE + decoding
    }

    /// Memory that no read needs, in bytes.
    pub(crate) fn spare_memory(&self) -> usize {
        self.serve.memory.limit() - self.read_memory_min()
    }

    /// The most memory that a thread keeps for itself from one read to the next, in bytes. What its
    /// decoders decode is never longer than a read.
    pub(crate) fn bench_memory(&self, read_bytes: usize) -> usize {
        let window = RollingWindow::KEPT_MAX.max(self.lz4_bytes_max());
        RUN_BYTES + BUFFER_BYTES + window + self.decoder_bytes(read_bytes)
    }

    /// The longest LZ4 pcluster that the image says it has, in bytes.
    pub(crate) fn lz4_bytes_max(&self) -> usize {
        let blocks = usize::from(self.compr_cfgs().lz4_max_pcluster_blocks).max(1);
        let bytes = blocks * self.superblock().block_bytes() as usize;
        bytes.min(PCLUSTER_BYTES_MAX as usize)
    }

    /// Returns what the decoders for the algorithms of the image take, if so many bytes are decoded at once.
    fn decoder_bytes(&self, longest: usize) -> usize {
        let listed = |algorithm: &Algorithm| self.superblock().algorithms.contains(*algorithm);
        let algorithms = Algorithm::ALL.into_iter().filter(listed);
        algorithms
            .map(|algorithm| self.params().memory_bytes(algorithm, longest))
            .sum()
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
