//! The mount behind all answers, and what kinds of requests have in common: entries, attributes, errors.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anteros_core::{Attr, DirEntry, FileSystem, FsError, FsResult, Ino, Seek};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::args::{Args, put, raw_attr};
use super::hooks::{AttributeHook, FaultHook, FileLender, Lender, OrderHook};
use super::own_value::OwnValue;
use super::write_back::{Moment, WriteBack};
use crate::dirpage::DirPage;
use crate::node::Nodes;
use crate::proto::{AttrOut, EntryOut, LseekIn, LseekOut, SEEK_DATA, SEEK_HOLE};
use crate::readahead::ByFile;

/// For how long the kernel may trust names and attributes of a file system that never changes: the
/// largest time it can count.
pub(super) const FOREVER: Duration = Duration::from_secs(i64::MAX as u64);

/// Stands for the error of a request that is to be answered later, when it is made once more. The kernel has this number
/// for the same (`ERESTARTSYS`); no program ever sees it.
pub const LATER: Errno = Errno::from_raw_os_error(512);

/// Answers the requests of one mount.
pub struct Dispatcher {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) nodes: Nodes,
    pub(super) on_fault: FaultHook,
    pub(super) on_attribute: Option<AttributeHook>,
    pub(super) on_order: Option<OrderHook>,
    pub(super) own_value: OwnValue,
    /// There if files may be lent. They are opened for real then, all of them: one ENOSYS and the
    /// kernel asks no more.
    pub(super) lender: Option<Lender>,
    pub(super) file_lender: Option<Arc<dyn FileLender>>,
    /// There if the kernel writes back.
    pub(super) write_back: Option<WriteBack>,
    /// Tells whether SETXATTR has flags of its own.
    pub(super) extended_xattrs: bool,
    /// Tells whether no directory is opened.
    pub(super) keeps_listings: bool,
    /// There if each file has its own.
    pub(super) readahead: Option<ByFile>,
    /// For how long the kernel may trust names and attributes.
    pub(super) trusted_for: Duration,
}

