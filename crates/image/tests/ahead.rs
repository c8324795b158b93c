//! Reading ahead: few calls to the device, and no harm from what was not asked for.

mod common;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;

use anteros_core::Device;
use anteros_image::{Error, Image, OpenOptions, Reader};
use common::Fixture;

/// A device that counts, and that cannot read everywhere.
struct Medium {
    bytes: Vec<u8>,
    reads: Mutex<u32>,
    bad: Mutex<Range<u64>>,
}

impl Device for Medium {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        *self.reads.lock().unwrap() += 1;
        let bad = self.bad.lock().unwrap();
        if offset < bad.end && bad.start < offset + buf.len() as u64 {
            return Err(io::Error::other("bad sector"));
        }
        self.bytes.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn name(&self) -> String {
        "the medium".into()
    }
}

/// Reads a file extent by extent: the bytes, or `None` for an extent that cannot be read.
fn read(image: &Image, path: &[u8]) -> Vec<Option<Vec<u8>>> {
    let inode = image.find(path).unwrap();
    let map = image.map(&inode).unwrap();
    let mut reader = Reader::new(image);
    let extents = image.extents(&inode, &map).map(|extent| {
        let mut bytes = Vec::new();
        let read = reader.read_extent(&inode, &extent.unwrap(), |_, piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, Error>(())
        });
        read.is_ok().then_some(bytes)
    });
    extents.collect()
}

#[test]
fn what_follows_is_read_ahead_and_fails_alone() {
    let medium = Arc::new(Medium {
        bytes: Fixture::read("lz4-512").bytes,
        reads: Mutex::new(0),
        bad: Mutex::new(0..0),
    });
    let image = Image::open(medium.clone(), Vec::new(), OpenOptions::default()).unwrap();
    let path = b"data/words";
    let expected = read(&image, path);
    *medium.reads.lock().unwrap() = 0;
    assert_eq!(read(&image, path), expected);
    let reads = *medium.reads.lock().unwrap();
    let extents = expected.len() as u32;
    assert!(
        extents > 30 && reads < extents / 3,
        "{reads} reads of {extents} extents"
    );

    let inode = image.find(path).unwrap();
    let map = image.map(&inode).unwrap();
    let middle = image
        .extents(&inode, &map)
        .nth(expected.len() / 2)
        .unwrap()
        .unwrap();
    let anteros_image::Source::Pcluster(pcluster) = middle.source else {
        panic!("{middle:?}");
    };
    let start = pcluster.location.address();
    *medium.bad.lock().unwrap() = start..start + 1;
    let found = read(&image, path);
    assert_eq!(found.iter().filter(|piece| piece.is_none()).count(), 1);
    let mut pieces = found.iter().zip(&expected);
    assert!(pieces.all(|(found, expected)| found.is_none() || found == expected));
}
