//! Mounted log: what the FUSE session, the write buffer and the tools call.
//!
//! This floor owns the locks ([`log`]). It answers requests ([`vfs`]; atomic writes, [`atomic`]), reads ahead of them
//! ([`prefetch`]), keeps records of which blocks programs read when they start ([`launches`]), and cleans when someone
//! asks for it ([`gc`]). It uses every floor below.

pub(crate) mod atomic;
mod gc;
pub(crate) mod launches;
pub(crate) mod log;
mod prefetch;
pub(crate) mod vfs;
