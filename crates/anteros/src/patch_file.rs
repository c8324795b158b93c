//! Patches in files: they are verified when they are opened, and lie over the image that they are of.
//!
//! ```text
//! image    | superblock of the base | … 0 … | what nobody knows
//! patch    | superblock             | root  | bytes that follow the base … |
//!            ───── the state that they make together ─────────────────────
//! ```

use std::io;
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Device, FileDevice, Joined, Overlaid, Window};
use anteros_format::patch_file::{
    DIGEST_BYTES, DIGEST_PLACE, ENDS_BYTES, HEADER_BYTES, PatchHeader,
};
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_format::{Corrupt, Fault};

use crate::failure::{Failure, Kind};
use crate::interrupt;

/// Bytes that are hashed or compared at once.
const BUFFER_BYTES: u64 = 256 << 10;

/// A patch that is whole.
pub struct PatchFile {
    path: PathBuf,
    pub header: PatchHeader,
    /// Roots in slots of the base, and where each of them begins.
    pub roots: Vec<(u64, Vec<u8>)>,
    /// The bytes that follow the base.
    pub bytes: Arc<Window<FileDevice>>,
}

/// An image that a patch lies over.
pub type Over<D> = Overlaid<Joined<D, Arc<Window<FileDevice>>>>;

/// The state of an image that a patch is to be laid over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The base of the patch.
    Base,
    /// The state that it makes.
    Patched,
}

impl PatchFile {
    /// Opens a patch and verifies all of it. Nobody writes to it meanwhile.
    pub fn open(path: &Path, cancel: &AtomicBool) -> Result<Self, Failure> {
        let device = FileDevice::open_unchanging(path).map_err(Failure::os)?;
        let read = |at: u64, bytes: u64| read_exactly(path, &device, at, bytes);
        let header = read(0, HEADER_BYTES as u64)?;
        let header = PatchHeader::parse(&header).map_err(|fault| failure(path, &fault))?;
        let table = read(HEADER_BYTES as u64, header.table_bytes() as u64)?;
        let places = header
            .roots(&table)
            .map_err(|fault| failure(path, &fault))?;
        let mut at = (HEADER_BYTES + table.len()) as u64;
        let mut roots = Vec::with_capacity(places.len());
        for place in places {
            let root = read(at, place.end - place.start)?;
            at += root.len() as u64;
            roots.push((place.start, root));
        }
        let expected = at + (header.end - header.start);
        if expected != device.size() {
            return Err(wrong_length(path, device.size(), expected));
        }
        let zero = (DIGEST_PLACE.start as u64, vec![0; DIGEST_PLACE.len()]);
        let whole = Overlaid::new(&device, [zero]);
        let all = 0..device.size();
        if digest(&whole, [all], cancel).map_err(|e| e.failure(path))? != header.digest {
            let name = path.display();
            let message = format!("{name}: its digest is not that of its bytes: it was changed");
            return Err(Failure::new(Kind::Corrupt, message));
        }
        Ok(Self {
            path: path.into(),
            header,
            roots,
            bytes: Arc::new(Window::new(device, at)),
        })
    }

    /// Tells which of the two states an image has, by its superblock.
    pub fn standing(&self, image: &dyn Device) -> Result<Standing, Failure> {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        let read = image.read_at(SUPERBLOCK_OFFSET, &mut superblock);
        let name = image.name();
        read.map_err(|e| Failure::system(Path::new(&name), &e))?;
        if superblock == self.header.former {
            return Ok(Standing::Base);
        }
        if superblock == self.header.superblock {
            return Ok(Standing::Patched);
        }
        let uuid = Superblock::parse(&superblock).map(|sb| sb.uuid);
        if uuid.ok() != Some(self.header.uuid) {
            return Err(self.is_of_another(&name));
        }
        let (patch, base) = (self.path.display(), self.header.base);
        let message = format!("{name}: is not in the state that the patch {patch} goes on from");
        let hint = format!("that is state {base}; `anteros patch {name} --list` tells of its own");
        Err(Failure::new(Kind::Usage, message).hint(hint))
    }

    fn is_of_another(&self, name: &str) -> Failure {
        let patch = self.path.display();
        let message = format!("{name}: the patch {patch} is of another image");
        Failure::new(Kind::Usage, message)
    }

