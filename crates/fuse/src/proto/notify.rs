//! Notifications: messages that the session sends without a request, and what the kernel answers to one of them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Invalidates what is cached of an inode.
pub const INVAL_INODE: i32 = 2;
/// A name is no longer to be believed.
pub const INVAL_ENTRY: i32 = 3;
/// Content for the kernel's cache.
pub const STORE: i32 = 4;
/// Content wanted from the kernel's cache.
pub const RETRIEVE: i32 = 5;
/// Inodes to forget if nobody uses them.
pub const PRUNE: i32 = 9;

/// Arguments of the notification INVAL_INODE: attributes, and content from a byte on; all of it without a length.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyInvalInode {
    pub nodeid: u64,
    pub offset: i64,
    pub len: i64,
}

/// The notification [`INVAL_ENTRY`], followed by the name and a NUL.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyInvalEntry {
    pub parent: u64,
    /// Bytes of the name, without the NUL.
    pub namelen: u32,
    pub flags: u32,
}

/// The notification [`STORE`], followed by the content.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyStore {
    pub nodeid: u64,
    pub offset: u64,
    /// Bytes of content.
    pub size: u32,
    pub padding: u32,
}

/// The notification [`RETRIEVE`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyRetrieve {
    /// The number of the request that brings the content.
    pub unique: u64,
    pub nodeid: u64,
    pub offset: u64,
    /// The most bytes of it.
    pub size: u32,
    pub padding: u32,
}

/// The arguments of NOTIFY_REPLY, followed by the content.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyRetrieveIn {
    pub spare: u64,
    pub offset: u64,
    /// Bytes of content: those from the offset on that are cached in one piece.
    pub size: u32,
    pub padding: u32,
    pub more_spare: [u64; 2],
}

/// The notification [`PRUNE`], followed by the node numbers.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NotifyPrune {
    pub count: u32,
    pub padding: u32,
    pub spare: u64,
}

// As `linux/fuse.h` has them.
const _: () = {
    assert!(size_of::<NotifyInvalEntry>() == 16);
    assert!(size_of::<NotifyStore>() == 24);
    assert!(size_of::<NotifyRetrieve>() == 32);
    assert!(size_of::<NotifyRetrieveIn>() == 40);
    assert!(size_of::<NotifyPrune>() == 16);
};
