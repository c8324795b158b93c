//! Processor on which a worker runs that answers the requests of one processor: there, for then neither it nor who waits
//! for it is moved. But while a reader in order is read ahead of, it works; so does the worker then, on another
//! processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zerocopy::FromBytes;

use crate::proto::{ReadIn, op};

/// Bytes of a read that is one ahead of a reader in order.
const LONG: u32 = 64 << 10;

/// After so many other requests there is no such reader any more.
const OTHERS: u32 = 8;

/// The place of the thread that makes it.
pub struct Place {
    /// The processor, and where the thread might run before; `None` if it stays there.
    sets: Option<[CpuSet; 2]>,
    is_home: bool,
    /// Requests since the last long read.
    others: u32,
}

impl Place {
    /// Goes to a processor.
    pub fn new(processor: u16) -> Self {
        let mut home = CpuSet::new();
        home.set(processor.into());
        let mut place = Self {
            sets: sched_getaffinity(None).ok().map(|before| [home, before]),
            is_home: false,
            others: OTHERS,
        };
        place.go();
        place
    }

    /// Moves to where to be for what comes after this request.
    pub fn after(&mut self, opcode: u32, arguments: &[u8]) {
        self.others = match is_long(opcode, arguments) {
            true => 0,
            false => self.others.saturating_add(1),
        };
        self.go();
    }

    fn go(&mut self) {
        let home = self.others >= OTHERS;
        if let Some([there, before]) = self.sets.as_ref().filter(|_| home != self.is_home) {
            // Elsewhere it is slower, no more.
            let _ = sched_setaffinity(None, if home { there } else { before });
            self.is_home = home;
        }
    }
}

fn is_long(opcode: u32, arguments: &[u8]) -> bool {
    let read = || ReadIn::read_from_prefix(arguments);
    opcode == op::READ && read().is_ok_and(|(read, _)| read.size >= LONG)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getcpu;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn processors() -> u32 {
        sched_getaffinity(None).unwrap().count()
    }

    #[test]
    fn long_reads_are_answered_anywhere_and_others_where_they_come_from() {
        let all = processors();
        let read = |size| ReadIn {
            size,
            ..ReadIn::new_zeroed()
        };
        let mut place = Place::new(sched_getcpu() as u16);
        assert_eq!(processors(), 1);
        place.after(op::READ, read(4096).as_bytes());
        assert_eq!(processors(), 1);
        place.after(op::READ, read(LONG).as_bytes());
        assert_eq!(processors(), all);
        for _ in 1..OTHERS {
            place.after(op::LOOKUP, b"name\0");
            assert_eq!(processors(), all);
        }
        place.after(op::READ, b"cut short");
        assert_eq!(processors(), 1);
    }
}
