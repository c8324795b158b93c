//! Files: content, names and attributes, as a user of the file system knows them.
//!
//! This floor owns the dirty pages of files ([`content`]; a large file in turns, [`pieces`]), directories ([`dir`]),
//! the operations that change names ([`names`]), extended attributes ([`xattr`], some of overlayfs in [`layers`]) and
//! access control lists ([`acl`]). It is asked to read and write content, and to make, link, rename and remove inodes;
//! all of it happens in memory, and `durable` writes it. It uses `packing` and what lies below.

pub(crate) mod acl;
pub(crate) mod content;
pub(crate) mod dir;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod pieces;
pub(crate) mod xattr;
