//! Calls from a dispatcher to the owner of the mount: faults, lent files, attributes of the mount itself.

use std::os::fd::{BorrowedFd, OwnedFd};

use anteros_core::{FsError, Ino};
use rustix::io::Errno;

/// Told of every fault of the medium or the stored data, which a caller sees as a bare `errno`.
pub type FaultHook = Box<dyn Fn(Ino, &FsError) + Send + Sync>;

/// Lends the kernel the file that holds an inode's content, and returns the id to name it by; `None`
/// if the kernel did not take it. The answer is the same for every call.
pub type Lender = Box<dyn Fn(Ino, BorrowedFd<'_>) -> Option<i32> + Send + Sync>;

/// Lends the kernel the files behind those of a file system that can be written to.
pub trait FileLender: Send + Sync {
    /// Counts an open file of an inode, and returns the id to name the file behind it by; `None` if the
    /// kernel has to ask. `open` is called for the first of them; the answer holds for all that are open
    /// at a time. One that `writes` may do so by a mapping, of which the kernel tells nobody.
    fn lend(&self, ino: Ino, writes: bool, open: &dyn Fn() -> Option<OwnedFd>) -> Option<i32>;

    /// An open file of the inode is released.
    fn take_back(&self, ino: Ino, writes: bool);

    /// Tells whether a file of the inode is lent to one who writes.
    fn is_written(&self, ino: Ino) -> bool;

    /// Returns the data path of an inode.
    fn loan(&self, ino: Ino) -> Loan;
}

/// Data path of a file: the kernel alone, or the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loan {
    /// No file is lent in this mount: the file system wants to be asked, was mounted so, or the kernel takes
    /// none from us.
    Never,
    /// Nobody has the file open; it is decided when it is opened.
    NotOpen,
    /// The kernel has the file behind it.
    Lent,
    /// There is no file behind it that holds exactly its content.
    NoFile,
    /// The kernel refused the file behind it.
    Refused(Errno),
}

/// Request for an attribute of a mount itself, with its caller.
#[derive(Debug, Clone, Copy)]
pub struct AttributeRequest<'a> {
    /// The inode asked of.
    pub ino: Ino,
    /// The name of the attribute.
    pub name: &'a [u8],
    /// Tells whether the kernel has the file.
    pub loan: Loan,
    /// The user who asks.
    pub uid: u32,
}

/// Answers for attributes of the mount itself.
pub type AttributeHook = Box<dyn Fn(&AttributeRequest<'_>) -> Option<Vec<u8>> + Send + Sync>;

/// Order to a mount through an attribute, with its caller.
#[derive(Debug, Clone, Copy)]
pub struct AttributeOrder<'a> {
    /// The inode that it is given to.
    pub ino: Ino,
    /// The name of the attribute.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The user who asks.
    pub uid: u32,
}

/// Takes orders; those that are none it leaves to the file system.
pub type OrderHook = Box<dyn Fn(&AttributeOrder<'_>) -> Option<Result<(), Errno>> + Send + Sync>;
