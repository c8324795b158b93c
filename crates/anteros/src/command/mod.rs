//! The commands.

pub mod cat;
pub mod check;
pub mod completions;
pub mod dump;
pub mod extract;
pub mod log;
pub mod ls;
pub mod manual;
pub mod mkfs;
pub mod mount;
pub mod passthru;
pub mod peer;
pub mod stat;
pub mod trace;
pub mod umount;
pub mod verify;
