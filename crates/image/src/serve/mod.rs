//! Serving reads of any part of any file, in bounded memory (EROFS paper, §3.2, §3.3, §4.2, §4.3).
//!
//! ```text
//!   a request ─► its extents ─┬─ whole ones ──► run: read into the end of the request's own buffer,
//!                             │                 decoded over themselves: no other memory
//!                             ├─ parts ───────► part: through the cache of pclusters
//!                             └─ plain, holes ► straight through
//! ```
//!
//! - `run`: pclusters that the request uses up at once, many with one read of the device.
//! - `part`: pclusters of which a request uses a part.
//! - `pclusters`: the cache of the latter; one reader makes an entry, the others wait for it.
//! - `suspended`: decoders suspended in the middle of a long extent.
//! - `packed`: what others keep of the packed inode.
//! - `ahead`: what the device is asked for before anyone wants it.
//! - `memory`: the account of what all of that takes.
//! - `counters`: what it costs.
//! - `serving`: the state of all that, one for each image.
//! - `bench`, `limits`: what a reader borrows and counts; how much memory that can be.
//!
//! The worker that took the request decodes. It borrows a [`Workbench`](serving::Workbench) for
//! that. [`Reader`](crate::Reader) is the plain way to the same bytes, for jobs that read
//! everything once; tests compare the two.
//!
//! Invariant S8 of `docs/design/serving.md`: a broken stream or a block that cannot be read fails the reads of its
//! extent, and no others.

pub(crate) mod ahead;
mod bench;
pub(crate) mod counters;
mod limits;
pub(crate) mod memory;
mod packed;
pub(crate) mod part;
pub(crate) mod pclusters;
pub(crate) mod run;
pub(crate) mod serving;
pub(crate) mod sizes;
pub(crate) mod suspended;

pub use serving::Strategy;
