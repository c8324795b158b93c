//! Extended attributes, ACLs included.
//!
//! The calls that take a path follow the entries of `/proc/self/fd` to the inode itself, so one way
//! serves all kinds of inodes.

use std::os::fd::AsFd;

use anteros_core::{FsError, FsResult, Ino};
use rustix::fs::{
    XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr,
};
use rustix::io::Errno;

use crate::host::{proc_path, refused};
use crate::mirror::HostFs;
use crate::table::Node;

const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Enough for nearly all values, so that one call does.
const SMALL: usize = 256;

fn refused_or_missing(errno: Errno) -> FsError {
    match errno {
        Errno::NODATA => FsError::NoData,
        errno => refused(errno),
    }
}

pub(crate) fn get(fs: &HostFs, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
    let node = fs.table.get(ino)?;
    let path = proc_path(node.as_fd());
    let get = |buf: &mut [u8]| getxattr(path.as_str(), name, buf);
    sized(get, || getxattr_query(path.as_str(), name)).map_err(refused_or_missing)
}

pub(crate) fn list(fs: &HostFs, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
    let node = fs.table.get(ino)?;
    let path = proc_path(node.as_fd());
    let list = |buf: &mut [u8]| listxattr(path.as_str(), buf);
    let names = sized(list, || listxattr_query(path.as_str())).map_err(refused)?;
    let names = names.split(|&byte| byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// Returns what `get` fills a buffer with, however long; it may grow while it is asked for.
fn sized(
    get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    query: impl Fn() -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut small = [0; SMALL];
    match get(&mut small) {
        Err(Errno::RANGE) => {}
        result => return Ok(small[..result?].to_vec()),
    }
    loop {
        let mut buf = vec![0; query()?];
        match get(&mut buf) {
            Err(Errno::RANGE) => {}
            result => {
                buf.truncate(result?);
                return Ok(buf);
            }
        }
    }
}

pub(crate) fn set(fs: &HostFs, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()> {
    let node = fs.table.get(ino)?;
    let flags = XattrFlags::from_bits_retain(flags);
    setxattr(proc_path(node.as_fd()), name, value, flags).map_err(refused_or_missing)
}

pub(crate) fn remove(fs: &HostFs, ino: Ino, name: &[u8]) -> FsResult<()> {
    let node = fs.table.get(ino)?;
    removexattr(proc_path(node.as_fd()), name).map_err(refused_or_missing)
}

/// Returns whether what is made in this directory gets an ACL from it.
pub(crate) fn has_default_acl(dir: &Node) -> bool {
    getxattr_query(proc_path(dir.as_fd()), DEFAULT_ACL).is_ok()
}
