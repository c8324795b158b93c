//! Files whose content a patch changes: what of it stays where it is, by the way in which the file is to be stored.

use anteros_core::{FileKind, FsResult};

use super::chunks;
use super::content::{Collector, Former, Rules};
use super::equal::{self, Equal};
use super::kept::Kept;
use super::matching::{Origin, Pair};
use crate::Error;
use crate::parts::{Cuts, Shared};
use crate::plan::{Intent, Plan};
use crate::sparse::ChunkedFile;
use crate::tree::NodeId;

/// The rest of a file's content that stays.
pub(super) enum Remains {
    Nothing,
    /// This, in these parts.
    Content(Kept, Vec<Shared>),
    /// Some chunks.
    Chunks(ChunkedFile),
}

impl Remains {
    /// Bytes of the file that stay where they are.
    pub fn bytes(&self, size: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Content(_, shared) if shared.is_empty() => size,
            Self::Content(_, shared) => shared.iter().map(|part| part.end - part.start).sum(),
            Self::Chunks(file) => file.kept.iter().map(|run| run.end - run.start).sum(),
        }
    }

    /// Has the plan say so.
    pub fn put(self, id: NodeId, plan: &mut Plan) {
        match self {
            Self::Nothing => {}
            Self::Content(kept, shared) => {
                if !shared.is_empty() {
                    plan.nodes[id as usize].intent = Intent::Compress;
                    plan.cuts.insert(id, Cuts::sharing(shared));
                }
                plan.kept.insert(id, kept);
            }
            Self::Chunks(file) => {
                plan.nodes[id as usize].intent = Intent::Chunks(Box::new(file));
            }
        }
    }
}

impl Origin<'_> {
    /// Returns whether both forms of a file have content.
    pub(super) fn has_content(&self, Pair { id, before }: Pair) -> bool {
        let both = [self.look.tree.node(id), self.former.tree.node(before)];
        let has_content = |kind, size| kind == FileKind::Regular && size > 0;
        both.iter().all(|node| has_content(node.kind, node.size))
    }

    /// Finds the content of a file that changes which stays.
    pub(super) fn remains(&self, pair: Pair, plan: &Plan) -> Result<Remains, Error> {
        let Pair { id, before } = pair;
        let (node, was) = (self.look.tree.node(id), self.former.tree.node(before));
        let block_bytes = self.look.options.block_bytes().into();
        if node.size <= block_bytes || was.size <= block_bytes {
            return Ok(Remains::Nothing);
        }
        let new = self.look.source.open_file(self.look.tree, id)?;
        let old = self.former.source.open_file(&self.former.tree, before)?;
        let (new, old) = ((new, node.size), (old, was.size));
        let data = self.with_data(pair, plan)?;
        let equals = match data.bytes() < node.size {
            true => equal::in_place(self.look, new, old, &data)?,
            false => equal::runs(self.look, new, old)?,
        };
        let found = match plan.node(id).intent {
            Intent::Compress | Intent::Pack => self.extents(pair, &equals, plan),
            Intent::Flat | Intent::Chunks(_) => self.blocks(pair, &equals, plan),
            _ => Ok(Remains::Nothing),
        };
        found.map_err(|cause| self.fault(id, cause))
    }

    fn former_of(&self, before: NodeId) -> Former<'_> {
        Former {
            base: self.base,
            ino: self.ino(before),
        }
    }

    /// The extents that stay of a file that is to be compressed.
    fn extents(&self, pair: Pair, equals: &[Equal], plan: &Plan) -> FsResult<Remains> {
        let Pair { id, before } = pair;
        let Some(setting) = plan.ways.setting(id) else {
            return Ok(Remains::Nothing);
        };
        let (codec, _) = setting.codecs();
        let options = self.look.options;
        let rules = Rules::new(
            options,
            codec.algorithm(),
            setting.pcluster_bytes,
            self.may_share,
        );
        let size = self.look.tree.node(id).size;
        let mut collector = Collector::new(self.former_of(before), rules, size);
        for equal in equals {
            collector.add(equal)?;
        }
        let found = collector.finish(id);
        Ok(found.map_or(Remains::Nothing, |(kept, shared)| {
            Remains::Content(kept, shared)
        }))
    }

    /// The blocks that stay of a file that is not to be compressed.
    fn blocks(&self, pair: Pair, equals: &[Equal], plan: &Plan) -> FsResult<Remains> {
        let Pair { id, before } = pair;
        let (node, was) = (self.look.tree.node(id), self.former.tree.node(before));
        let block_bits = self.look.options.block_bits;
        let sizes = (node.size, was.size);
        let former = self.former_of(before);
        let kept = chunks::blocks(&former, equals, sizes, block_bits)?;
        let (file, end) = match &plan.node(id).intent {
            Intent::Chunks(file) => ((**file).clone(), 0),
            _ => {
                let block_bytes = 1 << block_bits;
                let file = ChunkedFile::whole(node.size, block_bytes, block_bits);
                (file, node.size - plan.inline_bytes(id, node))
            }
        };
        if let Some(block) = chunks::flat(&kept, end) {
            return Ok(Remains::Content(Kept::Flat(block), Vec::new()));
        }
        let flat_bytes = match end {
            0 => file.stored_bytes(node.size),
            _ => node.size,
        };
        let chunked = file.patched(node.size, &kept, block_bits);
        Ok(match chunked.stored_bytes(node.size) < flat_bytes {
            true => Remains::Chunks(chunked),
            false => Remains::Nothing,
        })
    }
}
