//! `anteros patch --export`: what lies between two states of an image, as a file of its own.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Device, FileDevice, Overlaid};
use anteros_format::patch_file::{DIGEST_BYTES, DIGEST_PLACE, MAGIC, PatchHeader, ROOT_BYTES_MAX};
use anteros_format::superblock::SUPERBLOCK_OFFSET;
use anteros_image::{Image, OpenOptions, Patched};

use super::{base, states};
use crate::failure::{Failure, Kind};
use crate::patch_file::{base_of, digest, each, ends};
use crate::places;

/// A patch that was written into a file.
pub struct Exported {
    /// The state that the patch goes on from, and the one that it makes.
    pub base: u32,
    pub number: u32,
    /// Bytes of the file.
    pub bytes: u64,
}

/// An image, and where it lies.
pub struct Source<'a> {
    pub path: &'a Path,
    pub image: &'a Image,
}

/// Writes a patch into a file, or to standard output: from the state `since`, or the one before the current one, to the current one.
pub fn export(
    source: &Source<'_>,
    to: &Path,
    since: Option<u32>,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<Exported, Failure> {
    let image = source.image;
    base::refuse(image)?;
    if !is_stream(to) {
        check_target(source.path, to, ("patch", MAGIC.len()), |start| {
            start == MAGIC
        })?;
    }
    let known = states::states(image, "nothing is exported of", workers, cancel)?;
    let name = image.name();
    let usage = |text: String| {
        let hint = format!("`anteros patch {name} --list` tells which states there are");
        Failure::new(Kind::Usage, text).hint(hint)
    };
    let Some(current) = known.first() else {
        return Err(usage(format!("{name}: was never patched")));
    };
    let number = current.record.number;
    let base = since.unwrap_or(number - 1);
    let former = states::superblock_of(&known, base).filter(|_| base < number);
    let Some(former) = former else {
        let text = format!("{name}: there is no state {base} before the current one, {number}");
        return Err(usage(text));
    };
    let device = FileDevice::open(source.path).map_err(Failure::os)?;
    let start = states::bytes_of(image, &former)?;
    let roots = roots(source, &known, base, start)?;
    let slots = roots.iter().map(|(at, root)| (*at, root.len()));
    let view = base_of(&device, &former, start, slots);
    let hashed = |ranges: &mut dyn Iterator<Item = Range<u64>>| {
        let found = digest(&view, ranges, cancel);
        found.map_err(|stop| stop.failure(source.path))
    };
    let header = PatchHeader {
        uuid: image.superblock().uuid,
        base,
        number,
        start,
        end: current.record.end,
        root_count: roots.len() as u32, // no more than states
        ends_digest: hashed(&mut ends(start).into_iter())?,
        base_digest: hashed(&mut std::iter::once(0..start))?,
        digest: [0; DIGEST_BYTES],
        former,
        superblock: current.superblock,
    };
    if let Err(fault) = PatchHeader::parse(&header.encode()) {
        // Such as superblocks that count fewer blocks than there are.
        let message = format!("{name}: no patch can be made of it: {fault}");
        return Err(Failure::new(Kind::Unsupported, message));
    }
    let patch = Writing {
        device: &device,
        header,
        roots: &roots,
        cancel,
    };
    let bytes = match is_stream(to) {
        true => patch.write_stream(to)?,
        false => patch.write_file(to)?,
    };
    Ok(Exported {
        base,
        number,
        bytes,
    })
}

/// Returns whether a patch is to go to standard output.
pub fn is_stream(to: &Path) -> bool {
    to.as_os_str() == "-"
}

/// Makes sure that nothing of another kind lies at a path: the first bytes tell what does.
pub fn check_target(
    image: &Path,
    to: &Path,
    (what, bytes): (&str, usize),
    is_it: impl Fn(&[u8]) -> bool,
) -> Result<(), Failure> {
    let Ok(found) = fs::metadata(to) else {
        return Ok(());
    };
    let refused = |what: &str| {
        let message = format!("{}: {what}", to.display());
        Failure::new(Kind::Usage, message).hint(format!("name another file for the {what}"))
    };
    let is_image = fs::metadata(image)
        .is_ok_and(|image| (image.dev(), image.ino()) == (found.dev(), found.ino()));
    if is_image {
        return Err(refused("is the image"));
    }
    if !found.is_file() {
        return Err(refused("is there, and is no regular file"));
    }
    let device = FileDevice::open(to).map_err(Failure::os)?;
    let mut start = vec![0; bytes];
    let is_known = device.read_at(0, &mut start).is_ok() && is_it(&start);
    match is_known || found.len() == 0 {
        true => Ok(()),
        false => Err(refused(&format!("is there, and is no {what}"))),
    }
}

/// The roots that states behind the base have in slots of it, and where each of them begins, ascending.
fn roots(
    source: &Source<'_>,
    known: &[Patched],
    base: u32,
    start: u64,
) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let mut roots = Vec::new();
    let mut all_bytes = 0;
    for state in known.iter().filter(|state| state.record.number > base) {
        let Some(at) = state.record.root.filter(|at| *at < start) else {
            continue;
        };
        let device = FileDevice::open(source.path).map_err(Failure::os)?;
        let part = (SUPERBLOCK_OFFSET, state.superblock.to_vec());
        let view = Arc::new(Overlaid::new(device, [part]));
        let options = OpenOptions::default();
        let opened = Image::open(view.clone(), Vec::new(), options);
        let name = source.image.name();
        let image = opened.map_err(|e| Failure::opening(&name, &e))?;
        let found = image.root().and_then(|root| image.record(&root));
        let found = found.map_err(|e| Failure::image(&name, &e))?;
        let bytes = found.filter(|(address, bytes)| *address == at && at + bytes <= start);
        let Some((_, bytes)) = bytes else {
            let number = state.record.number;
            let message = format!("{name}: the root of state {number} is not where it should be");
            return Err(Failure::new(Kind::Corrupt, message));
        };
        all_bytes += bytes;
        if all_bytes > ROOT_BYTES_MAX {
            let message = format!("{name}: roots between the states are too large");
            return Err(Failure::new(Kind::Unsupported, message));
        }
        let mut root = vec![0; bytes as usize];
        let read = view.read_at(at, &mut root);
        read.map_err(|e| Failure::system(source.path, &e))?;
        roots.push((at, root));
    }
    roots.sort_unstable();
    Ok(roots)
}

