//! Compression of content, without I/O: bytes become fewer bytes.
//!
//! This floor owns the rules by which content is compressed, and the codecs. It is asked what kind of file one is
//! ([`kind`], by name and content; [`habits`], by use), whether its pages are compressed and how ([`policy`]), and it
//! turns pages into chunks and chunks into pages again ([`chunks`], with the encoders of [`codec`]). Where a chunk
//! lies is no matter of this floor. It uses `layout` only.

pub(crate) mod chunks;
pub(crate) mod codec;
pub(crate) mod habits;
pub(crate) mod kind;
pub(crate) mod policy;
