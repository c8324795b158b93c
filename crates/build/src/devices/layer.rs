//! The image that a layer is a patch of. The content lies on it of all files that stay.
//!
//! ```text
//! layer  | superblock, table | new content | directories | inodes of all files |
//! blocks 0                                                             … place …………………………… place + blocks of the image
//!                                                                            └ the extra device ┘
//! ```
//!
//! Linux reads inodes and indexes of the primary device alone, so the layer has all of them. Their addresses grow by the block
//! at which the image has its place.

use super::elsewhere::HOLE;
use super::lower::Lower;
use super::table::{Devices, Slot};
use crate::look::Look;
use crate::patch;
use crate::plan::{Intent, Plan};
use crate::{Error, PatchLayer};

/// Most bytes of an index for each block of a file.
const ENTRY_BYTES_MAX: u64 = 16;

/// Room for whatever else a layer has.
const SPARE_BYTES: u64 = 1 << 20;

/// Gives the image its place, and has what is kept of files that change refer to that.
pub(super) fn store(
    look: &Look<'_>,
    layer: &PatchLayer,
    plan: &mut Plan,
) -> Result<Devices, Error> {
    let append = patch::appended(look.options)?;
    let block_bits = look.options.block_bits;
    let place = (bytes_max(look, plan)? >> block_bits).next_power_of_two();
    let blocks = append.end >> block_bits;
    // The last number stands for holes.
    let end = u32::try_from(place + blocks).ok().filter(|end| *end < HOLE);
    let path = layer.device.path.clone();
    end.ok_or_else(|| Error::TooLarge {
        path: path.clone().unwrap_or_else(|| "the image".into()),
        block_bytes: look.options.block_bytes(),
    })?;
    let (place, blocks) = (place as u32, blocks as u32);
    for kept in plan.kept.values_mut() {
        kept.move_up(place, block_bits);
    }
    if let Some(packed) = &mut plan.packed {
        packed.move_up(u64::from(place) << block_bits);
    }
    for node in &mut plan.nodes {
        if let Intent::Chunks(file) = &mut node.intent {
            file.move_kept(place);
        }
    }
    plan.lower = Some(Lower {
        place,
        sb: append.parsed()?,
    });
    let slot = Slot {
        blocks,
        tag: layer.device.tag.clone(),
        path,
    };
    Ok(Devices {
        slots: vec![slot],
        place: Some(place),
        blob: None,
    })
}

/// More bytes than the layer can have: its size shows when it is complete, and addresses are written before.
fn bytes_max(look: &Look<'_>, plan: &Plan) -> Result<u64, Error> {
    let block_bytes = u64::from(look.options.block_bytes());
    let packed = &patch::appended(look.options)?.packed;
    let packed = packed.as_ref().map_or(0, |(record, _)| record.bytes);
    let mut bytes = SPARE_BYTES + packed + plan.shared.area.len() as u64;
    let with_index = |blocks: u64| blocks.saturating_mul(block_bytes + ENTRY_BYTES_MAX);
    for id in look.tree.ids() {
        let node = look.tree.node(id);
        let behind = match &plan.node(id).intent {
            Intent::Copied(copied) => copied.rest_bytes(),
            // Holes take nothing.
            Intent::Chunks(file) => file.stored_bytes(node.size) + block_bytes,
            _ if node.kind.may_have_data() => with_index(node.size.div_ceil(block_bytes) + 1),
            _ => 0,
        };
        bytes = bytes.saturating_add(plan.head_bytes(id).saturating_add(behind));
    }
    // Extents begin where what stays of a file ends; inodes do not fill their blocks.
    Ok(bytes.saturating_mul(2))
}
