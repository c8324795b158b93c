//! An image as a file system.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use anteros_core::{
    Attr, DirEntry, FileKind, FileSystem, FilesAhead, FsError, FsResult, Ino, Rdev, Seek, StatFs,
    Timestamp, unpoisoned,
};
use anteros_format::Nid;
use anteros_format::inode::Inode;
use anteros_trace::profile::Profile;

use crate::dir::DirCursor;
use crate::pins::{self, Pinned, Pins};
use crate::serve::ahead::Strides;
use crate::serve::serving::NeighbourHook;
use crate::xattr_search::XattrSearch;
use crate::{Error, Image, ImagePath, Map, PinReport, Source};

/// The position behind a `.` that no block holds; a directory has fewer blocks.
const END: u64 = 1 << 62;

/// An image as a [`FileSystem`]. Inode numbers are those that the kernel's EROFS shows.
pub struct ImageFs {
    image: Arc<Image>,
    /// Files that were read lately, with what is known of where their data lies.
    files: Mutex<HashMap<Ino, Arc<File>>>,
    pins: Pins,
    pinned_bytes: u64,
    /// Tells how many directories are still listed with all attributes.
    eager_lists: AtomicU32,
    xattrs: Arc<XattrSearch>,
    /// The name of the packed inode, if its content is kept elsewhere.
    stand_in: OnceLock<String>,
    ahead: FilesAhead,
    /// Told of files that will be read next.
    on_ahead: OnceLock<AheadHook>,
}

/// Told of files that will be read next.
type AheadHook = Box<dyn Fn(Vec<Ino>) + Send + Sync>;

/// Stands for the packed inode where its content is kept. No inode of an image has this number.
pub const STAND_IN: Ino = Ino(u64::MAX - 1);

/// Whoever looks up a file is taken for one that wants the attributes of all: so many directories are
/// listed with them before that has to show again.
const EAGER_LISTS: u32 = 64;

/// A file that was read lately.
struct File {
    inode: Inode,
    map: Map,
    strides: Strides,
}

/// States how many files are kept in mind.
const FILES_MAX: usize = 256;

impl ImageFs {
    /// Offers an image as a file system.
    pub fn new(image: Arc<Image>) -> Self {
        Self {
            image,
            files: Mutex::default(),
            pins: Pins::default(),
            pinned_bytes: 0,
            eager_lists: AtomicU32::new(0),
            xattrs: Arc::default(),
            stand_in: OnceLock::new(),
            ahead: FilesAhead::default(),
            on_ahead: OnceLock::new(),
        }
    }

    /// Decodes the parts of files that are read most and keeps them decoded, in at most `bytes_max`
    /// of the image's memory; a file that is pinned as a whole lies in a file of the operating system,
    /// from which a kernel may serve it. Says what came of it.
    pub fn pin(&mut self, profile: &Profile, bytes_max: usize) -> PinReport {
        let (pins, report) =
            pins::pin(&self.image, |inode| self.ino(inode.nid), profile, bytes_max);
        self.pins = pins;
        self.pinned_bytes = report.bytes;
        report
    }

    /// Has `hook` told of whole pages of files that were decoded on the way to what was asked for: the
    /// file, the offset, the bytes. With `all`, short extents are decoded whole for that; else it is
    /// only what had to be decoded. The hook is called by whoever reads and should wait a moment at most; it says
    /// whether it took all, which then need not be kept here. Only the first one counts.
    pub fn on_neighbours(
        self: &Arc<Self>,
        all: bool,
        hook: impl Fn(Ino, u64, &[u8]) -> bool + Send + Sync + 'static,
    ) {
        self.image
            .serve
            .neighbours_of_all
            .store(all, Ordering::Relaxed);
        let fs = Arc::downgrade(self);
        let hook: NeighbourHook = Box::new(move |nid, offset, data| {
            let fs = fs.upgrade();
            fs.is_some_and(|fs| hook(fs.kept_as(nid), offset, data))
        });
        let _ = self.image.serve.on_neighbours.set(hook);
    }

    /// Has `hook` told of the rest of a long extent that is not read in order: who decodes it for the
    /// kernel's cache spares readers the next time. The hook is called by whoever reads and should
    /// not wait. Only the first one counts.
    pub fn on_rest(&self, hook: impl Fn(crate::Rest) + Send + Sync + 'static) {
        let _ = self.image.serve.on_rest.set(Box::new(hook));
    }

