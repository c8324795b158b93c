//! Jobs, and the threads that do them.

use crossbeam_channel::Receiver;

use super::packed::PackedJob;
use super::run::{OpenFile, Run};
use crate::Reader;
use crate::parts::{Batch, PartReader};

/// Holds what a worker takes at a time.
pub(super) enum Job {
    /// Parts of files, as the walk met them.
    Parts(Batch<OpenFile>),
    /// Parts of files that lie in one extent of the packed inode.
    Packed(PackedJob),
}

impl From<Batch<OpenFile>> for Job {
    fn from(parts: Batch<OpenFile>) -> Self {
        Self::Parts(parts)
    }
}

impl Run<'_> {
    /// Takes jobs until there are no more. After the end of a run they are only let go of.
    pub(super) fn work(&self, jobs: Receiver<Job>) {
        let mut reader = PartReader::new(self.image);
        let mut decoder = Reader::new(self.image);
        for job in jobs {
            match job {
                Job::Parts(parts) => self.write_parts(&mut reader, parts),
                Job::Packed(packed) => self.unpack(&mut decoder, &mut reader, packed),
            }
        }
    }
}
