//! The packed inode of an image that is patched: new content is packed behind what it has.
//!
//! ```text
//! before   | extent | extent | … | extent |
//! now      | stays  | stays  | … | stays  | files of the patch … |
//! ```
//!
//! Its index is written anew, of all of it. So that is done only for as many files as are worth the index.

use anteros_core::{Algorithm, FsResult, StoredPlace};

use super::content::Rules;
use super::former::FormerPacked;
use crate::base::Base;
use crate::extent::{Extent, Share};
use crate::plan::{Intent, Plan};
use crate::{Error, Options};

/// Decides whether files of a patch are packed. If they are not, they are compressed one by one.
pub(super) fn decide(base: &dyn Base, options: &Options, plan: &mut Plan) -> Result<(), Error> {
    if options.fragments.is_none() {
        return Ok(());
    }
    let found = match is_worth_it(base.packed_bytes(), options, plan) {
        true => former(base, options),
        false => Ok(None),
    };
    plan.packed = found.map_err(|cause| Error::Option(format!("the packed inode: {cause}")))?;
    if plan.packed.is_none() {
        let nodes = plan.nodes.iter_mut();
        let packed = nodes.filter(|node| matches!(node.intent, Intent::Pack));
        packed.for_each(|node| node.intent = Intent::Compress);
    }
    Ok(())
}

/// Returns whether the files that would be packed waste more bytes in blocks of their own, half a block each, than the index
/// of the packed inode takes.
fn is_worth_it(packed_bytes: u64, options: &Options, plan: &Plan) -> bool {
    let block_bytes = u64::from(options.block_bytes());
    let is_new = |intent: &Intent| matches!(intent, Intent::Pack | Intent::Compress);
    let files = plan.nodes.iter().filter(|node| is_new(&node.intent));
    let wasted = files.count() as u64 * block_bytes / 2;
    let entries = packed_bytes / block_bytes;
    packed_bytes > 0 && wasted > 2 * entries
}

/// The packed inode, if an index can say of all extents where they are.
fn former(base: &dyn Base, options: &Options) -> FsResult<Option<FormerPacked>> {
    let Some(setting) = options.packed_setting() else {
        return Ok(None);
    };
    let algorithm = setting.codecs().0.algorithm();
    let rules = Rules::new(options, algorithm, setting.pcluster_bytes, false);
    let size = base.packed_bytes();
    let mut packed = FormerPacked::default();
    for run in base.stored(None, 0..size)? {
        let extent = match run.place {
            _ if run.offset != packed.bytes => None,
            StoredPlace::Stream {
                address,
                bytes,
                algorithm: found,
                partial: false,
            } if rules.has_place(address, bytes) => {
                extent(run.len, bytes, found, algorithm).map(|extent| (address, extent))
            }
            _ => None,
        };
        let Some((at, extent)) = extent else {
            return Ok(None);
        };
        packed.push(at, extent);
    }
    if packed.bytes != size {
        return Ok(None);
    }
    // A logical cluster has one head.
    while !options.has_encoded_extents() && has_head_in_last_block(&packed, options) {
        packed.pop();
    }
    packed.rest.resize((size - packed.bytes) as usize, 0);
    let at = packed.bytes;
    base.read_packed(at, &mut packed.rest)?;
    Ok(Some(packed))
}

/// An extent that is not the front of another; `None` if its algorithm is not that of the packed inode.
fn extent(len: u64, stored: u32, found: Option<Algorithm>, algorithm: Algorithm) -> Option<Extent> {
    let is_known = found.is_none_or(|found| found == algorithm);
    let len = u32::try_from(len).ok().filter(|_| is_known)?;
    Some(Extent {
        len,
        stored,
        plain: found.is_none(),
        quick: false,
        share: Share::None,
    })
}

/// Returns whether the last extent begins in the block in which all of them end.
fn has_head_in_last_block(packed: &FormerPacked, options: &Options) -> bool {
    let last = packed.runs.last().and_then(|(_, extents)| extents.last());
    last.is_some_and(|last| {
        let start = packed.bytes - u64::from(last.len);
        start >> options.block_bits == packed.bytes >> options.block_bits
    })
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use anteros_codec::Effort;
    use anteros_core::{FsError, Ino, StoredRun};

    use super::*;
    use crate::base::Record;
    use crate::{Compression, Fragments};

    /// A packed inode of these extents, whose bytes are all 7.
    struct Told(Vec<StoredRun>);

    impl Base for Told {
        fn record(&self, _: Ino) -> FsResult<Record> {
            Err(FsError::NotFound)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> FsResult<()> {
            Err(FsError::NotFound)
        }

        fn stored(&self, _: Option<Ino>, _: Range<u64>) -> FsResult<Vec<StoredRun>> {
            Ok(self.0.clone())
        }

        fn packed_bytes(&self) -> u64 {
            self.0.last().map_or(0, StoredRun::end)
        }

        fn read_packed(&self, _: u64, buf: &mut [u8]) -> FsResult<()> {
            buf.fill(7);
            Ok(())
        }
    }

    const fn stream(address: u64, algorithm: Algorithm) -> StoredPlace {
        StoredPlace::Stream {
            address,
            bytes: 4096,
            algorithm: Some(algorithm),
            partial: false,
        }
    }

    /// Extents that begin at these bytes, each a block further on; the last one ends at the last byte.
    fn told(bounds: &[u64]) -> Told {
        let runs = bounds.windows(2).zip(1..).map(|(ends, n)| StoredRun {
            offset: ends[0],
            len: ends[1] - ends[0],
            place: stream(8192 * n, Algorithm::Lz4),
        });
        Told(runs.collect())
    }

    fn options(wide: bool) -> Options {
        Options {
            compression: Some(Compression::new(Effort::Fast)),
            fragments: Some(Fragments {
                all: true,
                pcluster_bytes: None,
            }),
            wide,
            ..Options::default()
        }
    }

    #[test]
    fn content_goes_on_where_an_extent_can_begin() {
        for (bounds, kept, wide) in [
            (&[0, 9000, 20_000][..], 20_000, false),
            (&[0, 9000, 20_000, 20_400], 20_400, true),
            (&[0, 9000, 20_400, 20_470], 20_400, false), // two heads in one block
            (&[0, 9000, 20_480, 24_576], 24_576, false), // a block ends there
        ] {
            let found = former(&told(bounds), &options(wide)).unwrap().unwrap();
            let size = bounds[bounds.len() - 1];
            assert_eq!((found.bytes, found.rest.len() as u64), (kept, size - kept));
            assert!(found.rest.iter().all(|byte| *byte == 7));
            let lens = found.runs.iter().flat_map(|(_, extents)| extents);
            assert_eq!(lens.map(|extent| u64::from(extent.len)).sum::<u64>(), kept);
            assert_eq!(found.runs[0].0, 8192);
        }
    }

    #[test]
    fn what_no_index_can_name_is_not_gone_on_with() {
        let mut gap = told(&[0, 9000, 20_000]);
        gap.0[1].offset += 1;
        let mut other = told(&[0, 9000, 20_000]);
        other.0[1].place = StoredPlace::Blocks(40_960);
        let mut zstd = told(&[0, 9000]);
        zstd.0[0].place = stream(8192, Algorithm::Zstd);
        for told in [gap, other, zstd] {
            assert!(former(&told, &options(false)).unwrap().is_none());
        }
    }
}
