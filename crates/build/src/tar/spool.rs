//! A file without a name, for the content of members that come as a stream. It is gone with this process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fault::Fault;

/// Bytes of content that are added at once.
pub(super) const STEP_BYTES: usize = 128 << 10;
/// Bytes that are gathered for one write.
const SPOOL_BYTES: usize = 1 << 20;

/// A file without a name, for the content of members.
pub(super) struct Spool {
    file: File,
    directory: PathBuf,
    /// Bytes so far.
    pub len: u64,
    /// The last of them, which are not written yet.
    gathered: Vec<u8>,
}

impl Spool {
    pub fn create(directory: &Path) -> Result<Self, Fault> {
        let file = tempfile::tempfile_in(directory).map_err(|cause| Fault::Spool {
            directory: directory.to_owned(),
            len: 0,
            cause,
        })?;
        Ok(Self {
            file,
            directory: directory.to_owned(),
            len: 0,
            gathered: Vec::with_capacity(SPOOL_BYTES),
        })
    }

    /// Adds content. Long parts that are all zeros take no room.
    pub fn append(&mut self, data: &[u8]) -> Result<(), Fault> {
        let is_hole = data.len() == STEP_BYTES && data.iter().all(|byte| *byte == 0);
        if is_hole || self.gathered.len() + data.len() > SPOOL_BYTES {
            self.flush()?;
        }
        if !is_hole {
            self.gathered.extend_from_slice(data);
        }
        self.len += data.len() as u64;
        Ok(())
    }

    /// Adds bytes at once, and tells where they lie.
    pub fn append_records(&mut self, records: &[u8]) -> Result<u64, Fault> {
        self.flush()?;
        let place = self.len;
        let written = self.file.write_all_at(records, place);
        written.map_err(|cause| self.fault(cause))?;
        self.len += records.len() as u64;
        Ok(place)
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), Fault> {
        let start = self.len - self.gathered.len() as u64;
        let written = self.file.write_all_at(&self.gathered, start);
        written.map_err(|cause| self.fault(cause))?;
        self.gathered.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<File, Fault> {
        self.flush()?;
        let cut = self.file.set_len(self.len);
        cut.map_err(|cause| self.fault(cause))?;
        Ok(self.file)
    }

    fn fault(&self, cause: std::io::Error) -> Fault {
        Fault::Spool {
            directory: self.directory.clone(),
            len: self.len,
            cause,
        }
    }
}