    /// Makes sure that an image has the bytes of the base: at its ends, or all of them.
    pub fn check_base(
        &self,
        image: &dyn Device,
        all: bool,
        cancel: &AtomicBool,
    ) -> Result<(), Failure> {
        let name = image.name();
        let start = self.header.start;
        let slots = self.roots.iter().map(|(at, root)| (*at, root.len()));
        let base = base_of(image, &self.header.former, start, slots);
        let found = match all {
            true => digest(&base, iter::once(0..start), cancel),
            false => digest(&base, ends(start), cancel),
        };
        let expected = match all {
            true => self.header.base_digest,
            false => self.header.ends_digest,
        };
        match found.map_err(|e| e.failure(Path::new(&name)))? == expected {
            true => Ok(()),
            false => Err(self.is_of_another(&name).hint(
                "its superblock is the same, but not its bytes: it was changed, or made otherwise",
            )),
        }
    }

    /// Lays the patch over its base.
    pub fn over<D: Device>(&self, image: D) -> Over<D> {
        let joined = Joined::new(image, self.header.start, self.bytes.clone());
        let superblock = (SUPERBLOCK_OFFSET, self.header.superblock.to_vec());
        let roots = self.roots.iter().cloned();
        Overlaid::new(joined, roots.chain([superblock]))
    }

