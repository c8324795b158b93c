//! The log's own record: the checkpoint names its inode, and no directory does.

use super::finding::{Fault, Place};
use super::records::About;
use super::{Sink, Walk};

impl<S: Sink> Walk<'_, S> {
    /// The inode of the record, if the checkpoint names one that can be it.
    pub(super) fn own_record(&mut self) -> Option<u32> {
        let record = self.state.own_record();
        record.unwrap_or_else(|error| {
            self.sink.find(Place::Checkpoint, Fault::OwnRecord(error));
            None
        })
    }

    /// Compares an inode that belongs to the log itself with the record, and with its names.
    pub(super) fn compare_own(&mut self, about: &About, names: u64, record: Option<u32>) {
        let is_record = record == Some(about.ino);
        if is_record && names > 0 {
            let fault = Fault::NamedRecord { ino: about.ino };
            self.sink.find(Place::Checkpoint, fault);
        }
        if !is_record || names > 0 {
            self.find_in(about.ino, Fault::Own { names });
        }
    }
}

impl About {
    /// Tells whether it belongs to the log itself.
    pub(super) fn is_own(&self) -> bool {
        self.marks & Self::OWN != 0
    }
}
