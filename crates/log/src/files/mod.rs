//! Files: content, names and attributes, as a user of the file system knows them.
//!
//! This floor owns the dirty pages of files: they are written to in memory ([`content`]; in pieces, [`pieces`]), read
//! from there and from the device ([`read`]), and leave for it ([`write_back`]). Content of an atomic write waits beside
//! them ([`staged`]), and what memory has no room for goes ([`evict`]). Above that lie directories ([`dir`]), the
//! operations that change names ([`names`]), extended attributes ([`xattr`], some of overlayfs in [`layers`]) and access
//! control lists ([`acl`]). All of it happens in memory; `durable` says when it is written. It uses `packing` and what
//! lies below.

pub(crate) mod acl;
pub(crate) mod content;
pub(crate) mod dir;
mod evict;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod pieces;
pub(crate) mod read;
pub(crate) mod staged;
mod write_back;
pub(crate) mod xattr;
