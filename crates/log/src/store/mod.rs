//! Blocks of the device: which are in use, which come next, and the way that a block takes to the device and back.
//!
//! This floor owns the segments ([`segments`]), the valid slots of packed blocks ([`slots`]), the account of used
//! blocks ([`space`]), the room that a sparse file has for them ([`room`]), what is on its way to the device
//! ([`writer`]), and what was read from it ahead of requests ([`ahead`], with [`asked`]). It is asked for the place of
//! a block, to write a block there, to read one, and to forget one that counts no more; [`holes`] has content go into
//! used segments. What a block says is no matter of this floor. It uses `layout` only.

pub(crate) mod ahead;
mod asked;
mod by_kind;
pub(crate) mod holes;
pub(crate) mod medium;
pub(crate) mod room;
pub(crate) mod segments;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod writer;
