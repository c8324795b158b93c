//! Threads that compress files of a stream while another reads it.

use std::sync::atomic::AtomicBool;

use super::fault::Fault;
use super::spool::Spool;
use crate::Options;
use crate::compress::{Compressor, Stopped};
use crate::early::{Coding, Record, Run, Segments, compression};
use crate::options::Compression;
use crate::ordered::{Ordered, with_workers};

/// Bytes of content at which a batch is large enough.
const BATCH_BYTES: usize = 512 << 10;

/// Batches under way for each worker: while it is at one, others are read and written.
const BATCHES_PER_WORKER: usize = 4;

/// Segments that a worker is given at once.
#[derive(Default)]
struct Batch {
    content: Vec<u8>,
    lens: Vec<usize>,
}

/// Segments as a worker gives them back: records, whose places count from the front.
struct Packed {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

/// Compresses the files of a stream while it is read.
pub(crate) struct Early<'a> {
    pool: &'a mut Ordered<Batch, Result<Packed, Stopped>>,
    compression: Compression,
    block_bytes: u64,
    /// Most batches under way.
    batches_max: usize,
    coding: Coding,
    batch: Batch,
    /// Number of the next segment.
    next: u64,
    records: Vec<Record>,
}

impl Early<'_> {
    /// Runs `body` beside threads that compress; without them where the options do not allow it.
    pub fn beside<T>(
        options: &Options,
        cancel: &AtomicBool,
        body: impl FnOnce(Option<Early<'_>>) -> T,
    ) -> T {
        let (Some(compression), Some(coding)) = (compression(options), Coding::of(options)) else {
            return body(None);
        };
        let new_worker = || {
            let mut compressor = Compressor::of(options);
            move |batch: Batch| pack(&mut compressor, &batch, cancel)
        };
        // The other half is for the tree.
        let budget = options.content_bytes() / 2;
        let workers = options.compressing_workers();
        with_workers(workers, budget, new_worker, |pool| {
            body(Some(Early {
                pool,
                compression,
                block_bytes: options.block_bytes().into(),
                batches_max: workers * BATCHES_PER_WORKER,
                coding,
                batch: Batch::default(),
                next: 0,
                records: Vec::new(),
            }))
        })
    }

    /// Returns whether a file of so many bytes is compressed early. One of a block is better kept as it is.
    pub fn takes(&self, file_bytes: u64) -> bool {
        file_bytes > self.block_bytes
    }

    /// Begins a file: tells into which segments it is cut.
    pub fn file(&mut self, bytes: u64) -> Run {
        let segment_bytes = self.compression.segment_bytes_of(bytes);
        let run = Run {
            first: self.next,
            segment_bytes: segment_bytes as u32, // some MiB
        };
        self.next += bytes.div_ceil(segment_bytes);
        run
    }

    /// Room for the content of the next segment.
    pub fn segment(&mut self, len: usize) -> &mut [u8] {
        let Batch { content, lens } = &mut self.batch;
        let start = content.len();
        content.resize(start + len, 0);
        lens.push(len);
        &mut content[start..]
    }

    /// Has the segments so far compressed, if they are enough, and takes what is ready.
    pub fn settle(&mut self, spool: &mut Spool) -> Result<(), Fault> {
        match self.batch.content.len() < BATCH_BYTES {
            true => Ok(()),
            false => self.submit(spool),
        }
    }

    /// Takes all segments.
    pub fn finish(mut self, spool: &mut Spool) -> Result<Segments, Fault> {
        self.submit(spool)?;
        while let Some(packed) = self.pool.take() {
            self.keep(packed, spool)?;
        }
        Ok(Segments::new(self.records, self.coding))
    }

    fn submit(&mut self, spool: &mut Spool) -> Result<(), Fault> {
        let batch = std::mem::take(&mut self.batch);
        let cost = 2 * batch.content.len() as u64;
        while let Some(packed) = self.pool.try_take() {
            self.keep(packed, spool)?;
        }
        while !self.pool.has_room(cost) || self.pool.len() >= self.batches_max {
            if let Some(packed) = self.pool.take() {
                self.keep(packed, spool)?;
            }
        }
        self.pool.submit(batch, cost);
        Ok(())
    }

    fn keep(&mut self, packed: Result<Packed, Stopped>, spool: &mut Spool) -> Result<(), Fault> {
        let packed = packed.map_err(|stopped| match stopped {
            Stopped::Cancelled => Fault::Cancelled,
            Stopped::Failed(cause) => Fault::Compress(cause),
        })?;
        let start = spool.append_records(&packed.bytes)?;
        let placed = packed.records.into_iter().map(|record| Record {
            place: start + record.place,
            ..record
        });
        self.records.extend(placed);
        Ok(())
    }
}

/// Compresses segments.
fn pack(
    compressor: &mut Compressor,
    batch: &Batch,
    cancel: &AtomicBool,
) -> Result<Packed, Stopped> {
    let mut packed = Packed {
        bytes: Vec::new(),
        records: Vec::with_capacity(batch.lens.len()),
    };
    let (mut rest, mut blocks, mut extents) = (&batch.content[..], Vec::new(), Vec::new());
    for len in &batch.lens {
        let (segment, behind) = rest.split_at(*len);
        blocks.clear();
        extents.clear();
        compressor.segment(segment, false, &mut blocks, &mut extents, cancel)?;
        let record = Record::append(&extents, &blocks, &mut packed.bytes);
        packed.records.push(record);
        rest = behind;
    }
    Ok(packed)
}
