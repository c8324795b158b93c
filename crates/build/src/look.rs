//! A look at files before any content is stored, by all workers, with results in order.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ordered::with_workers;
use crate::source::Source;
use crate::tree::{NodeId, Tree};
use crate::{Error, Options};

/// Bytes that are read at once.
const BUFFER_BYTES: u64 = 256 << 10;

/// Jobs that may wait for each worker.
const AHEAD: u64 = 64;

/// Means to look at files.
pub(crate) struct Look<'a> {
    pub source: &'a Source,
    pub tree: &'a Tree,
    pub options: &'a Options,
    pub cancel: &'a AtomicBool,
}

impl Look<'_> {
    /// Does something with all items, by all workers; the results are in order.
    pub fn all<T: Clone + Send, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&Self, &T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let mut results = Vec::with_capacity(items.len());
        let jobs = items.iter().cloned();
        self.each(
            jobs,
            |look, item| work(look, &item),
            |result| results.push(result),
        )?;
        Ok(results)
    }

    /// Does something with each item, by all workers, and hands on the results in order, as soon as they are there.
    pub fn each<T: Send, R: Send>(
        &self,
        items: impl Iterator<Item = T>,
        work: impl Fn(&Self, T) -> Result<R, Error> + Sync,
        mut hand_on: impl FnMut(R),
    ) -> Result<(), Error> {
        let new_worker = || |item: T| work(self, item);
        let budget = AHEAD * self.options.workers as u64;
        with_workers(self.options.workers, budget, new_worker, |pool| {
            for item in items {
                self.check_cancelled()?;
                while !pool.has_room(1) {
                    if let Some(result) = pool.take() {
                        hand_on(result?);
                    }
                }
                pool.submit(item, 1);
            }
            while let Some(result) = pool.take() {
                hand_on(result?);
            }
            Ok(())
        })
    }

    /// Hands over the content of a file, in parts.
    pub fn read(&self, id: NodeId, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut buffer = Vec::new();
        let file = self.source.open_file(self.tree, id)?;
        for (offset, len) in self.steps(id) {
            self.check_cancelled()?;
            buffer.resize(len, 0);
            file.read(offset, &mut buffer)?;
            take(&buffer);
        }
        file.finish()
    }

    /// The parts of a file that are read at once.
    pub fn steps(&self, id: NodeId) -> impl Iterator<Item = (u64, usize)> + use<> {
        let size = self.tree.node(id).size;
        let starts = (0..size).step_by(BUFFER_BYTES as usize);
        starts.map(move |start| (start, BUFFER_BYTES.min(size - start) as usize))
    }

    pub fn check_cancelled(&self) -> Result<(), Error> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}
