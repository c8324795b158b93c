//! The superblock and what hangs off it.

use std::sync::atomic::Ordering;

use anteros_core::Algorithm;
use anteros_format::align_up;
use anteros_format::features::{Compat, Incompat};
use anteros_format::superblock::{
    RawDeviceSlot, RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET,
};
use zerocopy::FromBytes;

use crate::map::Location;
use crate::{Image, Place};

use super::finding::FindingKind;
use super::part::{Part, What};
use super::run::Run;

/// Checks the superblock and the tables it refers to, and returns the bytes that these take.
pub(super) fn check(run: &Run<'_>) -> Vec<Part> {
    let image = run.image;
    run.ok(image.verify_checksum());
    check_reserved(run);
    check_sizes(run);
    check_devices(run);
    let sb = image.superblock();
    if !sb.volume_name.contains(&0) {
        run.note(Place::Superblock, FindingKind::VolumeName);
    }
    let start = SUPERBLOCK_OFFSET + u64::from(sb.superblock_bytes);
    let count = sb.xattr_prefix_count;
    if count > 0 && !sb.incompat.contains(Incompat::XATTR_PREFIXES) {
        let kind = FindingKind::PrefixesWithoutFeature { count };
        run.note(Place::Superblock, kind);
    }
    // What lies in front of the superblock is not for data either.
    let mut parts = vec![metadata(Place::Superblock, 0, start)];
    if sb.incompat.contains(Incompat::COMPR_CFGS) {
        let end = run.ok(image.compr_cfgs_end()).unwrap_or(start);
        parts.push(metadata(Place::ComprCfgs, start, end - start));
    }
    let slots = u64::from(sb.extra_devices) * size_of::<RawDeviceSlot>() as u64;
    parts.push(metadata(Place::DeviceTable, sb.device_table_offset, slots));
    parts.extend(prefixes(image));
    parts.retain(|part| part.bytes > 0);
    parts
}

/// Checks what is only known once the tree was walked.
pub(super) fn check_totals(run: &Run<'_>, found: u64) {
    if run.is_ended() {
        return;
    }
    let sb = run.image.superblock();
    if sb.inodes < found || sb.inodes > found && run.is_all_read() {
        let recorded = sb.inodes;
        run.note(
            Place::Superblock,
            FindingKind::InodeCount { recorded, found },
        );
    }
    let used = run.algorithms.load(Ordering::Relaxed);
    let configured = sb.incompat.contains(Incompat::COMPR_CFGS) && run.is_all_read();
    for algorithm in sb.algorithms.iter().filter(|_| configured) {
        if used & algorithm_bit(algorithm) == 0 {
            run.note(Place::ComprCfgs, FindingKind::AlgorithmUnused { algorithm });
        }
    }
}

pub(super) const fn algorithm_bit(algorithm: Algorithm) -> u16 {
    1 << algorithm as u16
}

fn metadata(place: Place, address: u64, bytes: u64) -> Part {
    let location = Location::Device { device: 0, address };
    Part {
        location,
        bytes,
        place,
        what: What::Metadata,
    }
}

fn check_reserved(run: &Run<'_>) {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let at = Location::Device {
        device: 0,
        address: SUPERBLOCK_OFFSET,
    };
    let read = run.image.read_raw(Place::Superblock, at, &mut bytes);
    if run.ok(read).is_none() {
        return;
    }
    let raw = RawSuperblock::read_from_bytes(&bytes).expect("128 bytes");
    if raw.reserved != [0; 2] || raw.reserved2 != [0; 8] {
        run.note(Place::Superblock, FindingKind::Reserved);
    }
}

/// Compares the primary device with what the superblock says of it.
fn check_sizes(run: &Run<'_>) {
    let sb = run.image.superblock();
    let size = run.image.primary_size();
    let recorded = sb.blocks.saturating_mul(sb.block_bytes().into());
    if recorded > size {
        run.note(Place::Image, FindingKind::CutOff { recorded, size });
    } else if recorded < size {
        run.note(
            Place::Image,
            FindingKind::Longer {
                recorded,
                bytes: size - recorded,
            },
        );
    }
}

fn check_devices(run: &Run<'_>) {
    let primary = 0..run.image.superblock().blocks;
    let devices = run.image.devices();
    let mut placed: Vec<_> = (0..)
        .zip(&devices)
        .filter_map(|(index, device)| {
            let slot = device.slot.as_ref()?;
            let start = slot.unified_block?;
            Some((start..start.saturating_add(slot.blocks), index))
        })
        .collect();
    placed.sort_unstable_by_key(|(blocks, index)| (blocks.start, *index));
    for (blocks, index) in &placed {
        if blocks.start < primary.end && !blocks.is_empty() {
            run.note(
                Place::DeviceTable,
                FindingKind::DeviceOverPrimary { index: *index },
            );
        }
    }
    for pair in placed.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            let (first, second) = (pair[0].1, pair[1].1);
            run.note(
                Place::DeviceTable,
                FindingKind::DevicesOverlap { first, second },
            );
        }
    }
}

/// The table of long xattr prefixes, if it lies on the device itself.
fn prefixes(image: &Image) -> Option<Part> {
    let sb = image.superblock();
    let inside = sb.metabox.is_some() || sb.packed.is_some();
    if inside && !sb.compat.contains(Compat::PLAIN_XATTR_PFX) {
        return None;
    }
    let mut end = sb.xattr_prefix_offset;
    for prefix in image.xattr_prefixes() {
        end = align_up(end, 4)? + 3 + prefix.infix.len() as u64;
    }
    Some(metadata(
        Place::XattrPrefixes,
        sb.xattr_prefix_offset,
        end - sb.xattr_prefix_offset,
    ))
}
