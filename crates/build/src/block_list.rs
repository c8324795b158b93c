//! The list of blocks that Android's update tools read: which files lie in which blocks of the image.
//!
//! Each regular file that has blocks has a line: its path when it is mounted, and ranges of blocks, in the order of its content.
//! The block of its inode is among them if content lies there.
//!
//! ```text
//! /system/bin/sh 1024-1100 2047
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anteros_core::FileKind;

use crate::attributes::mounted;
use crate::data::{Job, Stored};
use crate::layout::{Layout, Places};
use crate::plan::Intent;
use crate::tree::NodeId;
use crate::{Error, Options};

/// Bytes of the image, from and to.
type Bytes = (u64, u64);

/// An image of which everything is decided.
pub(crate) struct Known<'a> {
    pub job: &'a Job<'a>,
    pub stored: &'a [Stored],
    pub layout: &'a Layout,
    pub places: &'a Places,
}

impl Known<'_> {
    /// Writes the list, if one is wanted.
    pub fn write_list(&self) -> Result<(), Error> {
        let Some(path) = &self.options().block_list else {
            return Ok(());
        };
        self.write(path).map_err(|cause| Error::BlockList {
            path: path.clone(),
            cause,
        })
    }

    fn options(&self) -> &Options {
        self.job.options
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for id in self.job.tree.ids() {
            if self.job.tree.node(id).kind != FileKind::Regular {
                continue;
            }
            let blocks = self.blocks(id);
            if !blocks.is_empty() {
                file.write_all(b"/")?;
                file.write_all(&mounted(self.job.tree, id, self.options()))?;
                file.write_all(ranges(&blocks).as_bytes())?;
                file.write_all(b"\n")?;
            }
        }
        file.into_inner()?.sync_all()
    }

    /// The first and the last block of each part of a file, in the order of its content.
    fn blocks(&self, id: NodeId) -> Vec<(u64, u64)> {
        let bits = self.options().block_bits;
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for (start, end) in self.bytes(id) {
            let (first, last) = (start >> bits, (end - 1) >> bits);
            match blocks.last_mut() {
                Some(before) if (before.0..=before.1 + 1).contains(&first) => {
                    before.1 = before.1.max(last);
                }
                _ => blocks.push((first, last)),
            }
        }
        blocks
    }

    /// The parts of a file, none of which is empty.
    fn bytes(&self, id: NodeId) -> Vec<Bytes> {
        let size = self.job.tree.node(id).size;
        let at = |block: u32| u64::from(block) << self.options().block_bits;
        let mut bytes = match (&self.stored[id as usize], &self.job.plan.node(id).intent) {
            (
                Stored::Flat {
                    first_block,
                    inline,
                },
                _,
            ) => {
                vec![(at(*first_block), at(*first_block) + size - inline)]
            }
            (Stored::Chunked { first_block }, Intent::Chunks(chunked)) => {
                let block_bytes = u64::from(self.options().block_bytes());
                let len = |(start, end): &(u64, u64)| (end - start).next_multiple_of(block_bytes);
                let len: u64 = chunked.runs.iter().map(len).sum();
                vec![(at(*first_block), at(*first_block) + len)]
            }
            (Stored::Compressed { body, .. }, _) => body.places().collect(),
            _ => Vec::new(),
        };
        bytes.extend(self.inline(id));
        bytes.retain(|(start, end)| start < end);
        bytes
    }

    /// The byte of the image behind which a part of the content lies with the inode, in one block. In the metabox it has no
    /// block of its own.
    fn inline(&self, id: NodeId) -> Option<Bytes> {
        let inline = match &self.stored[id as usize] {
            Stored::Flat { inline, .. } => *inline,
            Stored::Compressed { tail, .. } => tail.inline_bytes(),
            _ => 0,
        };
        let start = self.places.inode(self.layout.inodes[id as usize])?;
        (inline > 0).then_some((start, start + 1))
    }
}

/// Ranges as they stand in the list, each with a blank in front.
fn ranges(blocks: &[(u64, u64)]) -> String {
    let range = |(first, last): &(u64, u64)| match first == last {
        true => format!(" {first}"),
        false => format!(" {first}-{last}"),
    };
    blocks.iter().map(range).collect()
}
