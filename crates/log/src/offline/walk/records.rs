//! Facts that a walk gathers in the order of the device, and brings together in another one: records of fixed size
//! that can be sorted and spilled.

use anteros_core::Record;

/// Nothing is taken in.
fn never<T>(_: &mut T, _: &T) -> bool {
    false
}

/// A struct of numbers that is a [`Record`]; it is ordered by its fields, from the first on.
macro_rules! record {
    (
        $(#[$about:meta])*
        $name:ident, absorbs by $absorb:path {
            $( $(#[$of:meta])* $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub(in crate::offline) struct $name {
            $( $(#[$of])* pub(in crate::offline) $field: $type, )*
        }

        impl Record for $name {
            const BYTES: usize = 0 $( + size_of::<$type>() )*;

            fn store(&self, out: &mut [u8]) {
                let mut out = out.iter_mut();
                $(
                    for (byte, to) in self.$field.to_le_bytes().into_iter().zip(out.by_ref()) {
                        *to = byte;
                    }
                )*
            }

            fn load(bytes: &[u8]) -> Self {
                let mut bytes = bytes.iter();
                $(
                    let mut $field = [0; size_of::<$type>()];
                    for (to, byte) in $field.iter_mut().zip(bytes.by_ref()) {
                        *to = *byte;
                    }
                )*
                Self { $( $field: <$type>::from_le_bytes($field), )* }
            }

            fn absorb(&mut self, next: &Self) -> bool {
                $absorb(self, next)
            }
        }
    };
}

record! {
    /// A node that is to be looked at.
    Wanted, absorbs by never {
        /// Its number as long as its place is not known, and then its block; 0: it has none.
        key: u64,
        /// The slot of that in which it lies, plus one; 0: it is the block.
        slot: u8,
        nid: u32,
        ino: u32,
        /// One of [`Wanted::INODE`], [`Wanted::ATTRIBUTES`], [`Wanted::FURTHER`], and else as that of a subtree.
        level: u8,
        position: u32,
        /// The first logical block below it.
        first: u32,
        /// Of the inode: bytes of content.
        size: u64,
        is_directory: u8,
        /// 1: nothing else claims the node.
        is_owned: u8,
    }
}

impl Wanted {
    pub(super) const INODE: u8 = 0x10;
    pub(super) const ATTRIBUTES: u8 = 0x11;
    /// One that an attribute node names.
    pub(super) const FURTHER: u8 = 0x12;
}

record! {
    /// Knowledge of an inode. Parts of that are added up.
    About, absorbs by About::add {
        ino: u32,
        /// 0 in the part that its node tells, if that can be read, 1 in others.
        rank: u8,
        kind: u8,
        /// See the constants.
        marks: u8,
        nlink: u32,
        parent: u32,
        /// Names that it says it has.
        entries: u32,
        /// Names that it has.
        names: u64,
        /// Those of directories.
        below: u64,
        /// Blocks that it says it takes.
        blocks: u64,
        /// Blocks that it takes.
        counted: u64,
    }
}

impl About {
    /// Not all of its nodes can be read.
    pub(in crate::offline) const TORN: u8 = 1;
    /// Not all of its names can be read.
    pub(super) const UNLISTED: u8 = 2;
    /// Its node cannot be read.
    pub(super) const BROKEN: u8 = 4;
    /// It belongs to the log itself.
    pub(super) const OWN: u8 = 8;

    pub(in crate::offline) fn of(ino: u32) -> Self {
        Self {
            ino,
            rank: 1,
            ..Self::default()
        }
    }

    fn add(&mut self, next: &Self) -> bool {
        if self.ino != next.ino || next.rank == 0 {
            return false;
        }
        self.marks |= next.marks;
        self.names += next.names;
        self.below += next.below;
        self.counted += next.counted;
        true
    }
}

record! {
    /// A node that holds extended attributes, by its inode.
    Attached, absorbs by never {
        ino: u32,
        nid: u32,
    }
}

record! {
    /// A name, by what it refers to.
    Edge, absorbs by never {
        ino: u32,
        parent: u32,
        /// Tells where it stands in the directory.
        position: u64,
        kind: u8,
    }
}

record! {
    /// A name, by the directory that it is in.
    Child, absorbs by never {
        parent: u32,
        ino: u32,
    }
}

record! {
    /// Blocks that follow each other and belong to one inode.
    Extent, absorbs by never {
        block: u64,
        blocks: u32,
        ino: u32,
        /// The first logical block; of a node: its number.
        lblk: u32,
        is_node: u8,
    }
}

record! {
    /// A chunk in a packed block.
    Chunk, absorbs by Chunk::add {
        block: u64,
        slot: u8,
        behind: u8,
        ino: u32,
        /// The logical block that it begins with; of an inode: its number.
        first: u32,
        /// Tells which of its logical blocks are in use; 0: it is an inode.
        sequences: u32,
    }
}

impl Chunk {
    pub(super) fn add(&mut self, next: &Self) -> bool {
        let sequences = self.sequences | next.sequences;
        let whole = |chunk: &Self| Self {
            sequences,
            ..*chunk
        };
        let is_same = whole(self) == whole(next);
        if is_same {
            self.sequences = sequences;
        }
        is_same
    }
}

record! {
    /// Place of a block of a directory.
    DirBlock, absorbs by never {
        ino: u32,
        lblk: u32,
        /// 0: in memory, which counts.
        place: u64,
        checksum: u32,
    }
}

record! {
    /// A block of content that is not packed.
    PlainBlock, absorbs by never {
        place: u64,
        ino: u32,
        lblk: u32,
        checksum: u32,
    }
}

record! {
    /// A block of a directory that is to be looked at.
    WantedDir, absorbs by never {
        /// Tells where it lies; 0: in memory, or not known yet.
        place: u64,
        ino: u32,
        lblk: u32,
        /// Known if the place is.
        checksum: u32,
        /// Its level is below this one.
        level: u8,
        /// The hashes of the names in it: from here on.
        low: u64,
        /// Up to here.
        high: u64,
    }
}

record! {
    /// A number of a node.
    Number, absorbs by Number::is_again {
        nid: u32,
    }
}

impl Number {
    fn is_again(&mut self, next: &Self) -> bool {
        self == next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let wanted = Wanted {
            key: 0x0102_0304_0506_0708,
            slot: 32,
            nid: 9,
            ino: u32::MAX,
            level: Wanted::INODE,
            position: 10,
            first: 11,
            size: u64::MAX - 5,
            is_directory: 1,
            is_owned: 0,
        };
        let mut bytes = vec![0; Wanted::BYTES];
        wanted.store(&mut bytes);
        assert_eq!(Wanted::load(&bytes), wanted);
        assert_eq!(Wanted::BYTES, 36);
    }

    #[test]
    fn what_belongs_to_one_inode_is_added_up() {
        let mut told = About {
            rank: 0,
            nlink: 3,
            counted: 2,
            ..About::of(7)
        };
        let part = About {
            counted: 5,
            marks: About::TORN,
            ..About::of(7)
        };
        assert!(told < part && told.absorb(&part) && !told.absorb(&About::of(8)));
        assert_eq!((told.nlink, told.counted, told.marks), (3, 7, About::TORN));
    }
}
