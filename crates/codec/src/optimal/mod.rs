//! An encoder of LZ4 blocks that takes as much input as any can into a given number of bytes.
//!
//! The parse is optimal, except for matches that a limited search does not find. `parse.rs` has the
//! parse, `chains.rs` the search, and `lazy.rs` a quicker parse. The chains are kept from block to
//! block.

mod chains;
mod lanes;
mod lazy;
mod parse;
#[cfg(test)]
mod tests;

use std::ops::Range;

use chains::{Chains, Depth};
use lazy::Parsed;
use parse::{Block, Parser};

use crate::Encoded;
use crate::sequences;

/// Candidates for a match of the optimal parse where a lazy one turns to it.
const DENSE_CANDIDATES: usize = 32;
/// So many candidates promise the best parse, for which matches of four bytes are looked for at more positions.
const THOROUGH_CANDIDATES: usize = 1024;
/// Candidates there.
const SHORTEST_CANDIDATES: usize = 8;

/// The working memory of an encoder.
pub(crate) struct Optimal {
    chains: Chains,
    parser: Parser,
    depth: Depth,
    is_lazy: bool,
}

impl Optimal {
    /// An encoder that looks at so many candidates for a match.
    pub fn new(candidates: usize) -> Self {
        Self {
            chains: Chains::new(),
            parser: Parser::new(),
            depth: Depth {
                candidates,
                shortest: match candidates {
                    THOROUGH_CANDIDATES.. => SHORTEST_CANDIDATES,
                    _ => 0,
                },
                nice: parse::TAKEN,
            },
            is_lazy: false,
        }
    }

    /// An encoder that does so at few positions, and takes what it finds there. In data that shrink to a third or less it
    /// goes on with an optimal parse, which is as quick there with few candidates.
    pub fn lazy(candidates: usize) -> Self {
        Self {
            is_lazy: true,
            ..Self::new(candidates)
        }
    }

    /// Begins with other data: nothing is remembered of what came before.
    pub fn restart(&mut self) {
        self.chains.restart();
    }

    /// Compresses as much of `data[start..end]` as fits into `out`.
    ///
    /// Blocks of the same data begin one behind the other. The block depends on the bytes from `start` on alone.
    pub fn encode(&mut self, data: &[u8], start: usize, end: usize, out: &mut [u8]) -> Encoded {
        let block = Block {
            data,
            start,
            end,
            budget: u32::try_from(out.len()).unwrap_or(u32::MAX >> 1),
            depth: self.depth,
        };
        if block.budget == 0 || start == end {
            return Encoded::default();
        }
        let last = match self.is_lazy {
            true => self.lazily(block),
            false => {
                self.parser.sequences.clear();
                self.optimally(block, 0)
            }
        };
        Encoded {
            consumed: last.end - start,
            written: sequences::write(data, &self.parser.sequences, last, out),
        }
    }

    /// Finds the sequences of a block; answers the literals behind them.
    fn lazily(&mut self, block: Block<'_>) -> Range<usize> {
        match lazy::parse(block, &mut self.chains, &mut self.parser.sequences) {
            Parsed::All(last) => last,
            Parsed::Dense(cost) => {
                let candidates = block.depth.candidates.min(DENSE_CANDIDATES);
                let depth = Depth {
                    candidates,
                    ..block.depth
                };
                self.optimally(Block { depth, ..block }, cost)
            }
        }
    }

    /// Finds the sequences of a block behind those that there are, which take so many bytes; answers the literals behind
    /// them.
    fn optimally(&mut self, block: Block<'_>, cost: u32) -> Range<usize> {
        let end = self.parser.parse(&block, &mut self.chains, cost);
        self.parser.settled(&block)..end
    }
}