/// A patch that is being written.
struct Writing<'a> {
    device: &'a FileDevice,
    header: PatchHeader,
    roots: &'a [(u64, Vec<u8>)],
    cancel: &'a AtomicBool,
}

impl Writing<'_> {
    /// Writes a file beside, which then takes the place of what was there. Returns its bytes.
    fn write_file(self, to: &Path) -> Result<u64, Failure> {
        let fail = |error: io::Error| Failure::system(to, &error);
        let path = places::behind_links(to).map_err(fail)?;
        let beside = places::beside(&path).map_err(fail)?;
        let mut file = File::create_new(&beside).map_err(fail)?;
        let written = self.write(&mut file, to).and_then(|bytes| {
            file.sync_all().map_err(fail)?;
            fs::rename(&beside, &path).map_err(fail)?;
            Ok(bytes)
        });
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// Writes the patch where bytes follow each other: a first pass finds its digest.
    fn write_stream(mut self, to: &Path) -> Result<u64, Failure> {
        let (_, digest) = self.put(io::sink(), to)?;
        self.header.digest = digest;
        Ok(self.put(io::stdout().lock(), to)?.0)
    }

    fn write(&self, file: &mut File, to: &Path) -> Result<u64, Failure> {
        let fail = |error: io::Error| Failure::system(to, &error);
        let (bytes, digest) = self.put(&mut *file, to)?;
        let place = SeekFrom::Start(DIGEST_PLACE.start as u64);
        file.seek(place).map_err(fail)?;
        file.write_all(&digest).map_err(fail)?;
        Ok(bytes)
    }

    /// Writes all bytes; returns how many there are, and their digest.
    fn put(&self, out: impl Write, to: &Path) -> Result<(u64, [u8; DIGEST_BYTES]), Failure> {
        let fail = |error: io::Error| Failure::system(to, &error);
        let mut out = Hashed {
            out: BufWriter::new(out),
            hash: blake3::Hasher::new(),
            bytes: 0,
        };
        let end = |(at, root): &(u64, Vec<u8>)| *at..*at + root.len() as u64;
        let places: Vec<Range<u64>> = self.roots.iter().map(end).collect();
        out.put(&self.header.encode()).map_err(fail)?;
        out.put(&PatchHeader::table(&places)).map_err(fail)?;
        for (_, root) in self.roots {
            out.put(root).map_err(fail)?;
        }
        let all = self.header.start..self.header.end;
        each(self.device, all, self.cancel, |part| {
            out.put(part).map_err(fail)
        })
        .map_err(|stop| stop.failure(Path::new(&self.device.name())))?;
        out.out.flush().map_err(fail)?;
        Ok((out.bytes, out.hash.finalize().into()))
    }
}

/// A file whose bytes are hashed while they are written.
struct Hashed<W> {
    out: W,
    hash: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> Hashed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
