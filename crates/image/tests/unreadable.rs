//! Media of which one block cannot be read: the block is named, and all else is read.

mod common;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Device, FileKind};
use anteros_format::inode::Inode;
use anteros_image::{
    CheckOptions, Error, Extent, ExtractOptions, Finding, FindingKind, Image, Location,
    OpenOptions, Result, Severity, Source, check, extract,
};
use anteros_tests::judge;
use common::{FIXTURES, Fixture};

const BLOCK: u64 = 4096;

/// No block.
const NONE: Bad = Bad {
    device: 0,
    block: u64::MAX / BLOCK - 1,
};

/// The names of the first device and of the extra one.
const NAMES: [&str; 2] = ["scratched", "other"];

/// A block that cannot be read, of the first device or of the extra one.
#[derive(Debug, Clone, Copy)]
struct Bad {
    device: usize,
    block: u64,
}

/// A device with a block that cannot be read.
struct Scratched {
    bytes: Arc<Vec<u8>>,
    block: u64,
    name: &'static str,
}

impl Device for Scratched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (start, end) = (self.block * BLOCK, (self.block + 1) * BLOCK);
        if offset < end && offset + buf.len() as u64 > start {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.bytes.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn name(&self) -> String {
        self.name.into()
    }
}

/// An image as it is on a sound medium.
struct Whole {
    name: &'static str,
    bytes: Arc<Vec<u8>>,
    extra: Option<Arc<Vec<u8>>>,
    /// By path, from the root.
    contents: BTreeMap<Vec<u8>, Content>,
}

struct Content {
    inode: Inode,
    bytes: Vec<u8>,
    extents: Vec<Extent>,
}

impl Whole {
    fn read(name: &'static str) -> Self {
        let fixture = Fixture::read(name);
        let mut whole = Self {
            name,
            bytes: Arc::new(fixture.bytes),
            extra: fixture.extra.map(Arc::new),
            contents: BTreeMap::new(),
        };
        let image = whole.open(NONE).unwrap();
        let mut contents = BTreeMap::new();
        walk(&image, &mut |path, inode| {
            let inode = inode.unwrap();
            let map = image.map(&inode).unwrap();
            let mut bytes = Vec::new();
            let mut extents = Vec::new();
            if inode.kind == FileKind::Regular {
                bytes = vec![0; inode.size as usize];
                image.read(&inode, &map, 0, &mut bytes).unwrap();
                extents = image.extents(&inode, &map).collect::<Result<_>>().unwrap();
            }
            contents.insert(
                path.to_owned(),
                Content {
                    inode,
                    bytes,
                    extents,
                },
            );
        });
        whole.contents = contents;
        whole
    }

    /// Each block of each device.
    fn blocks(&self) -> Vec<Bad> {
        let devices = std::iter::once(&self.bytes).chain(&self.extra);
        let blocks = |(device, bytes): (usize, &Arc<Vec<u8>>)| {
            let count = (bytes.len() as u64).div_ceil(BLOCK);
            (0..count).map(move |block| Bad { device, block })
        };
        devices.enumerate().flat_map(blocks).collect()
    }

    /// Opens it where a block cannot be read.
    fn open(&self, bad: Bad) -> Result<Image> {
        let devices = std::iter::once(&self.bytes).chain(&self.extra);
        let scratched = |(device, bytes): (usize, &Arc<Vec<u8>>)| -> Arc<dyn Device> {
            let block = if device == bad.device {
                bad.block
            } else {
                NONE.block
            };
            Arc::new(Scratched {
                bytes: bytes.clone(),
                block,
                name: NAMES[device],
            })
        };
        let mut devices = devices.enumerate().map(scratched);
        let first = devices.next().unwrap();
        Image::open(first, devices.collect(), OpenOptions::default())
    }

    /// Returns whether a block has a part of an inode, its attributes or its index.
    fn is_head(&self, inode: &Inode, bad: Bad, image: &Image) -> bool {
        let sb = image.superblock();
        if bad.device != 0 {
            return false;
        }
        if inode.nid.in_metabox() {
            return true;
        }
        let start = (u64::from(sb.meta_block) << sb.block_bits) + inode.nid.0 * 32;
        let index = inode.size.div_ceil(sb.block_bytes().into()) * 8 + 64;
        let end = start + inode.head_bytes() + index;
        (start / BLOCK..=end / BLOCK).contains(&bad.block)
    }
}

