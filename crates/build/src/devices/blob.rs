//! A blob: the chunks of all files in chunks, each that has other content once, in the order in which files are stored.
//!
//! The files are read twice: all workers tell the chunks apart by their SHA-256 first. Those of nothing but zeros are holes.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use anteros_core::FileDevice;
use sha2::{Digest as _, Sha256};

use super::elsewhere::{Elsewhere, HOLE};
use super::table::{Devices, Slot};
use crate::Error;
use crate::look::Look;
use crate::output::Beside;
use crate::plan::{Intent, Plan};
use crate::tree::NodeId;

/// Bytes that are read at a time.
const STEP_BYTES: u64 = 1 << 20;

/// A part of a file, a chunk or the end of one.
#[derive(Debug, Clone, Copy)]
struct Part {
    node: NodeId,
    start: u64,
    end: u64,
}

/// Writes the chunks of all files that are to be stored in chunks.
pub(super) fn store(look: &Look<'_>, plan: &mut Plan, path: &Path) -> Result<Devices, Error> {
    let fail = |action, cause| Error::Image {
        path: path.to_owned(),
        action,
        cause,
    };
    refuse_occupied(look, path)?;
    let chunk_bytes = look.options.chunk_bytes.expect("as checked");
    let files = plan.order.iter().copied();
    let is_chunked = |id: &NodeId| matches!(plan.node(*id).intent, Intent::Chunks(_));
    let files: Vec<NodeId> = files.filter(is_chunked).collect();
    let parts: Vec<Part> = files
        .iter()
        .flat_map(|&id| parts(look, id, chunk_bytes))
        .collect();
    let digests = look.all(&parts, |look, part| look.digest(part))?;
    let blob = Beside::create(path).map_err(|e| fail("create", e))?;
    let mut writer = Writer {
        look,
        out: BufWriter::new(blob.file()),
        path,
        blocks: 0,
        digest: Sha256::new(),
        known: HashMap::new(),
    };
    let mut places: HashMap<NodeId, Vec<u32>> = HashMap::new();
    for (part, digest) in parts.into_iter().zip(digests) {
        let block = match digest {
            None => HOLE,
            Some(digest) => writer.chunk(part, digest)?,
        };
        places.entry(part.node).or_default().push(block);
    }
    writer.out.flush().map_err(|e| fail("write", e))?;
    let blocks = writer.blocks;
    let cookie = cookie(&writer.digest.clone().finalize().into());
    drop(writer);
    for (id, blocks) in places {
        let file = Elsewhere {
            device: 1,
            chunk_bits: chunk_bytes.ilog2(),
            blocks: blocks.into(),
        };
        plan.set_elsewhere(id, file);
    }
    let slot = Slot {
        blocks,
        tag: cookie,
        path: Some(path.to_owned()),
    };
    Ok(Devices {
        slots: vec![slot],
        place: None,
        blob: Some(blob),
    })
}

/// Digits of a hash: no more than a field has room for, with a zero byte behind them.
fn cookie(digest: &[u8; 32]) -> Vec<u8> {
    let digits = digest.iter().take(20).map(|byte| format!("{byte:02x}"));
    digits.collect::<String>().into_bytes()
}

fn refuse_occupied(look: &Look<'_>, path: &Path) -> Result<(), Error> {
    let found = FileDevice::open(path).and_then(|device| device.occupant());
    match found {
        Ok(Some(occupant)) if !look.options.overwrite => Err(Error::Occupied {
            path: path.to_owned(),
            occupant,
        }),
        _ => Ok(()),
    }
}

fn parts(look: &Look<'_>, node: NodeId, chunk_bytes: u64) -> impl Iterator<Item = Part> + use<> {
    let size = look.tree.node(node).size;
    (0..size)
        .step_by(chunk_bytes as usize)
        .map(move |start| Part {
            node,
            start,
            end: (start + chunk_bytes).min(size),
        })
}

impl Look<'_> {
    /// The digest of a part of a file; `None` if it is nothing but zeros.
    fn digest(&self, part: &Part) -> Result<Option<[u8; 32]>, Error> {
        let mut digest = Sha256::new();
        let mut is_zero = true;
        self.content(part, |bytes| {
            is_zero = is_zero && bytes.iter().all(|byte| *byte == 0);
            digest.update(bytes);
            Ok(())
        })?;
        Ok((!is_zero).then(|| digest.finalize().into()))
    }

    fn content(
        &self,
        part: &Part,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let file = self.source.open_file(self.tree, part.node)?;
        let mut buffer = Vec::new();
        for at in (part.start..part.end).step_by(STEP_BYTES as usize) {
            self.check_cancelled()?;
            buffer.resize(STEP_BYTES.min(part.end - at) as usize, 0);
            file.read(at, &mut buffer)?;
            take(&buffer)?;
        }
        file.finish()
    }
}

/// A blob that is being written.
struct Writer<'a, W: Write> {
    look: &'a Look<'a>,
    out: BufWriter<W>,
    path: &'a Path,
    blocks: u32,
    /// Of all bytes so far.
    digest: Sha256,
    /// The block of each chunk by its digest. Only the end of a file may be shorter than others.
    known: HashMap<(u64, [u8; 32]), u32>,
}

impl<W: Write> Writer<'_, W> {
    /// The block of a chunk, which is written if no other has its content.
    fn chunk(&mut self, part: Part, content: [u8; 32]) -> Result<u32, Error> {
        let key = (part.end - part.start, content);
        if let Some(&block) = self.known.get(&key) {
            return Ok(block);
        }
        let block = self.blocks;
        let block_bytes = u64::from(self.look.options.block_bytes());
        let len = (part.end - part.start).next_multiple_of(block_bytes);
        let behind = u64::from(block) + len / block_bytes;
        // The last number stands for holes.
        let behind = u32::try_from(behind).ok().filter(|end| *end < HOLE);
        self.blocks = behind.ok_or_else(|| Error::TooLarge {
            path: self.path.to_owned(),
            block_bytes: block_bytes as u32,
        })?;
        let Self {
            look,
            out,
            path,
            digest,
            known,
            ..
        } = self;
        let fail = |cause| Error::Image {
            path: path.to_path_buf(),
            action: "write",
            cause,
        };
        let mut write = |bytes: &[u8]| {
            digest.update(bytes);
            out.write_all(bytes).map_err(fail)
        };
        look.content(&part, &mut write)?;
        write(&vec![0; (len - key.0) as usize])?;
        known.insert(key, block);
        Ok(block)
    }
}
