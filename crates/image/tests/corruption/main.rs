//! Tries all that a hostile image may, rule by rule: one field of a sound image is changed, and the
//! entry that meets it must refuse it by the rule that is broken.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod bombs;
mod chunks;
mod codecs;
mod compact_indexes;
mod directories;
mod encoded_extents;
mod fragments;
mod full_indexes;
mod graph;
mod inodes;
mod overlap;
mod superblock;
mod xattrs;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::{Algorithm, FileKind, FileSystem, FsError, Ino, Seek};
use anteros_format::extent::RawExtent;
use anteros_format::features::{Compat, Incompat};
use anteros_format::inode::DataLayout;
use anteros_format::lcluster::{HeadKind, Lcluster, RawFullIndex};
use anteros_format::superblock::{MAGIC, RawDeviceSlot, RawSuperblock, SUPERBLOCK_OFFSET};
use anteros_format::zmap::{
    ADVISE_BIG_PCLUSTER_1, ADVISE_COMPACTED_2B, ADVISE_EXTENTS, ADVISE_FRAGMENT_PCLUSTER,
    ADVISE_INTERLACED_PCLUSTER, RawMapHeader,
};
use anteros_format::{Corrupt, EXTENT_BYTES_MAX, Fault, Nid, Unsupported};
use anteros_image::{
    Encoding, Error, Extent, ExtractOptions, ImageFs, Location, OpenOptions, Place, Result, Source,
    Xattr, extract,
};
use common::{Fixture, file_inode};
use zerocopy::{FromZeros, IntoBytes};

/// Asserts that something is refused, where and by which rule.
#[track_caller]
fn refused<T: Debug>(result: Result<T>, place: Place, fault: impl Into<Fault>) {
    let found = match result.expect_err("it is refused") {
        Error::Corrupt { place, fault } => (place, Fault::Corrupt(fault)),
        Error::Unsupported { place, fault } => (place, Fault::Unsupported(fault)),
        other => panic!("{other}"),
    };
    assert_eq!(found, (place, fault.into()));
}

/// As [`refused`], where the fault has numbers that the layout of the image decides.
#[track_caller]
fn refused_as<T: Debug>(result: Result<T>, place: Place, rule: impl Fn(&Corrupt) -> bool) {
    match result.expect_err("it is refused") {
        Error::Corrupt { place: at, fault } => {
            assert_eq!(at, place, "{fault}");
            assert!(rule(&fault), "{fault:?}");
        }
        other => panic!("{other}"),
    }
}

/// Asserts that opening is refused.
#[track_caller]
fn open_refused(fixture: &Fixture, place: Place, fault: impl Into<Fault>) {
    refused(fixture.open().map(|_| ()), place, fault);
}

/// Asserts that a check finds something whose words contain these.
#[track_caller]
fn check_finds(fixture: &Fixture, words: &str) {
    let faults = fixture.faults();
    assert!(
        faults.iter().any(|fault| fault.contains(words)),
        "{words:?} is not in {faults:#?}"
    );
}

fn data(fixture: &Fixture, path: &str, offset: u64) -> Place {
    Place::Data {
        nid: fixture.inode(path).nid,
        offset,
    }
}

/// Makes the second extent of `data/words`, in an image with full indexes, a front part of the
/// first one, as deduplication does.
fn second_extent_from_first(image: Fixture) -> Fixture {
    let block = (image.data_offset("data/words") / 4096) as u32;
    let lcn = (image.extents("data/words")[1].offset / 4096) as usize;
    image.index("data/words", lcn, |entry| {
        entry.di_advise |= 1 << 15;
        entry.di_u = block.into();
    })
}

fn out_of_bounds(fault: &Corrupt) -> bool {
    matches!(fault, Corrupt::OutOfBounds { .. })
}
