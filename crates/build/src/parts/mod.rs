//! Equal parts of files are stored once.
//!
//! All files that are compressed are read once more than others, by all workers, and cut into chunks by their content. A
//! chunk with the hash of an earlier one may be the same; runs of such chunks are compared byte by byte, and beyond
//! their ends as far as they are equal. What is left is decided in order by one thread, so neither the number of workers
//! nor the memory makes a difference: where files are cut, and what is taken from where. The more content there is, the longer are
//! the chunks, so there are never more of them than a table of fixed size holds.
//!
//! | module | job |
//! |---|---|
//! | `files` | files to pieces that are read at once |
//! | `chunker` | content to chunks |
//! | `matches` | chunks to runs that occurred before |
//! | `compare` | runs to matches, by their content |
//! | `cuts` | matches to cuts of files |

mod chunker;
mod compare;
mod cuts;
mod files;
mod matches;

use chunker::Chunk;
use cuts::Planner;
use files::{Files, Piece};
use matches::{KNOWN_MAX, Matches};

pub(crate) use chunker::Chunker;
pub(crate) use compare::{Pair, by_steps};
pub(crate) use cuts::{Cuts, Part, Shared};

use crate::Error;
use crate::look::Look;
use crate::plan::Plan;

/// The longest average of chunks. Of more content than there are chunks of this length only the front is known.
const AVERAGE_MAX: u64 = 512 << 10;

/// Parts of so many bytes are worth a cut with the longest pclusters as well.
const LEAST_MAX: u64 = 64 << 10;

/// Content is taken to shrink to this share of itself: its first part.
pub(crate) const SHRINKS_TO: u64 = 2;

/// The shortest part that is worth a cut has so many chunks of average length, or more.
const CHUNKS_LEAST: u64 = 4;

/// Finds what files have in common, and has the plan say where they are cut.
pub(crate) fn find(look: &Look<'_>, plan: &mut Plan) -> Result<(), Error> {
    let options = look.options;
    let Some(compression) = options.compression.filter(|_| options.dedupe) else {
        return Ok(());
    };
    let block_bytes = u64::from(options.block_bytes());
    let least = least(block_bytes, compression.pcluster_bytes.into());
    let files = Files::new(look, plan, block_bytes);
    let average = average(files.bytes, least);
    let chunker = Chunker::new(average as usize);
    let mut matches = Matches::default();
    // Extents are shared among files of one codec alone.
    let codecs = plan.ways.all_codecs();
    let seed = |id| {
        codecs
            .iter()
            .position(|known| plan.ways.codecs(id) == Some(*known))
    };
    let chunks = |look: &Look<'_>, piece: Piece| {
        let seed = seed(piece.0).unwrap_or(codecs.len()) as u64;
        chunks(look, chunker, seed, piece)
    };
    look.each(files.pieces(average), chunks, |chunks| {
        chunks.into_iter().for_each(|chunk| matches.add(chunk));
    })?;
    let runs = matches.finish();
    let mut planner = Planner::new(block_bytes, least);
    let compare = |look: &Look<'_>, runs: &_| compare::matches(look, &files, average, runs);
    look.each(files.groups(&runs), compare, |matches| {
        matches.iter().for_each(|found| planner.add(found));
    })?;
    // Packs cannot say that blocks belong to another file.
    let index_more = |id| plan.index_of(id).more_in_full(look.tree.node(id).size);
    plan.cuts = planner.finish(|id, bytes| bytes / SHRINKS_TO > index_more(id));
    Ok(())
}

/// Bytes that are worth a cut, which takes half a block on average, and a pcluster that begins with nothing to refer to.
pub(crate) fn least(block_bytes: u64, pcluster_bytes: u64) -> u64 {
    (3 * block_bytes).max((pcluster_bytes / 4).min(LEAST_MAX))
}

/// The average length of chunks of so much content.
fn average(bytes: u64, least: u64) -> u64 {
    let short = 1 << (least / CHUNKS_LEAST).max(256).ilog2();
    let few = bytes.div_ceil(KNOWN_MAX as u64).next_power_of_two();
    short.max(few).min(AVERAGE_MAX)
}

fn chunks(
    look: &Look<'_>,
    chunker: Chunker,
    seed: u64,
    (id, range): Piece,
) -> Result<Vec<Chunk>, Error> {
    let mut content = vec![0; (range.end - range.start) as usize];
    let file = look.source.open_file(look.tree, id)?;
    file.read(range.start, &mut content)?;
    file.finish()?;
    Ok(chunker.chunks(&content, seed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_get_longer_and_never_more_than_are_known() {
        assert_eq!(average(0, 16 << 10), 4096);
        assert_eq!(average(0, 12 << 10), 2048);
        assert_eq!(average(3 << 30, 16 << 10), 4096);
        assert_eq!(average(4 << 30, 16 << 10), 8192);
        assert_eq!(average(4 << 30, 2048), 8192);
        assert_eq!(average(1 << 20, 2048), 512);
        assert_eq!(average(1 << 50, 16 << 10), AVERAGE_MAX);
    }
}
