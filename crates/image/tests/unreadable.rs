//! Media of which one block cannot be read: the block is named, and all else is read.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Device, FileKind};
use anteros_format::inode::Inode;
use anteros_image::{
    CheckOptions, Error, Extent, ExtractOptions, Image, Location, OpenOptions, Result, Severity,
    Source, check, extract,
};
use common::{FIXTURES, Fixture};

const BLOCK: u64 = 4096;

/// A device with a block that cannot be read.
struct Scratched {
    bytes: Arc<Vec<u8>>,
    block: u64,
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
        "scratched".into()
    }
}

/// An image as it is on a sound medium.
struct Whole {
    name: &'static str,
    bytes: Arc<Vec<u8>>,
    extra: Option<Arc<Vec<u8>>>,
    contents: BTreeMap<String, Content>,
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
        let image = whole.open(u64::MAX / BLOCK - 1).unwrap();
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

    fn blocks(&self) -> u64 {
        (self.bytes.len() as u64).div_ceil(BLOCK)
    }

    /// Opens it where a block of its first device cannot be read.
    fn open(&self, block: u64) -> Result<Image> {
        let device = Scratched {
            bytes: self.bytes.clone(),
            block,
        };
        let extra = self
            .extra
            .iter()
            .map(|bytes| bytes.clone() as Arc<dyn Device>);
        Image::open(Arc::new(device), extra.collect(), OpenOptions::default())
    }

    /// Returns whether a block has a part of an inode, its attributes or its index.
    fn is_head(&self, inode: &Inode, block: u64, image: &Image) -> bool {
        let sb = image.superblock();
        if inode.nid.in_metabox() {
            return true;
        }
        let start = (u64::from(sb.meta_block) << sb.block_bits) + inode.nid.0 * 32;
        let index = inode.size.div_ceil(sb.block_bytes().into()) * 8 + 64;
        let end = start + inode.head_bytes() + index;
        (start / BLOCK..=end / BLOCK).contains(&block)
    }
}

/// Visits each path of which the directory can be read.
fn walk(image: &Image, visit: &mut dyn FnMut(&str, Result<Inode>)) {
    let mut pending: Vec<(String, Inode)> = image
        .root()
        .into_iter()
        .map(|root| (String::new(), root))
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
            let path = format!("{path}/{}", entry.name.escape_ascii());
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
fn words(block: u64) -> String {
    format!("scratched, block at byte {:#x}: ", block * BLOCK)
}

#[track_caller]
fn names(error: &Error, block: u64, whole: &Whole) {
    let text = error.to_string();
    assert!(
        text.contains(&words(block)),
        "{}, block {block}: {text}",
        whole.name
    );
}

/// Reads all that can be read; says how much cannot.
fn read(whole: &Whole, image: &Image, block: u64) -> usize {
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
            names(&error, block, whole);
            lost += 1;
            return;
        }
        let content = &whole.contents[path];
        for extent in &content.extents {
            lost += usize::from(!has_extent(whole, image, block, content, extent));
        }
    });
    lost
}

/// Returns whether an extent can be read; if not, it lies on the block, or what leads to it does.
fn has_extent(
    whole: &Whole,
    image: &Image,
    block: u64,
    content: &Content,
    extent: &Extent,
) -> bool {
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
                "{}, block {block}",
                whole.name
            );
            true
        }
        Err(error) => {
            names(&error, block, whole);
            let (location, len) = match extent.source {
                Source::Raw(location) => (location, extent.len),
                Source::Pcluster(pcluster) => (pcluster.location, pcluster.bytes.into()),
                // Fragments are read from the extents of another file.
                _ => return false,
            };
            let is_on_it = match location {
                Location::Device { device: 0, address } => {
                    (address / BLOCK..(address + len).div_ceil(BLOCK)).contains(&block)
                }
                Location::Device { .. } => false,
                Location::Metabox { .. } => true,
            };
            let is_led_by_it = whole.is_head(inode, block, image);
            assert!(
                is_on_it || is_led_by_it,
                "{}, block {block}: {extent:?}: {error}",
                whole.name
            );
            false
        }
    }
}

/// A check names the block, and finds all that it is needed for.
fn judge(whole: &Whole, image: &Image, block: u64, lost: usize) {
    let options = CheckOptions {
        workers: 1,
        ..CheckOptions::default()
    };
    let report = check(image, &options, &(), &AtomicBool::new(false));
    let findings = report
        .findings
        .iter()
        .filter(|finding| finding.severity() > Severity::Note);
    let found: Vec<String> = findings.map(ToString::to_string).collect();
    let has_named = found.iter().any(|finding| finding.contains(&words(block)));
    assert!(
        has_named || found.is_empty() && lost == 0,
        "{}, block {block}: {found:#?}",
        whole.name
    );
}

/// All that can be read is extracted, and the rest is told.
fn take_out(whole: &Whole, image: &Image, block: u64, lost: usize) {
    let place = tempfile::tempdir().unwrap();
    let options = ExtractOptions {
        workers: 1,
        keep_going: true,
        owners: false,
        ..ExtractOptions::default()
    };
    let summary = extract(
        image,
        b"",
        place.path(),
        &options,
        &(),
        &AtomicBool::new(false),
    )
    .unwrap();
    let told: Vec<String> = summary.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told.is_empty(),
        lost == 0,
        "{}, block {block}: {told:#?}",
        whole.name
    );
    let has_named = told.iter().all(|error| error.contains(&words(block)));
    assert!(has_named, "{}, block {block}: {told:#?}", whole.name);
    for (path, content) in &whole.contents {
        let is_told = told
            .iter()
            .any(|error| error.contains(path.rsplit('/').next().unwrap()));
        let path = place.path().join(path.trim_start_matches('/'));
        if content.inode.kind == FileKind::Regular && !is_told && told.is_empty() {
            assert!(
                std::fs::read(&path).unwrap() == content.bytes,
                "{}",
                path.display()
            );
        }
    }
}

fn sweep(name: &'static str, extracts: impl Fn(u64) -> bool) {
    let whole = Whole::read(name);
    let mut unopened = Vec::new();
    for block in 0..whole.blocks() {
        match whole.open(block) {
            Err(error) => {
                names(&error, block, &whole);
                unopened.push(block);
            }
            Ok(image) => {
                let lost = read(&whole, &image, block);
                judge(&whole, &image, block, lost);
                if extracts(block) {
                    take_out(&whole, &image, block, lost);
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
