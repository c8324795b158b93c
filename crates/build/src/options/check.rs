//! The checks that make a build sound.

use std::ops::RangeInclusive;

use anteros_codec::Codec;
use anteros_format::PCLUSTER_BYTES_MAX;
use anteros_format::superblock::BLOCK_BITS;

use super::compression::{Compression, Quick, Setting};
use super::{Content, HashTree, LABEL_BYTES_MAX, Options, PCLUSTER_BLOCKS_MAX, appending, owner};
use crate::Error;
use crate::prefixes::Prefixes;

/// Most bytes to a multiple of which content, or the image, is aligned.
const ALIGNMENT_BYTES_MAX: u64 = 1 << 30;

/// Most bytes for the attributes of the root, as mkfs.erofs has it.
const ROOT_XATTR_BYTES_MAX: u32 = 65_532;

/// Blocks of archives have two to this bytes.
const TAR_BLOCK_BITS: u8 = 9;

/// Shift limits of a chunk, relative to the block size: the field has 5 bits.
const CHUNK_SHIFTS: RangeInclusive<u32> = 0..=31;

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Option(text));
        if !BLOCK_BITS.contains(&self.block_bits) {
            let bits = self.block_bits;
            return refuse(format!(
                "blocks of 2^{bits} bytes; 2^9 to 2^16 are possible"
            ));
        }
        if self.label.len() > LABEL_BYTES_MAX || self.label.contains(&0) {
            let label = self.label.escape_ascii();
            return refuse(format!(
                "the label `{label}`; {LABEL_BYTES_MAX} bytes without NUL are the most"
            ));
        }
        if self.workers == 0 {
            return refuse("no workers; at least one is needed".into());
        }
        if self.offset % 512 != 0 {
            return refuse(format!("the offset {} is no multiple of 512", self.offset));
        }
        owner::check("owner", &self.uid_map)?;
        owner::check("group", &self.gid_map)?;
        self.check_alignment("content is to be aligned", self.data_align_blocks)?;
        self.check_alignment("the image is to be aligned", self.image_align_blocks)?;
        if self.root_xattr_bytes > ROOT_XATTR_BYTES_MAX {
            let bytes = self.root_xattr_bytes;
            return refuse(format!(
                "{bytes} bytes for the attributes of the root; {ROOT_XATTR_BYTES_MAX} are the most"
            ));
        }
        if let Some(bytes) = self.hot_pcluster_bytes {
            let is_whole = bytes > 0 && bytes % self.block_bytes() == 0;
            if !is_whole || bytes > PCLUSTER_BYTES_MAX {
                return refuse(format!(
                    "clusters of {bytes} bytes for what is read; whole blocks of {} bytes, 1 MiB at most, are possible",
                    self.block_bytes()
                ));
            }
        }
        if self.blob_device.is_some() && self.chunk_bytes.is_none() {
            return refuse("a blob holds chunks, and no size of them is told".into());
        }
        if self.tar_index && self.blob_device.is_some() {
            return refuse("an index of an archive leaves nothing for a blob".into());
        }
        if self.tar_index && self.block_bits != TAR_BLOCK_BITS {
            let bytes = self.block_bytes();
            return refuse(format!(
                "an index with blocks of {bytes} bytes; those of archives have 512"
            ));
        }
        appending::check(self)?;
        if let Some(why) = self.content_fault() {
            return refuse(why.into());
        }
        if self.android_sparse && self.offset > 0 {
            return refuse("a sparse image begins with its file, and has no offset".into());
        }
        self.check_chunks()?;
        self.hash_tree.as_ref().map_or(Ok(()), HashTree::check)?;
        Prefixes::of(self)?;
        if let Some(bytes) = self.packed_pcluster_bytes() {
            check_pcluster(bytes, self.block_bytes())?;
        }
        if self.compression.is_none() && self.compress_directories {
            return refuse("directories are to be compressed, but there is no compression".into());
        }
        if self.compression.is_none() && !self.hints.is_empty() {
            return refuse("hints how to compress, but no compression".into());
        }
        for setting in self.settings() {
            setting.check(self.block_bytes())?;
        }
        self.compression
            .map_or(Ok(()), |c| c.check(self.block_bytes()))
    }

    /// Fails if options ask for what cannot be written to anything but a file; `in_order` if a spool keeps the image before.
    pub(crate) fn check_stream(&self, in_order: bool) -> Result<(), Error> {
        let refused = [
            (
                self.hash_tree.is_some() && !in_order,
                "a hash tree needs an image that can be read back, and a sink is none",
            ),
            (
                self.android_sparse && !in_order,
                "a sparse image is written in order, and into no sink",
            ),
            (
                self.append.is_some(),
                "only an image in a file can be appended to",
            ),
            (
                self.offset > 0 && in_order,
                "an offset has a meaning in files alone",
            ),
        ];
        let refused = refused.iter().find(|(is_refused, _)| *is_refused);
        refused.map_or(Ok(()), |(_, why)| Err(Error::Option((*why).into())))
    }

    /// Returns why content cannot be treated as is wished.
    fn content_fault(&self) -> Option<&'static str> {
        let is_unread = matches!(self.content, Content::Reserve | Content::Zero);
        let has_device = self.tar_index || self.blob_device.is_some();
        let faults = [
            (
                self.content != Content::Copy && has_device,
                "content can go to an extra device only if all of it is read",
            ),
            (
                is_unread && self.digest_xattr.is_some(),
                "digests of content are wished, and none is read",
            ),
            (
                self.bare_headers && !is_unread,
                "an archive of headers alone has no content to store",
            ),
        ];
        let fault = faults.into_iter().find(|(is_fault, _)| *is_fault);
        fault.map(|(_, why)| why)
    }

    fn check_alignment(&self, what: &str, blocks: u32) -> Result<(), Error> {
        let bytes = u64::from(blocks) << self.block_bits;
        if blocks > 0 && bytes <= ALIGNMENT_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Option(format!(
            "{what} to {blocks} blocks of {} bytes; 1 block to {ALIGNMENT_BYTES_MAX} bytes are possible",
            self.block_bytes()
        )))
    }

    fn check_chunks(&self) -> Result<(), Error> {
        let Some(bytes) = self.chunk_bytes else {
            return Ok(());
        };
        let shift = bytes
            .checked_ilog2()
            .and_then(|b| b.checked_sub(self.block_bits.into()));
        if bytes.is_power_of_two() && shift.is_some_and(|s| CHUNK_SHIFTS.contains(&s)) {
            return Ok(());
        }
        Err(Error::Option(format!(
            "chunks of {bytes} bytes; a power of two from {} on is needed",
            self.block_bytes()
        )))
    }
}