    /// Lays the patch over an image that is to be read, of which the ends are verified.
    pub fn over_verified<D: Device>(&self, image: D) -> Result<Over<D>, Failure> {
        if self.standing(&image)? == Standing::Patched {
            let (name, patch) = (image.name(), self.path.display());
            let message = format!("{name}: has the patch {patch} already");
            let hint = "without --patch, it is read as it is";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        self.check_base(&image, false, &AtomicBool::new(false))?;
        Ok(self.over(image))
    }

    /// Makes sure that where the patch will write there is nothing that it would destroy: zeros, or what an attempt to apply it
    /// has left. A block device is free behind its image.
    pub fn check_places(
        &self,
        image: &dyn Device,
        is_device: bool,
        cancel: &AtomicBool,
    ) -> Result<(), Failure> {
        let fail = |stop: Stop| stop.failure(Path::new(&image.name()));
        let is_free = |found: u8, own: u8| found == 0 || found == own;
        let mut are_free = true;
        for (at, root) in &self.roots {
            are_free &= compare(image, *at, root, is_free, cancel).map_err(fail)?;
        }
        let name = image.name();
        if !are_free {
            let message = format!("{name}: a slot for the root is not free any more");
            return Err(Failure::new(Kind::Unsupported, message));
        }
        let start = self.header.start;
        let is_known = image.size() <= self.header.end;
        match is_device
            || is_known && compare(image, start, &*self.bytes, is_free, cancel).map_err(fail)?
        {
            true => Ok(()),
            false => Err(behind_image(&name, start)),
        }
    }

    /// Makes sure that an image that has the superblock of the patch has its bytes as well.
    pub fn check_patched(&self, image: &dyn Device, cancel: &AtomicBool) -> Result<(), Failure> {
        let name = image.name();
        let fail = |stop: Stop| stop.failure(Path::new(&name));
        let is_same = |found: u8, own: u8| found == own;
        let mut are_there = image.size() >= self.header.end;
        for (at, root) in &self.roots {
            are_there &= compare(image, *at, root, is_same, cancel).map_err(fail)?;
        }
        let behind = &*self.bytes;
        are_there &= compare(image, self.header.start, behind, is_same, cancel).map_err(fail)?;
        match are_there {
            true => Ok(()),
            false => {
                let patch = self.path.display();
                let message = format!(
                    "{name}: has the superblock of the patch {patch}, but not all of its bytes"
                );
                Err(Failure::new(Kind::Corrupt, message))
            }
        }
    }
}

fn behind_image(name: &str, start: u64) -> Failure {
    let message = format!("{name}: what lies behind the image would be lost");
    let hint = format!("`truncate -s {start} {name}` takes it away");
    Failure::new(Kind::Unsupported, message).hint(hint)
}

fn failure(path: &Path, fault: &Fault) -> Failure {
    let kind = match fault {
        Fault::Corrupt(_) => Kind::Corrupt,
        Fault::Unsupported(_) => Kind::Unsupported,
    };
    let failure = Failure::new(kind, format_args!("{}: {fault}", path.display()));
    match fault {
        Fault::Corrupt(Corrupt::PatchFile { what: "magic", .. }) => {
            failure.hint("`anteros patch IMAGE --export FILE` makes a patch")
        }
        _ => failure,
    }
}

/// The failure of a patch that is cut off, or has something behind it.
fn wrong_length(path: &Path, found: u64, expected: u64) -> Failure {
    let name = path.display();
    let message = match found < expected {
        true => {
            format!("{name}: the patch is cut off: {found} bytes are there of {expected}, or more")
        }
        false => format!("{name}: the patch has {expected} bytes, and {found} are there"),
    };
    Failure::new(Kind::Corrupt, message).hint("copy the file again from where it was made")
}

fn read_exactly(path: &Path, device: &FileDevice, at: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
    if at.saturating_add(bytes) > device.size() {
        return Err(wrong_length(path, device.size(), at.saturating_add(bytes)));
    }
    let mut read = vec![0; bytes as usize];
    let done = device.read_at(at, &mut read);
    done.map_err(|e| Failure::system(path, &e))?;
    Ok(read)
}

/// The base of a patch: an image with the superblock that it had, of which these slots were free.
pub fn base_of<D: Device>(
    image: D,
    former: &[u8; SUPERBLOCK_BYTES],
    start: u64,
    slots: impl IntoIterator<Item = (u64, usize)>,
) -> Overlaid<D> {
    // What is missing of the last block is zeros.
    let parts = [(SUPERBLOCK_OFFSET, former.to_vec()), (start, Vec::new())];
    let slots = slots.into_iter().map(|(at, bytes)| (at, vec![0; bytes]));
    Overlaid::new(image, parts.into_iter().chain(slots))
}

/// The bytes of a base that its short digest covers.
pub fn ends(start: u64) -> [Range<u64>; 2] {
    let front = ENDS_BYTES.min(start);
    [0..front, front.max(start.saturating_sub(ENDS_BYTES))..start]
}

/// A reason to end a pass over bytes.
#[derive(Debug)]
pub enum Stop {
    Read(io::Error),
    Failed(Failure),
}

impl Stop {
    pub fn failure(self, path: &Path) -> Failure {
        match self {
            Self::Read(error) => Failure::system(path, &error),
            Self::Failed(failure) => failure,
        }
    }
}

/// The BLAKE3 digest of bytes of a device.
pub fn digest(
    device: &dyn Device,
    ranges: impl IntoIterator<Item = Range<u64>>,
    cancel: &AtomicBool,
) -> Result<[u8; DIGEST_BYTES], Stop> {
    let mut hash = blake3::Hasher::new();
    for range in ranges {
        each(device, range, cancel, |part| {
            hash.update(part);
            Ok(())
        })?;
    }
    Ok(hash.finalize().into())
}

/// Hands on bytes of a device, part by part.
pub fn each(
    device: &dyn Device,
    range: Range<u64>,
    cancel: &AtomicBool,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; BUFFER_BYTES.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        interrupt::check(cancel).map_err(Stop::Failed)?;
        let part = &mut buffer[..BUFFER_BYTES.min(range.end - at) as usize];
        device.read_at(at, part).map_err(Stop::Read)?;
        take(part).map_err(Stop::Failed)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Returns whether all bytes of an image from a byte on, as far as it has any, are as those of a patch demand.
fn compare(
    image: &dyn Device,
    at: u64,
    own: &dyn Device,
    is_good: impl Fn(u8, u8) -> bool,
    cancel: &AtomicBool,
) -> Result<bool, Stop> {
    let there = image.size().saturating_sub(at).min(own.size());
    let mut found = Vec::new();
    let mut all_good = true;
    let mut place = at;
    each(own, 0..there, cancel, |part| {
        found.resize(part.len(), 0);
        let read = image.read_at(place, &mut found);
        read.map_err(|e| Failure::system(Path::new(&image.name()), &e))?;
        let mut pairs = found.iter().zip(part);
        all_good &= pairs.all(|(found, own)| is_good(*found, *own));
        place += part.len() as u64;
        Ok(())
    })?;
    Ok(all_good)
}
