//! The extended attributes by which a command asks something of the daemon of another one.

/// The attribute of a log that orders a checkpoint when it is set, which has been written when that returns; and tells why
/// nothing is written any more, if so.
pub const LOG_WRITING: &str = "user.anteros.writing";

/// The attribute of the root of a mirrored directory that orders, when it is set, that all is written which is buffered, and
/// answers whether nobody was told of an error meanwhile or before; and tells what could not be written, as far as it was
/// asked so.
pub const MIRROR_WRITING: &str = "anteros.writing";

/// The value that these two are set to.
pub const WRITE_ALL: &[u8] = b"all";

/// The attribute of a regular file in a mirrored directory that says who moves its content and why, a line each. No file of the
/// source can have one of that name: file systems know names that begin with `user.` and a few others, and refuse all the rest.
pub const FILE_ATTRIBUTE: &str = "anteros.data";