    /// Has `keep` asked for bytes of the packed inode, from an offset on, before they are decoded again. It fills in all
    /// of them, or returns `false`. The inode is [`STAND_IN`] for whoever is told of neighbours, and to be looked up in the
    /// root by `name` alone: so a kernel may keep its content, too. Only the first one counts.
    pub fn on_packed(
        &self,
        name: String,
        keep: impl Fn(u64, &mut [u8]) -> bool + Send + Sync + 'static,
    ) {
        if self.stand_in.set(name).is_ok() {
            let _ = self.image.serve.on_packed.set(Box::new(keep));
        }
    }

    /// Has `hook` told of small files that a reader of a tree will ask for next; [`read_ahead`](Self::read_ahead) reads them.
    /// The hook is called by whoever reads and should not wait. Only the first one counts.
    pub fn on_ahead(&self, hook: impl Fn(Vec<Ino>) + Send + Sync + 'static) {
        let _ = self.on_ahead.set(Box::new(hook));
    }

    /// Reads a file as a whole into `data`, unless somebody has asked for it meanwhile; returns whether that was done. Whoever
    /// was given it says by [`taken_ahead`](Self::taken_ahead) if there was room for it.
    pub fn read_ahead(&self, ino: Ino, data: &mut Vec<u8>) -> bool {
        // Errors are for whoever asks.
        self.ahead.is_wanted(ino) && self.read_whole(ino, data).unwrap_or(false)
    }

    /// Notes whether a file that was read ahead is kept. Nothing more is read ahead for that walk if it is not.
    pub fn taken_ahead(&self, ino: Ino, is_taken: bool) {
        self.ahead.taken(ino, is_taken);
    }

    /// Reads a small file; returns whether that is all of it.
    fn read_whole(&self, ino: Ino, data: &mut Vec<u8>) -> FsResult<bool> {
        let inode = self.inode(ino)?;
        if inode.size > FilesAhead::FILE_BYTES_MAX {
            return Ok(false);
        }
        let map = self.image.map(&inode)?;
        data.resize(inode.size as usize, 0);
        let read = self.read_pieces(ino, &inode, &map, 0, data)?;
        Ok(read == data.len())
    }

    /// Decodes the next whole pages of a rest into `data`, and says which they are; `None` when there
    /// are no more. There may be none of them for once.
    pub fn decode_rest(&self, rest: &crate::Rest, data: &mut Vec<u8>) -> Option<(Ino, u64)> {
        let (nid, offset) = self.image.decode_rest(rest, data)?;
        Some((self.kept_as(nid), offset))
    }

    /// Returns the inode by which content is kept.
    fn kept_as(&self, nid: Nid) -> Ino {
        match self.image.is_packed(nid) {
            true => STAND_IN,
            false => self.ino(nid),
        }
    }

    /// The inode that stands for the packed one. Nobody may read it.
    fn stand_in(&self) -> Attr {
        Attr {
            ino: STAND_IN,
            kind: FileKind::Regular,
            perm: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: Rdev::default(),
            size: self.image.packed_bytes(),
            blocks: 0,
            block_size: self.image.superblock().block_bytes(),
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        }
    }

    /// Bytes that are pinned.
    pub const fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// A path of an inode, as [`Image::path_of`].
    pub fn path_of(&self, ino: Ino) -> Option<ImagePath> {
        self.image.path_of(self.nid(ino))
    }

    /// A file and its map; both are found once for many reads.
    fn file(&self, ino: Ino) -> FsResult<Arc<File>> {
        let files = || unpoisoned(self.files.lock());
        if let Some(file) = files().get(&ino) {
            return Ok(file.clone());
        }
        let inode = self.inode(ino)?;
        let map = self.image.map(&inode)?;
        let file = Arc::new(File {
            inode,
            map,
            strides: Strides::default(),
        });
        let mut files = files();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(ino, file.clone());
        Ok(file)
    }

    fn lists_attributes(&self) -> bool {
        self.eager_lists.load(Ordering::Relaxed) > 0
    }

