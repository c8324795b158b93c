//! Asking a mount for an attribute of its own, from outside.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::ioctl;
use crate::proto::own::{OwnIn, OwnOut, PIECE_BYTES};

/// Turns until a value is told whole while others ask for it as well.
const TURNS: usize = 16;

/// The longest value, as of an extended attribute.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The value of an attribute that a mount has itself; `None` if it is no mount of this crate, or has no such attribute.
///
/// An image that is known to have no extended attributes is no longer asked for any. This asks in another way then.
///
/// # Errors
///
/// If the directory cannot be opened or its mount does not answer.
pub fn own_attribute(directory: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match rustix::fs::getxattr(directory, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            return Ok(Some(value));
        }
        Err(Errno::OPNOTSUPP) => {}
        Err(Errno::NODATA) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let directory = File::open(directory)?;
    for _ in 0..TURNS {
        match by_pieces(&directory, name) {
            Err(Errno::STALE) => {}
            Err(Errno::NOTTY | Errno::NOSYS | Errno::NODATA | Errno::INVAL) => return Ok(None),
            told => return Ok(told.map(Some)?),
        }
    }
    Err(Errno::AGAIN.into())
}

fn by_pieces(directory: &File, name: &str) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut number = 0;
    loop {
        let asked = OwnIn::new(number, bytes.len() as u32, name.as_bytes()).ok_or(Errno::INVAL)?;
        let told = ioctl::own_piece(directory, &asked)?;
        let (head, rest) = OwnOut::read_from_prefix(&told).map_err(|_| Errno::IO)?;
        let len = PIECE_BYTES.min(head.left as usize);
        bytes.extend_from_slice(&rest[..len]);
        if len == head.left as usize || bytes.len() > VALUE_BYTES_MAX {
            return Ok(bytes);
        }
        number = head.value;
    }
}
