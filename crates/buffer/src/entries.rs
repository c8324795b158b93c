//! The form of the paper: a fixed number of entries, each a header (file, offset, size) and a region.
//!
//! A request that continues an entry of its file is copied to its end; if it does not fit, or continues
//! none, it takes a new entry, whose whole region it occupies. A request is never split over two entries,
//! so that what one call wrote is never torn by another.
//!
//! Invariant W4 of `docs/design/bfuse.md`: a request is never split over two entries, so none is torn by another.

use std::sync::Arc;

use anteros_core::{FsResult, Writable};

use crate::gather::Accepted;
use crate::inode::{Content, Inode, Request};
use crate::shared::Shared;

/// Returns whether a request is too large for an entry.
pub(crate) fn exceeds(len: usize, region_bytes: usize) -> bool {
    len > region_bytes
}

pub(crate) fn accept<F: Writable>(
    shared: &Shared<F>,
    inode: &Arc<Inode>,
    request: &Request,
    content: &Content<'_>,
) -> FsResult<Accepted> {
    // A region has all its room from the beginning.
    let room = shared.options.region_bytes;
    shared.gather(inode, request, content.bytes(), room, |_| true)
}