    fn begin_list(&self) {
        let left = self.eager_lists.load(Ordering::Relaxed);
        self.eager_lists
            .store(left.saturating_sub(1), Ordering::Relaxed);
    }

    /// Notes a file that may be read ahead. One that lies in memory is not read by the kernel's page cache.
    fn list_ahead(&self, ino: Ino, bytes: u64) {
        if self.pins.whole(ino).is_none() {
            self.ahead.list(ino, bytes);
        }
    }

    /// Tells of the files that are to be read ahead of whoever asks for this one.
    fn go_ahead(&self, ino: Ino) {
        let Some(hook) = self.on_ahead.get() else {
            return;
        };
        let files = self.ahead.read(ino);
        if !files.is_empty() {
            hook(files);
        }
    }

    /// Reads as much as there is from an offset on, up to the length of `buf`.
    fn read_pieces(
        &self,
        ino: Ino,
        inode: &Inode,
        map: &Map,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<usize> {
        let mut done = 0;
        while done < buf.len() {
            let read = self.read_piece(ino, inode, map, offset + done as u64, &mut buf[done..])?;
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    /// Reads what is pinned, or up to there what is not.
    fn read_piece(
        &self,
        ino: Ino,
        inode: &Inode,
        map: &Map,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<usize> {
        let to = match self.pins.read(ino, offset, buf)? {
            Pinned::Bytes(count) => {
                self.image.count_pinned();
                return Ok(count);
            }
            Pinned::From(next) => usize::try_from(next - offset).unwrap_or(usize::MAX),
            Pinned::Nothing => usize::MAX,
        };
        let len = buf.len().min(to);
        Ok(self.image.read(inode, map, offset, &mut buf[..len])?)
    }

    /// With a metabox, bit 63 of a node id moves to bit 31, and what is above bit 30 up by one.
    fn ino(&self, nid: Nid) -> Ino {
        Ino(match self.image.superblock().metabox {
            None => nid.0,
            Some(_) => {
                nid.slot() >> 31 << 32 | u64::from(nid.in_metabox()) << 31 | nid.0 & 0x7fff_ffff
            }
        })
    }

    fn nid(&self, ino: Ino) -> Nid {
        Nid(match self.image.superblock().metabox {
            None => ino.0,
            Some(_) => (ino.0 >> 31 & 1) << 63 | ino.0 >> 32 << 31 | ino.0 & 0x7fff_ffff,
        })
    }

    /// Reads an inode.
    ///
    /// # Errors
    ///
    /// As [`Image::inode`].
    pub fn inode(&self, ino: Ino) -> FsResult<Inode> {
        Ok(self.image.inode(self.nid(ino))?)
    }

    /// An inode that is asked for its extended attributes.
    fn inode_with_xattrs(&self, ino: Ino) -> FsResult<Inode> {
        let inode = self.inode(ino)?;
        if inode.xattr_bytes == 0 {
            self.xattrs.asked_in_vain(&self.image);
        }
        Ok(inode)
    }

    fn attr(&self, inode: &Inode) -> Attr {
        let sb = self.image.superblock();
        let block = u64::from(sb.block_bytes());
        let bytes = match inode.layout.is_compressed() {
            true => inode.compressed_blocks.saturating_mul(block),
            false => inode.size.next_multiple_of(block),
        };
        Attr {
            ino: self.ino(inode.nid),
            kind: inode.kind,
            perm: inode.perm,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: bytes / 512,
            block_size: sb.block_bytes(),
            atime: inode.mtime,
            mtime: inode.mtime,
            ctime: inode.mtime,
        }
    }
}

impl From<Error> for FsError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NotFound,
            Error::NotDirectory => Self::NotDirectory,
            Error::NotSymlink => Self::Invalid,
            // One inode of a newer kind says nothing of the others: `FsError::Unsupported` would.
            error @ Error::Unsupported { .. } => Self::Io(io::Error::new(
                io::ErrorKind::Unsupported,
                error.to_string(),
            )),
            Error::Io { ref source, .. } => {
                Self::Io(io::Error::new(source.kind(), error.to_string()))
            }
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl FileSystem for ImageFs {
    fn root(&self) -> Ino {
        self.ino(self.image.superblock().root)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let is_stand_in = self
            .stand_in
            .get()
            .is_some_and(|own| own.as_bytes() == name);
        if is_stand_in && parent == self.root() {
            return Ok(self.stand_in());
        }
        let dir = self.inode(parent)?;
        let entry = self.image.lookup(&dir, name)?.ok_or(FsError::NotFound)?;
        if entry.kind != FileKind::Directory {
            self.eager_lists.store(EAGER_LISTS, Ordering::Relaxed);
        }
        Ok(self.attr(&self.image.inode(entry.nid)?))
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        if ino == STAND_IN && self.stand_in.get().is_some() {
            return Ok(self.stand_in());
        }
        Ok(self.attr(&self.inode(ino)?))
    }

    /// Directories are entered by whoever walks a tree. Other inodes may have to be fetched from all
    /// over the device, so only those who asked for them lately get them.
    fn getattr_listed(&self, ino: Ino, kind: FileKind) -> Option<Attr> {
        let is_wanted = kind == FileKind::Directory
            || self.lists_attributes()
            || self.image.has_inode(self.nid(ino));
        let attr = is_wanted.then(|| self.getattr(ino).ok()).flatten()?;
        if attr.kind == FileKind::Regular && self.on_ahead.get().is_some() {
            self.list_ahead(ino, attr.size);
        }
        Some(attr)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let dir = self.inode(ino)?;
        let mut broken = false;
        if from == 0 {
            self.ahead.begin();
            self.begin_list();
        }
        let eager = self.lists_attributes();
        self.image
            .visit_dir(&dir, DirCursor::from_u64(from), |entry, next| {
                let next = next.to_u64();
                if eager {
                    self.image.prefetch_inode(entry.nid);
                }
                let flow = visit(DirEntry {
                    ino: self.ino(entry.nid),
                    kind: entry.kind,
                    next,
                    name: entry.name,
                });
                broken = flow.is_break();
                flow
            })?;
        if dir.dot_omitted && !broken && from != END {
            // Where the kernel shows it too: behind all others.
            let _ = visit(DirEntry {
                ino,
                kind: FileKind::Directory,
                next: END,
                name: b".",
            });
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(self.image.read_link(&self.inode(ino)?)?)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let file = self.file(ino)?;
        let File {
            inode,
            map,
            strides,
        } = &*file;
        if inode.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if offset == 0 {
            self.go_ahead(ino);
        }
        for next in strides.read(offset, buf.len()) {
            self.image.prefetch(inode, map, next);
        }
        let done = self.read_pieces(ino, inode, map, offset, buf)?;
        self.image.count_served(done);
        Ok(done)
    }

    fn has_memory_files(&self) -> bool {
        self.pins.has_whole()
    }

    fn memory_file(&self, ino: Ino) -> Option<BorrowedFd<'_>> {
        self.pins.whole(ino)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let file = self.file(ino)?;
        let File { inode, map, .. } = &*file;
        if offset >= inode.size {
            return Err(FsError::BeyondEnd);
        }
        for extent in self.image.extents_from(inode, map, offset) {
            let extent = extent?;
            let is_hole = extent.source == Source::Hole;
            if is_hole == (what == Seek::Hole) {
                return Ok(extent.offset.max(offset));
            }
        }
        match what {
            Seek::Hole => Ok(inode.size),
            Seek::Data => Err(FsError::BeyondEnd),
        }
    }

    fn has_no_xattrs(&self) -> bool {
        self.xattrs.has_none()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let inode = self.inode_with_xattrs(ino)?;
        self.image.xattr(&inode, name)?.ok_or(FsError::NoData)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let inode = self.inode_with_xattrs(ino)?;
        Ok(self
            .image
            .xattrs(&inode)?
            .into_iter()
            .map(|xattr| xattr.name)
            .collect())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let sb = self.image.superblock();
        let extra: u64 = self
            .image
            .devices()
            .iter()
            .flat_map(|d| &d.slot)
            .map(|s| s.blocks)
            .sum();
        Ok(StatFs {
            block_size: sb.block_bytes(),
            blocks: sb.blocks + extra,
            blocks_free: 0,
            blocks_available: 0,
            // As the kernel's EROFS counts: an image is never short of inodes.
            files: u64::MAX,
            files_free: u64::MAX - sb.inodes,
            name_max: 255,
        })
    }
}
