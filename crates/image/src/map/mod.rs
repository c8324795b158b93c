//! Offsets in a file into places on a device.
//!
//! ```text
//!   lookup    the extent at an offset
//!      │  └─────► zmap          of a compressed file
//!      │           ├─► index      one entry for each logical cluster
//!      │           └─► records    one record for each extent
//!      │                 └─► rules      what holds for both
//!      ▼
//!   kind      what an inode says about its data: `Map`, `Zmap`
//!      ▼
//!   extent    `Extent`, and where its bytes lie
//! ```

mod extent;
mod index;
mod kind;
mod lookup;
mod records;
mod rules;
mod zmap;

pub use extent::{Encoding, Extent, Location, Pcluster, Source};
pub use kind::Map;
