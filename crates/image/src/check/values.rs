//! Values of attributes that the kernel reads itself: access lists and capabilities. It refuses to give those that it
//! does not understand, and gives others in a form of its own.

/// Version of an access list.
const ACL_VERSION: u32 = 2;
const ACL_HEADER_BYTES: usize = 4;
const ACL_ENTRY_BYTES: usize = 8;
/// The id of an entry that is for nobody in particular, and of nobody.
const NO_ID: u32 = u32::MAX;

/// Capabilities without a root of their own, and with one.
const CAPS_2: (u32, usize) = (0x0200_0000, 20);
const CAPS_3: (u32, usize) = (0x0300_0000, 24);
/// The one flag beside the version.
const CAPS_EFFECTIVE: u32 = 1;

/// Returns what is wrong with the value of an attribute, if it is one of those.
pub(super) fn fault(name: &[u8], value: &[u8]) -> Option<&'static str> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => acl_fault(value),
        b"security.capability" => caps_fault(value),
        _ => None,
    }
}

fn acl_fault(value: &[u8]) -> Option<&'static str> {
    if number(value, 0) != Some(ACL_VERSION) {
        return Some("is no access list of version 2");
    }
    let entries = value.get(ACL_HEADER_BYTES..).unwrap_or_default();
    if entries.is_empty() || entries.len() % ACL_ENTRY_BYTES != 0 {
        return Some("is an access list without entries, or with a part of one");
    }
    entries.chunks_exact(ACL_ENTRY_BYTES).find_map(entry_fault)
}

/// ```text
/// | tag: u16 | permissions: u16 | id: u32 |
/// ```
fn entry_fault(entry: &[u8]) -> Option<&'static str> {
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const OWNING_GROUP: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;
    let tag = entry.first_chunk().map(|&tag| u16::from_le_bytes(tag));
    let id = number(entry, 4);
    match tag {
        Some(USER | GROUP) if id == Some(NO_ID) => {
            Some("is an access list with an entry for nobody")
        }
        Some(USER | GROUP) => None,
        Some(OWNER | OWNING_GROUP | MASK | OTHERS) if id == Some(NO_ID) => None,
        Some(OWNER | OWNING_GROUP | MASK | OTHERS) => {
            Some("is an access list with an id where none belongs")
        }
        _ => Some("is an access list with an entry of no known kind"),
    }
}

fn caps_fault(value: &[u8]) -> Option<&'static str> {
    let version = number(value, 0).map(|version| version & !CAPS_EFFECTIVE);
    let form = version.map(|version| (version, value.len()));
    if form == Some(CAPS_2) {
        return None;
    }
    if form != Some(CAPS_3) {
        return Some("is no set of capabilities of version 2 or 3");
    }
    match number(value, CAPS_2.1) {
        Some(0 | NO_ID) => Some("is a set of capabilities for the root of no namespace"),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}
