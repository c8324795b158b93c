//! Work that is done with hostile bytes, and what is asserted of it.
//!
//! Each function takes any bytes and panics only where a promise of the crates is broken; that nothing else panics,
//! hangs or takes memory without bound is hunted too. All but [`decode`], [`encode`], [`tar`], [`manifest`], [`lists`],
//! [`trace`], [`profile`], [`patch`], [`launches`], [`log_open`], [`log_offline`] and [`log_layout`] take the bytes for an image.
//! The work of each is bounded by numbers that stand beside it, because an image of a few KiB may claim 2^60 bytes, in
//! any number of files.
//!
//! A fuzz target calls one of these with what libFuzzer makes up; the workspace's tests call them with the committed
//! inputs.

#![forbid(unsafe_code)]

mod check;
mod decode;
mod encode;
mod extract;
mod image;
mod launches;
mod lists;
mod log_layout;
mod log_offline;
mod log_open;
mod manifest;
mod open;
mod patch;
mod profile;
mod read;
mod tar;
mod trace;
mod walk;

pub use check::check;
pub use decode::decode;
pub use encode::encode;
pub use extract::extract;
pub use launches::launches;
pub use lists::lists;
pub use log_layout::log_layout;
pub use log_offline::log_offline;
pub use log_open::log_open;
pub use manifest::manifest;
pub use open::open;
pub use patch::patch;
pub use profile::profile;
pub use read::read;
pub use tar::tar;
pub use trace::trace;
pub use walk::walk;
