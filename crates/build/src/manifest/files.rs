//! Content of a manifest's files: that it is there, and what the manifest says of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;
use anteros_verity::hex;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::entry::{Content, FileEntry, Running, Sum, short};
use crate::source::directory::{Directory, HostFile, fingerprint, stat};
use crate::source::listed::Listed;
use crate::sparse::Allocation;
use crate::tar::fault::{Fault, broken};
use crate::tar::members::Numbered;
use crate::tree::Fingerprint;

/// Most bytes of content that lines tell, all together: they are in memory until the image is complete.
const TOLD_BYTES_MAX: u64 = 256 << 20;
/// Bytes of content of which digests are made at once.
const STEP_BYTES: usize = 1 << 20;

/// Files as far as lines have told of them.
pub(super) struct Files<'a> {
    listed: Listed,
    fingerprints: Vec<Fingerprint>,
    told_bytes: u64,
    cancel: &'a AtomicBool,
}

impl<'a> Files<'a> {
    pub const fn new(listed: Listed, cancel: &'a AtomicBool) -> Self {
        Self {
            listed,
            fingerprints: Vec::new(),
            told_bytes: 0,
            cancel,
        }
    }

    pub fn finish(self) -> (Listed, Vec<Fingerprint>) {
        (self.listed, self.fingerprints)
    }

    /// Adds a file; `None` if it need not be there, and is not.
    pub fn add(&mut self, name: &[u8], file: FileEntry) -> Result<Option<Numbered>, Fault> {
        if self.fingerprints.len() >= u32::MAX as usize - 1 {
            return broken("the manifest has more files than 32 bits can count".into());
        }
        match &file.content {
            Content::Told(bytes) => self.add_told(bytes, &file).map(Some),
            // What is empty need not be looked for where there is nothing to look in.
            Content::Path(_) if file.size == Some(0) && self.listed.root().is_none() => {
                self.add_told(b"", &file).map(Some)
            }
            Content::Path(path) => self.add_path(name, path, &file),
        }
    }

    fn add_told(&mut self, bytes: &[u8], file: &FileEntry) -> Result<Numbered, Fault> {
        let len = bytes.len() as u64;
        check_size(file, len, "the content that the line tells")?;
        self.told_bytes += len;
        if self.told_bytes > TOLD_BYTES_MAX {
            return broken(format!(
                "the lines tell more than {TOLD_BYTES_MAX} bytes of content"
            ));
        }
        check_sums(&file.sums, |each| {
            each(bytes);
            Ok(())
        })?;
        self.fingerprints.push(Fingerprint::default());
        Ok(Numbered {
            bytes: len,
            allocation: Allocation::Whole,
            number: self.listed.add_told(bytes),
        })
    }

    fn add_path(
        &mut self,
        name: &[u8],
        path: &[u8],
        file: &FileEntry,
    ) -> Result<Option<Numbered>, Fault> {
        let Some(root) = self.listed.root() else {
            let text = format!(
                "the content of `{}` is wanted; name the directory that it lies in",
                short(name)
            );
            return broken(text);
        };
        let found = match root.open_beneath(path, OFlags::PATH) {
            Ok(found) => found,
            Err(e) if file.is_optional && e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return broken(cannot("find", root, path, &e)),
        };
        let found = stat(&found, b"", AtFlags::EMPTY_PATH)
            .map_err(|e| Fault::Broken(cannot("look at", root, path, &e)))?;
        let place = || root.full_path(path).display().to_string();
        let kind = FileKind::from_mode(found.stx_mode.into());
        if kind != Some(FileKind::Regular) {
            let kind = kind.map_or("something unknown", FileKind::name);
            return broken(format!("{} is a {kind}, and no regular file", place()));
        }
        check_size(file, found.stx_size, &place())?;
        let fingerprint = fingerprint(&found);
        if !file.sums.is_empty() {
            let content = |each: &mut dyn FnMut(&[u8])| self.read(root, path, found.stx_size, each);
            check_sums(&file.sums, content)?;
        }
        self.fingerprints.push(fingerprint);
        Ok(Some(Numbered {
            bytes: found.stx_size,
            allocation: Allocation::of(found.stx_size, found.stx_blocks.saturating_mul(512)),
            number: self.listed.add_path(path),
        }))
    }

    fn read(
        &self,
        root: &Directory,
        path: &[u8],
        size: u64,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let fail = |e: io::Error| Fault::Broken(cannot("read", root, path, &e));
        let file = HostFile::beneath(root, path).map_err(fail)?;
        let mut buffer = vec![0; size.min(STEP_BYTES as u64) as usize];
        let mut at = 0;
        while at < size {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Fault::Cancelled);
            }
            let step = (size - at).min(STEP_BYTES as u64) as usize;
            file.read_exact_at(&mut buffer[..step], at).map_err(fail)?;
            each(&buffer[..step]);
            at += step as u64;
        }
        Ok(())
    }
}

fn check_size(file: &FileEntry, found: u64, place: &str) -> Result<(), Fault> {
    match file.size.filter(|size| *size != found) {
        None => Ok(()),
        Some(size) => broken(format!("the size is {size}, but {place} has {found} bytes")),
    }
}

/// Compares content with the digests that it should have.
fn check_sums(
    sums: &[Sum],
    content: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut running: Vec<Running> = sums.iter().map(|sum| sum.kind.start()).collect();
    content(&mut |bytes| running.iter_mut().for_each(|sum| sum.update(bytes)))?;
    for (sum, found) in sums.iter().zip(running) {
        let found = found.finish();
        if found != sum.bytes {
            return broken(format!(
                "the {} digest is {}, but that of the content is {}",
                sum.kind.name(),
                hex::encode(&sum.bytes),
                hex::encode(&found)
            ));
        }
    }
    Ok(())
}

/// The reason that something below the directory of content cannot be used.
fn cannot(action: &str, root: &Directory, path: &[u8], cause: &io::Error) -> String {
    let place = root.full_path(path);
    let cause = match Errno::from_io_error(cause) {
        Some(Errno::LOOP) => "a symbolic link is on the way, and none is followed".to_owned(),
        Some(Errno::NOSYS) => "openat2 is missing, which Linux has since 5.6".to_owned(),
        _ => cause.to_string(),
    };
    format!("cannot {action} {}: {cause}", place.display())
}
