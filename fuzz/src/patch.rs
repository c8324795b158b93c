//! The target `patch`.

use std::sync::Arc;

use anteros_format::patch::{PatchRecord, RECORD_BYTES, room};
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_image::{Image, OpenOptions};

/// States where a record has its checksum.
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Longest image that is made of the bytes.
const IMAGE_BYTES_MAX: u64 = 1 << 20;

/// Takes the bytes for a superblock and the record of a patch behind it, as they are and with the checksum made right: what is
/// taken comes back as it was, and an image with both has states or is refused.
pub fn patch(input: &[u8]) {
    let Some((superblock, record)) = input.split_at_checked(SUPERBLOCK_BYTES) else {
        return;
    };
    let Some(record) = record.first_chunk::<RECORD_BYTES>() else {
        return;
    };
    let Ok(sb) = Superblock::parse(superblock) else {
        return;
    };
    let end = sb.blocks.checked_mul(sb.block_bytes().into());
    let Some(at) = end.and_then(|end| end.checked_sub(room(sb.block_bytes()))) else {
        return;
    };
    let mut sealed = *record;
    sealed[CHECKSUM].fill(0);
    let checksum = crc32c::crc32c(&sealed);
    sealed[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    for record in [record, &sealed] {
        match PatchRecord::parse(record, at, &sb) {
            Ok(parsed) => assert_eq!(parsed.encode(), *record),
            Err(fault) => assert!(!fault.to_string().is_empty()),
        }
        states(superblock, record, at, &sb);
    }
}

/// Reads the states of an image with this superblock and this record.
fn states(superblock: &[u8], record: &[u8], at: u64, sb: &Superblock) {
    let end = at + room(sb.block_bytes());
    if end > IMAGE_BYTES_MAX {
        return;
    }
    let mut image = vec![0; end.max(8192) as usize];
    image[at as usize..][..record.len()].copy_from_slice(record);
    image[SUPERBLOCK_OFFSET as usize..][..superblock.len()].copy_from_slice(superblock);
    let options = OpenOptions {
        verify_checksum: false,
        ..OpenOptions::default()
    };
    let Ok(image) = Image::open(Arc::new(image), Vec::new(), options) else {
        return;
    };
    if let Ok(states) = image.patches() {
        let numbers = states.iter().map(|state| state.record.number);
        assert!(numbers.rev().eq(1..=states.len() as u32));
    }
}
