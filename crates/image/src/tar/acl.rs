//! Access control lists as text, for tools that set them by themselves and not as attributes.
//!
//! ```text
//! byte 0         4     6      8     12
//!      | version | tag | bits | id |  … an entry of 8 bytes each
//! ```

/// The only version of the attribute's value.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// Returns the key of the record for an attribute that is a list.
pub(super) fn key(attribute: &[u8]) -> Option<&'static [u8]> {
    match attribute {
        b"system.posix_acl_access" => Some(b"SCHILY.acl.access"),
        b"system.posix_acl_default" => Some(b"SCHILY.acl.default"),
        _ => None,
    }
}

/// Returns a list as `user::rw-,user:1000:r--,…`, with numbers for names; `None` if the value is none.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let (head, entries) = value.split_at_checked(HEAD_BYTES)?;
    if head != VERSION.to_le_bytes() || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let entries: Option<Vec<String>> = entries.chunks_exact(ENTRY_BYTES).map(entry).collect();
    Some(entries?.join(","))
}

fn entry(bytes: &[u8]) -> Option<String> {
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let id = u32::from_le_bytes(bytes[4..].try_into().ok()?);
    let who = match short(0) {
        0x01 => "user:".to_owned(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".to_owned(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".to_owned(),
        0x20 => "other:".to_owned(),
        _ => return None,
    };
    let bits = short(2);
    let may = |bit: u16, letter: char| if bits & bit != 0 { letter } else { '-' };
    Some(format!(
        "{who}:{}{}{}",
        may(4, 'r'),
        may(2, 'w'),
        may(1, 'x')
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the attribute that has these entries.
    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn a_list_is_told_entry_by_entry() {
        let none = u32::MAX;
        let list = value(&[
            (1, 7, none),
            (2, 4, 1000),
            (4, 5, none),
            (8, 0, 7),
            (0x10, 6, none),
            (0x20, 1, none),
        ]);
        let expected = "user::rwx,user:1000:r--,group::r-x,group:7:---,mask::rw-,other::--x";
        assert_eq!(text(&list).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_no_list_has_no_text() {
        let list = value(&[(1, 7, 0)]);
        for broken in [&[][..], &[1, 0, 0, 0], &list[..11], &value(&[(3, 7, 0)])] {
            assert_eq!(text(broken), None, "{broken:?}");
        }
        assert_eq!(key(b"user.posix_acl_access"), None);
    }
}