impl Compression {
    fn check(&self, block_bytes: u32) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.segment_bytes == 0 || self.segment_bytes % block_bytes != 0 {
            let bytes = self.segment_bytes;
            return refuse(format!(
                "segments of {bytes} bytes; multiples of {block_bytes} are possible"
            ));
        }
        if self.window_bytes < block_bytes {
            let bytes = self.window_bytes;
            return refuse(format!(
                "a window of {bytes} bytes; a block has {block_bytes}"
            ));
        }
        if self.min_gain_percent > 100 {
            return refuse(format!("a gain of {} percent", self.min_gain_percent));
        }
        Ok(())
    }
}

impl Setting {
    fn check(&self, block_bytes: u32) -> Result<(), Error> {
        check_pcluster(self.pcluster_bytes, block_bytes)?;
        let checked = self.codec.check();
        checked.map_err(|e| Error::Option(e.to_string()))?;
        self.quick.map_or(Ok(()), |quick| quick.check(self.codec))
    }
}

impl Quick {
    fn check(&self, first: Codec) -> Result<(), Error> {
        if self.percent > 100 {
            let percent = self.percent;
            return Err(Error::Option(format!(
                "{percent} percent of room for quick clusters; 100 are the most"
            )));
        }
        let Some(codec) = self.codec else {
            return Ok(());
        };
        if codec.algorithm() == first.algorithm() {
            return Err(Error::Option(format!(
                "quick clusters by {0}, as all others; another algorithm is needed",
                first.algorithm()
            )));
        }
        let checked = codec.check();
        checked.map_err(|e| Error::Option(e.to_string()))
    }
}

fn check_pcluster(bytes: u32, block_bytes: u32) -> Result<(), Error> {
    let max = PCLUSTER_BYTES_MAX.min(PCLUSTER_BLOCKS_MAX * block_bytes);
    if bytes > 0 && bytes % block_bytes == 0 && bytes <= max {
        return Ok(());
    }
    Err(Error::Option(format!(
        "pclusters of {bytes} bytes; multiples of {block_bytes} up to {max} are possible"
    )))
}
