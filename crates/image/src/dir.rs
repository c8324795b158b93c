//! Directories.

use anteros_core::FileKind;
use anteros_format::dirent::{DirBlock, Dirent};
use anteros_format::inode::Inode;
use anteros_format::{Corrupt, Nid};

use crate::{Error, Image, Map, Place, Result};

/// A directory entry that owns its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedDirent {
    /// The inode it names.
    pub nid: Nid,
    /// The kind it says that inode is.
    pub kind: FileKind,
    /// 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
}

/// Tells where in a directory a reader stands: in front of entry `index` of block `block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirCursor {
    /// The block, counted from the beginning.
    pub block: u64,
    /// The entry in the block.
    pub index: usize,
}

/// Blocks have fewer than 2^13 entries: at most 65,536 bytes of 12-byte entries.
const INDEX_BITS: u32 = 13;

impl DirCursor {
    /// A number that stands for the position; 0 is the beginning.
    pub const fn to_u64(self) -> u64 {
        self.block << INDEX_BITS | self.index as u64
    }

    /// The position that a number stands for.
    pub const fn from_u64(value: u64) -> Self {
        Self {
            block: value >> INDEX_BITS,
            index: (value & ((1 << INDEX_BITS) - 1)) as usize,
        }
    }
}

impl Image {
    /// All entries of a directory in order, `.` and `..` included where they are stored.
    ///
    /// They take as much memory as the directory has names; [`visit_dir`](Self::visit_dir) hands them
    /// over one by one instead.
    ///
    /// # Errors
    ///
    /// If the inode is no directory, or breaks a rule.
    pub fn read_dir(&self, dir: &Inode) -> Result<Vec<OwnedDirent>> {
        let mut entries = Vec::new();
        self.visit_dir(dir, DirCursor::default(), |entry, _| {
            entries.push(OwnedDirent {
                nid: entry.nid,
                kind: entry.kind,
                name: entry.name.to_vec(),
            });
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Hands over the entries from a position on, each with the position behind it, until
    /// `visit` breaks.
    ///
    /// # Errors
    ///
    /// If the inode is no directory or breaks a rule: names that do not ascend included.
    pub fn visit_dir(
        &self,
        dir: &Inode,
        from: DirCursor,
        mut visit: impl FnMut(Dirent<'_>, DirCursor) -> std::ops::ControlFlow<()>,
    ) -> Result<()> {
        let map = self.dir_map(dir)?;
        let mut buf = Vec::new();
        let mut previous: Vec<u8> = Vec::new();
        let mut first_index = from.index;
        for number in from.block..self.dir_blocks(dir) {
            let corrupt = Error::corrupt(Place::Directory {
                nid: dir.nid,
                block: number,
            });
            let block = self.dir_block(dir, &map, number, &mut buf)?;
            for index in first_index..block.len() {
                let entry = block.entry(index).map_err(&corrupt)?;
                if entry.name <= previous.as_slice() {
                    let name = entry.name.escape_ascii().to_string();
                    let previous = previous.escape_ascii().to_string();
                    return Err(corrupt(Corrupt::DirentOrder {
                        index,
                        name,
                        previous,
                    }));
                }
                previous.clear();
                previous.extend_from_slice(entry.name);
                let next = DirCursor {
                    block: number,
                    index: index + 1,
                };
                if visit(entry, next).is_break() {
                    return Ok(());
                }
            }
            first_index = 0;
        }
        Ok(())
    }

    /// Finds a name in a directory: by halving over the blocks, then inside one.
    ///
    /// # Errors
    ///
    /// If the inode is no directory, or what the search touches breaks a rule.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<OwnedDirent>> {
        let map = self.dir_map(dir)?;
        if name == b"." && dir.dot_omitted {
            let entry = OwnedDirent {
                nid: dir.nid,
                kind: FileKind::Directory,
                name: name.to_vec(),
            };
            return Ok(Some(entry));
        }
        let mut buf = Vec::new();
        let (mut low, mut high) = (0, self.dir_blocks(dir));
        while low < high {
            let middle = low + (high - low) / 2;
            let corrupt = Error::corrupt(Place::Directory {
                nid: dir.nid,
                block: middle,
            });
            let block = self.dir_block(dir, &map, middle, &mut buf)?;
            match block.search(name).map_err(&corrupt)? {
                Ok(entry) => {
                    let Dirent { nid, kind, name } = entry;
                    return Ok(Some(OwnedDirent {
                        nid,
                        kind,
                        name: name.to_vec(),
                    }));
                }
                Err(0) => high = middle,
                Err(index) if index == block.len() => low = middle + 1,
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Follows a path from the root, one name after the other; symbolic links are not followed.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::NotDirectory`], or as [`lookup`](Self::lookup).
    pub fn find(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.root()?;
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let entry = self.lookup(&inode, name)?.ok_or(Error::NotFound)?;
            inode = self.inode(entry.nid)?;
        }
        Ok(inode)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// [`Error::NotSymlink`], or if its data is broken.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind != FileKind::Symlink {
            return Err(Error::NotSymlink);
        }
        let mut target = vec![0; inode.size as usize];
        let map = self.map(inode)?;
        self.read_exact(inode, &map, 0, &mut target)?;
        if target.contains(&0) {
            let fault = Corrupt::SymlinkNul;
            return Err(Error::Corrupt {
                place: Place::Inode(inode.nid),
                fault,
            });
        }
        Ok(target)
    }

    /// Returns how many blocks a directory has.
    pub(crate) fn dir_blocks(&self, dir: &Inode) -> u64 {
        dir.size.div_ceil(self.superblock().block_bytes().into())
    }

    fn dir_map(&self, dir: &Inode) -> Result<Map> {
        match dir.kind {
            FileKind::Directory => self.map(dir),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn dir_block<'b>(
        &self,
        dir: &Inode,
        map: &Map,
        number: u64,
        buf: &'b mut Vec<u8>,
    ) -> Result<DirBlock<'b>> {
        let place = Place::Directory {
            nid: dir.nid,
            block: number,
        };
        let offset = number << self.superblock().block_bits;
        let len = (dir.size - offset).min(self.superblock().block_bytes().into());
        buf.resize(len as usize, 0);
        self.read_exact(dir, map, offset, buf)?;
        DirBlock::parse(buf).map_err(Error::corrupt(place))
    }
}
