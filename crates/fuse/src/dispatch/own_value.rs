//! Attributes of the mount itself where the kernel asks for none: by an ioctl on a directory. An ioctl carries less than such
//! a value may have, so that it is told piece by piece.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::args::put;
use crate::proto::own::{OwnIn, OwnOut, PIECE_BYTES};

/// The value that was told of last. Its further pieces come out of it, for the next one has other numbers.
#[derive(Default)]
pub(super) struct OwnValue(Mutex<Value>);

#[derive(Default)]
struct Value {
    number: u32,
    /// The user who may have it.
    uid: u32,
    bytes: Vec<u8>,
}

impl OwnValue {
    /// Tells the piece that is asked for. The first one, of the value 0, has `value` make the value.
    pub(super) fn tell(
        &self,
        asked: &OwnIn,
        uid: u32,
        out: &mut [u8],
        value: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<usize, Errno> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.value == 0 {
            last.bytes = value().ok_or(Errno::NODATA)?;
            last.number = last.number.checked_add(1).unwrap_or(1);
            last.uid = uid;
        } else if (asked.value, uid) != (last.number, last.uid) {
            return Err(Errno::STALE);
        }
        let rest = last.bytes.get(asked.offset as usize..);
        let rest = rest.ok_or(Errno::INVAL)?;
        let head = OwnOut {
            value: last.number,
            left: rest.len() as u32,
        };
        let len = put(out, &head)?;
        Ok(len + put(&mut out[len..], &rest[..rest.len().min(PIECE_BYTES)])?)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    fn tell(
        own: &OwnValue,
        (value, offset): (u32, u32),
        uid: u32,
    ) -> Result<(OwnOut, Vec<u8>), Errno> {
        let asked = OwnIn::new(value, offset, b"name").unwrap();
        let mut out = [0; 16 << 10];
        let len = own.tell(&asked, uid, &mut out, || Some(vec![7; PIECE_BYTES + 5]))?;
        let (head, bytes) = OwnOut::read_from_prefix(&out[..len]).unwrap();
        Ok((head, bytes.to_vec()))
    }

    #[test]
    fn pieces_are_of_one_value_and_for_one_user() {
        let own = OwnValue::default();
        let (head, bytes) = tell(&own, (0, 0), 5).unwrap();
        assert_eq!((head.value, head.left as usize), (1, PIECE_BYTES + 5));
        assert_eq!(bytes.len(), PIECE_BYTES);
        let (head, bytes) = tell(&own, (1, PIECE_BYTES as u32), 5).unwrap();
        assert_eq!((head.left, bytes), (5, vec![7; 5]));
        assert_eq!(tell(&own, (1, 0), 6).unwrap_err(), Errno::STALE);
        assert_eq!(tell(&own, (1, u32::MAX), 5).unwrap_err(), Errno::INVAL);
        assert_eq!(tell(&own, (0, 0), 6).unwrap().0.value, 2);
        assert_eq!(tell(&own, (1, 0), 5).unwrap_err(), Errno::STALE);
    }
}
