//! Images that are sources, and stay where the content of their files is.
//!
//! Content that lies behind inodes, or does not begin at a block of the image, is stored in the image.

use std::sync::Arc;

use anteros_core::{FileKind, Ino};

use super::archive::elsewhere;
use super::elsewhere::HOLE;
use super::table::{Devices, Slot};
use crate::look::Look;
use crate::places::{Placed, PlacedPart, Places, SourceDevice};
use crate::plan::Plan;
use crate::source::Source;
use crate::tree::NodeId;
use crate::{Error, Options};

/// Bytes of a tag in the table of devices.
const TAG_BYTES_MAX: usize = 64;

/// A source, and the number of its first device.
struct Referred<'a> {
    places: &'a dyn Places,
    devices: Vec<SourceDevice>,
    first: usize,
}

/// Leaves all files where they are for which that is possible.
pub(super) fn store(look: &Look<'_>, plan: &mut Plan) -> Result<Devices, Error> {
    let sources = sources(look.source);
    let mut slots = Vec::new();
    for source in &sources {
        for device in source.iter().flat_map(|source| &source.devices) {
            slots.push(slot(device, look.options)?);
        }
    }
    if slots.is_empty() || slots.len() >= usize::from(u16::MAX) {
        return Err(Error::Option(format!(
            "content is to stay in sources that are images, and these have {} devices; 1 to 65534 are possible",
            slots.len()
        )));
    }
    let mut left = look.options.memory_bytes;
    for id in look.tree.ids() {
        look.check_cancelled()?;
        if !plan.is_stored_file(look.tree, id) {
            continue;
        }
        let Some((number, ino)) = look.source.answers(id) else {
            continue;
        };
        let Some(source) = &sources[number] else {
            continue;
        };
        let Some((device, parts)) = placed(look, source, id, ino)? else {
            continue;
        };
        check_end(look, id, &source.devices[device], &parts)?;
        let number = (source.first + device + 1) as u16; // as checked
        let size = look.tree.node(id).size;
        if let Some(file) = elsewhere(size, &parts, number, look.options) {
            let room = left.checked_sub(file.memory_bytes());
            left = room.ok_or_else(|| {
                unstorable(
                    look,
                    id,
                    "the tables of all files take more memory than --memory allows",
                )
            })?;
            plan.set_elsewhere(id, file);
        }
    }
    Ok(Devices {
        slots,
        place: None,
        blob: None,
    })
}

/// The sources that tell where content lies; `None` stands for others.
fn sources(source: &Source) -> Vec<Option<Referred<'_>>> {
    let mut first = 0;
    let places = source.places().into_iter().map(|places| {
        let places: &Arc<dyn Places> = places?;
        let devices = places.devices();
        let source = Referred {
            first,
            places: &**places,
            devices,
        };
        first += source.devices.len();
        Some(source)
    });
    places.collect()
}

/// The entry of a device.
fn slot(device: &SourceDevice, options: &Options) -> Result<Slot, Error> {
    let blocks = device.bytes.div_ceil(options.block_bytes().into());
    let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks < HOLE);
    let mut tag = device.tag.clone();
    tag.truncate(TAG_BYTES_MAX);
    Ok(Slot {
        tag,
        path: device.path.clone(),
        blocks: blocks.ok_or_else(|| Error::TooLarge {
            path: device.path.clone().unwrap_or_else(|| "a device".into()),
            block_bytes: options.block_bytes(),
        })?,
    })
}

/// The parts of a file on one of its source's devices; `None` if it is stored in the image.
fn placed(
    look: &Look<'_>,
    source: &Referred<'_>,
    id: NodeId,
    ino: Ino,
) -> Result<Option<(usize, Vec<PlacedPart>)>, Error> {
    let placed = source
        .places
        .place(ino)
        .map_err(|cause| Error::FileSystem {
            path: look.source.full_path(look.tree, id),
            action: "look where content lies of",
            cause,
        })?;
    match placed {
        Placed::On { device, parts } if device < source.devices.len() => Ok(Some((device, parts))),
        Placed::On { .. } | Placed::Apart => Ok(None),
        Placed::Encoded => Err(unstorable(
            look,
            id,
            "it is compressed, and only what lies in its image as it is can stay there; a full copy takes it",
        )),
    }
}

/// Makes sure that parts lie on their device, and within the file.
fn check_end(
    look: &Look<'_>,
    id: NodeId,
    device: &SourceDevice,
    parts: &[PlacedPart],
) -> Result<(), Error> {
    let size = look.tree.node(id).size;
    let is_beyond = |part: &PlacedPart| {
        let ends_beyond = |start: u64, end| start.checked_add(part.bytes).is_none_or(|at| at > end);
        ends_beyond(part.place, device.bytes) || ends_beyond(part.start, size)
    };
    match parts.iter().find(|part| is_beyond(part)) {
        None => Ok(()),
        Some(part) => {
            let PlacedPart { bytes, place, .. } = part;
            let why = format!(
                "{bytes} bytes of it are to lie at {place} of a device of {}",
                device.bytes
            );
            Err(unstorable(look, id, &why))
        }
    }
}

fn unstorable(look: &Look<'_>, id: NodeId, reason: &str) -> Error {
    debug_assert_eq!(look.tree.node(id).kind, FileKind::Regular);
    Error::Unstorable {
        path: look.source.full_path(look.tree, id),
        reason: reason.into(),
    }
}