/// Visits each path of which the directory can be read.
fn walk(image: &Image, visit: &mut dyn FnMut(&[u8], Result<Inode>)) {
    let mut pending: Vec<(Vec<u8>, Inode)> = image
        .root()
        .into_iter()
        .map(|root| (Vec::new(), root))
        .collect();
    while let Some((path, dir)) = pending.pop() {
        let Ok(entries) = image.read_dir(&dir) else {
            visit(&path, image.read_dir(&dir).map(|_| dir.clone()));
            continue;
        };
        for entry in entries {
            if matches!(&*entry.name, b"." | b"..") {
                continue;
            }
            let mut path = path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let inode = image.inode(entry.nid);
            if let Ok(inode) = &inode {
                if inode.kind == FileKind::Directory {
                    pending.push((path, inode.clone()));
                    continue;
                }
            }
            visit(&path, inode);
        }
    }
}

/// The words of an error that names a block.
fn words(bad: Bad) -> String {
    format!(
        "{}, block at byte {:#x}: ",
        NAMES[bad.device],
        bad.block * BLOCK
    )
}

#[track_caller]
fn names(error: &Error, bad: Bad, whole: &Whole) {
    let text = error.to_string();
    assert!(
        text.contains(&words(bad)),
        "{}, {bad:?}: {text}",
        whole.name
    );
}

/// Reads all that can be read; says how much cannot.
fn read(whole: &Whole, image: &Image, bad: Bad) -> usize {
    let mut lost = 0;
    walk(image, &mut |path, inode| {
        let result = inode.and_then(|inode| {
            image.xattrs(&inode)?;
            match inode.kind {
                FileKind::Symlink => image.read_link(&inode).map(|_| ()),
                _ => Ok(()),
            }
        });
        if let Err(error) = result {
            names(&error, bad, whole);
            lost += 1;
            return;
        }
        let content = &whole.contents[path];
        for extent in &content.extents {
            lost += usize::from(!has_extent(whole, image, bad, content, extent));
        }
    });
    lost
}

/// Returns whether an extent can be read; if not, it lies on the block, or what leads to it does.
fn has_extent(whole: &Whole, image: &Image, bad: Bad, content: &Content, extent: &Extent) -> bool {
    let inode = &content.inode;
    let mut buf = vec![0; extent.len as usize];
    let result = image
        .map(inode)
        .and_then(|map| image.read(inode, &map, extent.offset, &mut buf));
    match result {
        Ok(_) => {
            let from = extent.offset as usize;
            assert!(
                buf == content.bytes[from..from + buf.len()],
                "{}, {bad:?}",
                whole.name
            );
            true
        }
        Err(error) => {
            names(&error, bad, whole);
            let (location, len) = match extent.source {
                Source::Raw(location) => (location, extent.len),
                Source::Pcluster(pcluster) => (pcluster.location, pcluster.bytes.into()),
                // Fragments are read from the extents of another file.
                _ => return false,
            };
            let is_on_it = match location {
                Location::Device { device, address } => {
                    let blocks = address / BLOCK..(address + len).div_ceil(BLOCK);
                    usize::from(device) == bad.device && blocks.contains(&bad.block)
                }
                Location::Metabox { .. } => bad.device == 0,
            };
            let is_led_by_it = whole.is_head(inode, bad, image);
            assert!(
                is_on_it || is_led_by_it,
                "{}, {bad:?}: {extent:?}: {error}",
                whole.name
            );
            false
        }
    }
}

