//! Tools for a log that nobody has mounted.
//!
//! This floor makes a log ([`mkfs`]), checks it ([`check`]) and repairs it ([`repair`]), both by the findings of one
//! [`walk`], changes its size ([`resize`]) and shows what is in it ([`inspect`], [`describe`]). It uses every floor
//! below.

pub(crate) mod check;
pub(crate) mod describe;
pub(crate) mod inspect;
pub(crate) mod mkfs;
pub(crate) mod repair;
pub(crate) mod resize;
mod walk;
