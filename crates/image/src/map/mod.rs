//! Offsets in a file into places on a device.
//!
//! ```text
//!   lookup       the extent at an offset, of files of all forms ──► zmap    compressed files
//!      │                                                               │
//!      ▼                                                               ▼
//!   kind         what an inode says about its data: `Map`, `Zmap`
//!      │
//!      ▼
//!   extent       `Extent`, and where its bytes lie
//! ```

mod extent;
mod kind;
mod lookup;
mod zmap;

pub use extent::{Encoding, Extent, Location, Pcluster, Source};
pub use kind::Map;