/// A check names the block, and finds all that it is needed for. Nothing that is missing is taken for a fault of the image.
fn judge(whole: &Whole, image: &Image, bad: Bad, lost: usize) {
    let options = CheckOptions {
        workers: 1,
        ..CheckOptions::default()
    };
    let report = check(image, &options, &(), &AtomicBool::new(false));
    let findings = report
        .findings
        .iter()
        .filter(|finding| finding.severity() > Severity::Note);
    let is_medium =
        |finding: &Finding| matches!(finding.kind, FindingKind::Error(Error::Io { .. }));
    let is_sound = report
        .findings
        .iter()
        .all(|finding| is_medium(finding) || finding.severity() == Severity::Note);
    assert!(is_sound, "{}, {bad:?}: {:?}", whole.name, report.findings);
    let found: Vec<String> = findings.map(ToString::to_string).collect();
    let has_named = found.iter().any(|finding| finding.contains(&words(bad)));
    assert!(
        has_named || found.is_empty() && lost == 0,
        "{}, {bad:?}: {found:#?}",
        whole.name
    );
}

/// All that can be read is extracted, and the rest is told.
fn take_out(whole: &Whole, image: &Image, bad: Bad, lost: usize) {
    let place = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        workers: 1,
        keep_going: true,
        owners: false,
        ..ExtractOptions::default()
    };
    let extracted = extract(
        image,
        b"",
        place.path(),
        &options,
        &(),
        &AtomicBool::new(false),
    );
    let summary = match extracted {
        Ok(summary) => summary,
        // There is nothing to go on with.
        Err(error) => {
            assert!(error.path.as_bytes().is_empty(), "{bad:?}: {error}");
            assert!(error.to_string().contains(&words(bad)), "{bad:?}: {error}");
            return;
        }
    };
    let told: Vec<String> = summary.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told.is_empty(),
        lost == 0,
        "{}, {bad:?}: {told:#?}",
        whole.name
    );
    let has_named = told.iter().all(|error| error.contains(&words(bad)));
    assert!(has_named, "{}, {bad:?}: {told:#?}", whole.name);
    if summary.error_count > told.len() as u64 {
        // Not all are named.
        return;
    }
    let missing: HashSet<&[u8]> = summary.errors.iter().map(|e| e.path.as_bytes()).collect();
    let is_missing = |path: &[u8]| {
        let parents = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let mut parents = parents.map(|(end, _)| &path[..end]);
        missing.contains(&b""[..]) || missing.contains(path) || parents.any(|p| missing.contains(p))
    };
    let nids = whole.contents.iter().filter(|(path, _)| is_missing(path));
    let nids: HashSet<_> = nids.map(|(_, content)| content.inode.nid.0).collect();
    for (path, content) in &whole.contents {
        // A file with two names is missing under both.
        if content.inode.kind == FileKind::Regular && !nids.contains(&content.inode.nid.0) {
            let place = place.path().join(Path::new(OsStr::from_bytes(path)));
            let found = judge::read_extracted(&place);
            let found = found.unwrap_or_else(|error| {
                panic!(
                    "{}, {bad:?}: {}: {error}: {told:#?}",
                    whole.name,
                    place.display()
                )
            });
            assert!(
                found == content.bytes,
                "{}, {bad:?}: {}",
                whole.name,
                place.display()
            );
        }
    }
}

fn sweep(name: &'static str, extracts: impl Fn(u64) -> bool) {
    let whole = Whole::read(name);
    let mut unopened = Vec::new();
    for bad in whole.blocks() {
        match whole.open(bad) {
            Err(error) => {
                names(&error, bad, &whole);
                unopened.push(bad);
            }
            Ok(image) => {
                let lost = read(&whole, &image, bad);
                judge(&whole, &image, bad, lost);
                if extracts(bad.block) {
                    take_out(&whole, &image, bad, lost);
                }
            }
        }
    }
    // The superblock, and where metadata lies in a file of its own what leads to it.
    assert!(unopened.len() <= 3, "{name}: {unopened:?}");
}

#[test]
fn a_block_that_cannot_be_read_is_named_and_all_else_is_read() {
    for name in ["lz4hc-64k", "plain", "fragments"] {
        sweep(name, |block| block % 8 == 3);
    }
}

#[test]
#[ignore = "a campaign: each block of each fixture, with an extraction for each"]
fn each_block_of_each_image_is_named_and_all_else_is_read() {
    for name in FIXTURES {
        sweep(name, |_| true);
    }
}
