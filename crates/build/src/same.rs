//! Files with the same content are stored once.
//!
//! Only a file that has the size of another one can be the same. Those are read once more than others: they are told apart
//! by a hash, and what has the same hash is compared. Both is done by all workers, before any content is stored.

use std::collections::HashMap;

use anteros_core::FileKind;
use xxhash_rust::xxh3::Xxh3;

use crate::look::Look;
use crate::options::RAW_SEGMENT_BYTES;
use crate::plan::{Intent, Plan};
use crate::tree::{NodeId, Tree};
use crate::{Error, Options};

/// Finds the files that are the same as an earlier one, and has the plan say so.
pub(crate) fn find(look: &Look<'_>, plan: &mut Plan) -> Result<(), Error> {
    let Look { tree, options, .. } = *look;
    if !(options.dedupe || options.fragments.is_some()) {
        return Ok(());
    }
    let candidates = candidates(tree, plan, options);
    let hashes = look.all(&candidates, |look, id| look.hash(*id))?;
    let mut firsts = HashMap::new();
    let mut pairs = Vec::new();
    for (id, hash) in candidates.into_iter().zip(hashes) {
        let way = plan.ways.setting(id);
        let key = (tree.node(id).size, hash, way);
        let first = *firsts.entry(key).or_insert(id);
        if first != id {
            pairs.push((first, id));
        }
    }
    let same = look.all(&pairs, |look, (first, id)| look.are_same(*first, *id))?;
    let pairs = pairs.into_iter().zip(same).filter(|(_, same)| *same);
    for ((first, id), _) in pairs {
        plan.nodes[id as usize].intent = Intent::Same(first);
    }
    Ok(())
}

/// The files that may be the same as another one, in order.
fn candidates(tree: &Tree, plan: &Plan, options: &Options) -> Vec<NodeId> {
    let may_be = |id: &NodeId| {
        let node = tree.node(*id);
        let is_kept = match plan.node(*id).intent {
            Intent::Compress | Intent::Flat => true,
            // Fragments that are read at once are compared when they are there.
            Intent::Pack => node.size > RAW_SEGMENT_BYTES,
            _ => false,
        };
        node.kind == FileKind::Regular && is_kept && node.size > options.block_bytes().into()
    };
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for id in tree.ids().filter(may_be) {
        *counts.entry(tree.node(id).size).or_default() += 1;
    }
    let has_peer = |id: &NodeId| counts[&tree.node(*id).size] > 1;
    let order = plan.order.iter().copied();
    order.filter(may_be).filter(has_peer).collect()
}

impl Look<'_> {
    fn hash(&self, id: NodeId) -> Result<u128, Error> {
        let mut hash = Xxh3::new();
        self.read(id, |part| hash.update(part))?;
        Ok(hash.digest128())
    }

    fn are_same(&self, one: NodeId, other: NodeId) -> Result<bool, Error> {
        let mut buffers = (Vec::new(), Vec::new());
        let files = (
            self.source.open_file(self.tree, one)?,
            self.source.open_file(self.tree, other)?,
        );
        let mut same = true;
        for (offset, len) in self.steps(one) {
            self.check_cancelled()?;
            buffers.0.resize(len, 0);
            buffers.1.resize(len, 0);
            files.0.read(offset, &mut buffers.0)?;
            files.1.read(offset, &mut buffers.1)?;
            same = buffers.0 == buffers.1;
            if !same {
                break;
            }
        }
        files.0.finish()?;
        files.1.finish()?;
        Ok(same)
    }
}
