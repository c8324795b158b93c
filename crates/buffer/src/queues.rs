//! The form that today's kernel asks for: a queue of extents for each inode, over memory that all share.
//!
//! Requests are large already, so nothing is gained by copying them together once more: each becomes an
//! extent, in the very buffer it came in where that may be kept. Small ones are gathered, since a write of
//! the file system below costs the same for 4 KiB as for 64; and a small one takes a small buffer, which
//! grows.
//!
//! Whatever goes down begins on a page of memory, which costs each buffer of the pool a page more; a request that
//! is kept comes so (see [`begin_on_page`]).

use std::sync::Arc;

use anteros_core::{FsResult, PAGE_BYTES, Payload, Writable, begin_on_page};

use crate::gather::Accepted;
use crate::inode::{Content, Extent, Inode, Request};
use crate::options::Form;
use crate::pool::Pool;
use crate::shared::Shared;

/// Requests below this are gathered.
const GATHERED_BELOW: usize = 64 << 10;

/// States how much of a buffer must be used for keeping it: what is unused counts as well.
const KEPT_FROM: usize = 3;

/// By how much a buffer grows: copying what is in it costs a third more in all.
const GROWTH: usize = 4;

/// The size of a buffer with this room.
const fn buffer_bytes(room: usize) -> usize {
    Form::Queues.buffer_bytes(room)
}

/// Returns whether a request is too large for what all share.
pub(crate) fn exceeds(len: usize, bytes_max: usize) -> bool {
    buffer_bytes(Pool::room_for(len)) > bytes_max
}

/// Returns whether a request is too large to be gathered with others.
pub(crate) fn stands_alone(len: usize) -> bool {
    len >= GATHERED_BELOW
}

pub(crate) fn accept<F: Writable>(
    shared: &Shared<F>,
    inode: &Arc<Inode>,
    request: &Request,
    content: Content<'_>,
) -> FsResult<Accepted> {
    let region_bytes = shared.options.region_bytes;
    let len = request.len;
    if !stands_alone(len) && len <= region_bytes {
        let first_room = Pool::room_for(len).min(region_bytes);
        return shared.gather(inode, request, content.bytes(), first_room, |extent| {
            grow(&shared.pool, extent, len, region_bytes)
        });
    }
    let buffer = match content {
        Content::Lent(payload) if is_kept(&payload, shared.options.bytes_max) => {
            let other = shared.take_buffer(payload.capacity());
            payload.exchange(other)
        }
        content => {
            // Copied before the lock is taken, so that writers of one file copy side by side.
            let mut data = shared.take_buffer(buffer_bytes(Pool::room_for(len)));
            let start = begin_on_page(&mut data, 0);
            data.extend_from_slice(content.bytes());
            (data, start)
        }
    };
    shared.enqueue(inode, request, buffer)
}

fn is_kept(payload: &Payload<'_>, bytes_max: usize) -> bool {
    let capacity = payload.capacity();
    capacity <= bytes_max && payload.bytes().len() * KEPT_FROM >= capacity
}

/// Makes room for so many more bytes, if there is memory for that at once. The old buffer goes when the
/// new one is filled: both count until then.
fn grow(pool: &Pool, extent: &mut Extent, len: usize, region_bytes: usize) -> bool {
    let needed = extent.bytes().len() + len;
    let room = extent.data.capacity() - PAGE_BYTES;
    if needed <= room {
        return true;
    }
    let room = (room * GROWTH)
        .max(Pool::room_for(needed))
        .min(region_bytes);
    let Some(mut larger) = pool.try_take(buffer_bytes(room)) else {
        return false;
    };
    let start = begin_on_page(&mut larger, 0);
    larger.extend_from_slice(extent.bytes());
    pool.give(std::mem::replace(&mut extent.data, larger));
    extent.start = start;
    true
}
