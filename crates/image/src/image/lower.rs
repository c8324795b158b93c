//! The image that a layer is on: an extra device whose tag has its UUID.
//!
//! ```text
//! tag   | image: | 32 digits of the UUID | 0 … |
//! ```

use anteros_core::Device;
use anteros_format::superblock::{
    DeviceSlot, MAGIC, RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET,
};
use zerocopy::FromBytes;

use crate::{Error, Result};

/// The first bytes of such a tag.
const MARK: &[u8] = b"image:";

/// The tag of an extra device that is the image with this UUID.
pub fn lower_tag(uuid: &[u8; 16]) -> Vec<u8> {
    let digits = uuid.iter().map(|byte| format!("{byte:02x}"));
    [MARK, digits.collect::<String>().as_bytes()].concat()
}

/// The digits of the UUID that such a tag has; `None` for any other tag.
fn lower_uuid(tag: &[u8]) -> Option<&[u8]> {
    text_of(tag).strip_prefix(MARK)
}

/// The device that a tag speaks of; `None` if that is empty.
pub(super) fn name_of(tag: &[u8]) -> Option<String> {
    let text = text_of(tag);
    match lower_uuid(tag) {
        Some(uuid) => Some(format!("the image with UUID {}", digits_of(uuid))),
        None => (!text.is_empty()).then(|| format!("called {}", text.escape_ascii())),
    }
}

/// A tag without the zeros behind it.
fn text_of(tag: &[u8]) -> &[u8] {
    tag.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Makes sure that an extra device is the image that its tag speaks of, if it does of one. A patch leaves an image its UUID,
/// and all bytes that were there.
pub(super) fn check(slot: &DeviceSlot, (index, device): (usize, &dyn Device)) -> Result<()> {
    let Some(needed) = lower_uuid(&slot.tag) else {
        return Ok(());
    };
    let mut head = [0; SUPERBLOCK_BYTES];
    let found = match device.read_at(SUPERBLOCK_OFFSET, &mut head) {
        Err(error) => Err(error.to_string()),
        Ok(()) => {
            let raw = RawSuperblock::read_from_bytes(&head).expect("its bytes");
            let is_image = raw.magic.get() == MAGIC;
            is_image
                .then_some(raw.uuid)
                .ok_or_else(|| "no EROFS image".into())
        }
    };
    let found = match found {
        Ok(uuid) if lower_tag(&uuid)[MARK.len()..] == *needed => return Ok(()),
        Ok(uuid) => format!("UUID {}", digits_of(&lower_tag(&uuid)[MARK.len()..])),
        Err(what) => what,
    };
    Err(Error::LowerImage {
        index,
        name: device.name(),
        found,
        needed: digits_of(needed),
    })
}

/// The digits of a UUID as text.
fn digits_of(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
