//! Mounted log: what the FUSE session, the write buffer and the tools call.
//!
//! This floor owns the locks ([`log`]). It answers requests ([`vfs`], with [`answers`]; atomic writes, [`atomic`]). They change
//! the state ([`change`]), and before one is refused for want of room, some is made for it ([`refuse`]). This floor reads ahead of
//! requests ([`prefetch`]), and does what takes long in parts, between which others have their turn:
//! large files ([`pieces`]), cleaning that someone asks for ([`gc`]), compression in the background ([`compact`] by [`work`]),
//! also of what nobody has asked for ([`sweep`]), compression before writeback ([`prepare`], with the files of
//! [`preparing`], on a device whose [`speed`] is known), reading everything to find damage ([`scrub`]), telling
//! what compression would gain ([`estimate`]) and what content takes ([`usage`]). It records what programs read when they
//! start ([`launches`], a [`recording`]). What it keeps from mount to mount nobody else sees ([`own_record`]). For messages it
//! finds the [path](paths) of an inode. It uses every floor below.

mod answers;
mod atomic;
mod blocks;
mod change;
mod compact;
mod estimate;
mod files_ahead;
mod footprint;
mod gc;
mod launches;
pub(crate) mod log;
mod own_record;
mod paths;
mod pieces;
mod prefetch;
mod prepare;
mod preparing;
mod recording;
mod refuse;
pub(crate) mod scrub;
mod speed;
mod state;
pub(crate) mod sweep;
mod usage;
pub(crate) mod vfs;
mod work;
