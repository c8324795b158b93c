//! Readers of a mounted image, and what mount(8) is told where none has what is asked for.

use crate::failure::{Failure, Kind};

pub const MOUNT: &str = "mount.erofs";

/// The type of what the kernel mounts, and of what a daemon serves.
pub const KERNEL: &str = "erofs";
pub const FUSE: &str = "erofs.fuse";

/// The exit status of mount(8) for wrong arguments and missing rights.
pub const WRONG_CALL: u8 = 1;
/// The exit status of mount(8) when a user interrupts it.
pub const INTERRUPTED: u8 = 8;
/// The exit status of mount(8) for anything else.
pub const FAILED: u8 = 32;

/// Side that reads the image once it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Kernel,
    Fuse,
}

impl Driver {
    /// The driver of a type, as `-t` names it.
    pub fn of(kind: &str) -> Result<Self, Failure> {
        match kind {
            KERNEL | "erofs.local" => Ok(Self::Kernel),
            FUSE | "erofs.anteros" | "fuse.anteros" => Ok(Self::Fuse),
            "fuse" | "fuse.erofs" | "fuse.erofsfuse" | "erofsfuse" => Ok(Self::Fuse),
            _ => Err(not_supported(&format!("type -t {kind}"))
                .hint("there are erofs, by the kernel, and erofs.fuse, by FUSE")),
        }
    }
}

/// The failure where something of the peer is asked for that this version does not have.
pub fn not_supported(what: &str) -> Failure {
    Failure::new(
        Kind::Usage,
        format_args!("{MOUNT}: {what} is not supported"),
    )
}