impl Dispatcher {
    /// A dispatcher that asks `fs` and tells no one of faults.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self {
            nodes: Nodes::new(fs.root()),
            trusted_for: fs.writable().map_or(FOREVER, |fs| fs.trusted_for()),
            fs,
            on_fault: Box::new(|_, _| {}),
            on_attribute: None,
            on_order: None,
            own_value: OwnValue::default(),
            lender: None,
            file_lender: None,
            write_back: None,
            extended_xattrs: false,
            keeps_listings: false,
            readahead: None,
        }
    }

    /// Sets whom to tell of faults.
    pub fn set_fault_hook(&mut self, hook: FaultHook) {
        self.on_fault = hook;
    }

    /// Sets whom to ask first for an extended attribute.
    pub fn set_attribute_hook(&mut self, hook: AttributeHook) {
        self.on_attribute = Some(hook);
    }

    /// Sets who takes orders that come as extended attributes.
    pub fn set_order_hook(&mut self, hook: OrderHook) {
        self.on_order = Some(hook);
    }

    /// Has the kernel read ahead of each file as is fit for it.
    pub fn set_readahead(&mut self, readahead: Option<ByFile>) {
        self.readahead = readahead;
    }

    /// Has memory files lent to the kernel.
    pub fn set_lender(&mut self, lender: Lender) {
        self.lender = Some(lender);
    }

    /// Has the files behind those of a file system that can be written to lent to the kernel.
    pub fn set_file_lender(&mut self, lender: Arc<dyn FileLender>) {
        self.file_lender = Some(lender);
    }

    /// The kernel keeps what is written and writes it back later.
    pub fn set_write_back(&mut self) {
        self.write_back = Some(WriteBack::new(Arc::clone(self.nodes.renewed())));
    }

    /// Sets whether SETXATTR has flags of its own.
    pub fn set_extended_xattrs(&mut self, extended: bool) {
        self.extended_xattrs = extended;
    }

    /// Sets whether directories are listed without being opened.
    pub fn set_keeps_listings(&mut self, keeps: bool) {
        self.keeps_listings = keeps;
    }

    /// Returns whether the kernel writes back.
    pub fn writes_back(&self) -> bool {
        self.write_back.is_some()
    }

    /// Table of inodes and the kernel's nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// For how long the kernel may trust attributes. It does not look at what is written by a mapping of a file that it was lent.
    pub(super) fn attributes_trusted_for(&self, ino: Ino) -> Duration {
        match &self.file_lender {
            Some(lender) if lender.is_written(ino) => Duration::ZERO,
            _ => self.trusted_for,
        }
    }

    pub(super) fn attr_out(&self, attr: &Attr) -> AttrOut {
        let trusted_for = self.attributes_trusted_for(attr.ino);
        AttrOut {
            attr_valid: trusted_for.as_secs(),
            attr_valid_nsec: trusted_for.subsec_nanos(),
            padding: 0,
            attr: raw_attr(attr),
        }
    }

    /// Fills `page` with what `list` shows. What comes before a fault is listed; the next call, resuming
    /// there, meets it again and reports it.
    pub(super) fn fill(
        &self,
        ino: Ino,
        page: &mut DirPage<'_>,
        list: impl FnOnce(&mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()>,
    ) -> Result<(), Errno> {
        let mut full = false;
        let result = list(&mut |entry| {
            if page.push(&entry) {
                return ControlFlow::Continue(());
            }
            full = true;
            ControlFlow::Break(())
        });
        match result {
            _ if page.len() > 0 => Ok(()),
            // An empty page says that the directory ends here, which it does not.
            Ok(()) if full => Err(Errno::INVAL),
            result => self.ask(ino, result),
        }
    }

    pub(super) fn lseek(
        &self,
        ino: Ino,
        args: &mut Args<'_>,
        out: &mut [u8],
        seek: impl FnOnce(&LseekIn, Seek) -> FsResult<u64>,
    ) -> Result<usize, Errno> {
        let wanted: LseekIn = args.take()?;
        let what = match wanted.whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        match seek(&wanted, what) {
            Err(FsError::NoData) => Err(Errno::NXIO),
            result => put(
                out,
                &LseekOut {
                    offset: self.ask_of_all(ino, result)?,
                },
            ),
        }
    }

    /// To be looked at before attributes are asked for.
    pub(super) fn now(&self) -> Moment {
        let files = self.write_back.as_ref();
        files.map(WriteBack::now).unwrap_or_default()
    }

    /// The entry that LOOKUP and READDIRPLUS give of an inode, whose attributes were asked for since a moment; `None` for the one without
    /// a node number.
    pub(super) fn entry(&self, attr: &Attr, since: Moment) -> Option<EntryOut> {
        self.entry_by(attr, |files| files.introduce(attr, since))
    }

    /// As [`entry`](Self::entry), of a file that the kernel gets open by the same answer.
    pub(super) fn entry_open(&self, attr: &Attr, since: Moment) -> Option<EntryOut> {
        self.entry_by(attr, |files| files.introduce_open(attr, since))
    }

    pub(super) fn entry_by(
        &self,
        attr: &Attr,
        introduce: impl FnOnce(&WriteBack) -> Option<u64>,
    ) -> Option<EntryOut> {
        let trusted_for = self.attributes_trusted_for(attr.ino);
        let first = self.nodes.first_node(attr.ino)?;
        let renewed = self.write_back.as_ref().and_then(introduce);
        let fs = self.fs.writable();
        Some(EntryOut {
            nodeid: renewed.unwrap_or(first),
            generation: fs.map_or(0, |fs| fs.generation(attr.ino).into()),
            attr_valid: trusted_for.as_secs(),
            attr_valid_nsec: trusted_for.subsec_nanos(),
            attr: raw_attr(attr),
            ..self.missing()
        })
    }

    /// A name that is not there.
    pub(super) fn missing(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.trusted_for.as_secs(),
            entry_valid_nsec: self.trusted_for.subsec_nanos(),
            ..EntryOut::new_zeroed()
        }
    }

    pub(super) fn ask<T>(&self, ino: Ino, result: FsResult<T>) -> Result<T, Errno> {
        result.map_err(|error| self.errno(ino, &error))
    }

    /// As [`ask`](Self::ask), for requests that the kernel stops sending when the file system
    /// supports them for no inode at all.
    pub(super) fn ask_of_all<T>(&self, ino: Ino, result: FsResult<T>) -> Result<T, Errno> {
        match result {
            Err(FsError::Unsupported) => Err(Errno::NOSYS),
            result => self.ask(ino, result),
        }
    }

    /// As [`ask`](Self::ask), of content. What cannot be had is EIO to programs, whatever the reason: it is what `read(2)`
    /// documents and what the kernel's own EROFS says of a cluster that does not decompress.
    pub(super) fn ask_content<T>(&self, ino: Ino, result: FsResult<T>) -> Result<T, Errno> {
        match result {
            Err(error @ FsError::Corrupt(_)) => Err(self.fault(ino, &error, Errno::IO)),
            result => self.ask(ino, result),
        }
    }

    /// The `errno` of an error; faults are reported on the way. The kernel's own file systems say
    /// EUCLEAN of broken structures, too; of broken content see [`ask_content`](Self::ask_content).
    pub(super) fn errno(&self, ino: Ino, error: &FsError) -> Errno {
        match error {
            FsError::NotFound => Errno::NOENT,
            FsError::NotDirectory => Errno::NOTDIR,
            FsError::IsDirectory => Errno::ISDIR,
            FsError::Invalid => Errno::INVAL,
            FsError::NoData => Errno::NODATA,
            FsError::BeyondEnd => Errno::NXIO,
            FsError::Unsupported => Errno::OPNOTSUPP,
            FsError::Exists => Errno::EXIST,
            FsError::NotEmpty => Errno::NOTEMPTY,
            FsError::NoSpace => Errno::NOSPC,
            FsError::TooLarge => Errno::FBIG,
            FsError::NameTooLong => Errno::NAMETOOLONG,
            FsError::TooManyLinks => Errno::MLINK,
            FsError::ReadOnly => Errno::ROFS,
            FsError::Later => LATER,
            FsError::Corrupt(_) => self.fault(ino, error, Errno::UCLEAN),
            FsError::Io(_) => self.fault(ino, error, Errno::IO),
            FsError::Host(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        }
    }

    pub(super) fn fault(&self, ino: Ino, error: &FsError, errno: Errno) -> Errno {
        (self.on_fault)(ino, error);
        errno
    }
}
