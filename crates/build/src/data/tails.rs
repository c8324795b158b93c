//! The ends of files behind their inodes, compressed again where they were not kept.

use super::job::Job;
use crate::Error;
use crate::compress::Compressor;
use crate::extent::Extent;
use crate::tree::NodeId;

/// Compresses ends of files again, for one thread.
pub(crate) struct Tails<'a> {
    job: &'a Job<'a>,
    /// Made for the first one.
    compressor: Option<Compressor>,
    /// Reused from file to file.
    content: Vec<u8>,
}

impl<'a> Tails<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        Self {
            job,
            compressor: None,
            content: Vec::new(),
        }
    }

    /// The compressor of the thread.
    pub fn compressor(&mut self) -> &mut Compressor {
        self.compressor.get_or_insert_with(|| self.job.compressor())
    }

    /// Appends the last extent of a file, which takes so many bytes.
    pub fn append(
        &mut self,
        id: NodeId,
        extent: &Extent,
        bytes: u16,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Job {
            tree, source, ends, ..
        } = self.job;
        if ends.append(self.job.first_of(id), out) {
            return Ok(());
        }
        let node = tree.node(id);
        self.content.resize(extent.len as usize, 0);
        let file = source.open_file(tree, id)?;
        file.read(node.size - u64::from(extent.len), &mut self.content)?;
        file.finish()?;
        if extent.plain {
            out.extend_from_slice(&self.content);
            return Ok(());
        }
        let room = self.job.plan.tail_room(id, node) as usize;
        let compressor = self.compressor.get_or_insert_with(|| self.job.compressor());
        compressor.set(self.job.setting(id));
        let inline = compressor.inline(&self.content, room);
        let inline = inline.map_err(|stopped| self.job.stopped(id, stopped))?;
        let same = inline.filter(|inline| inline.bytes.len() == usize::from(bytes));
        let path = || source.full_path(tree, id);
        let same = same.ok_or_else(|| Error::Changed { path: path() })?;
        out.extend_from_slice(&same.bytes);
        Ok(())
    }
}
