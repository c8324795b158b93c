//! Access lists: text in archives, bytes in attributes.

use std::cell::OnceCell;
use std::collections::HashMap;

/// The attribute that holds the access list of a file.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the list that files in a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Version of the attribute's format.
const VERSION: u32 = 2;
/// Bytes of an entry: tag, permissions and id.
const ENTRY_BYTES: usize = 8;
/// The id in entries that name nobody.
const NOBODY: u32 = u32::MAX;

/// Kind of an entry; the numbers are those of the attribute, in whose order they lie there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

/// The accounts of this machine, by which names in access lists are read; looked at when first needed.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: OnceCell<HashMap<String, u32>>,
    groups: OnceCell<HashMap<String, u32>>,
}

impl Accounts {
    pub fn user(&self, name: &str) -> Option<u32> {
        self.id(Tag::User, name)
    }

    pub fn group(&self, name: &str) -> Option<u32> {
        self.id(Tag::Group, name)
    }

    fn id(&self, tag: Tag, name: &str) -> Option<u32> {
        let (accounts, path) = match tag {
            Tag::User => (&self.users, "/etc/passwd"),
            _ => (&self.groups, "/etc/group"),
        };
        let accounts = accounts.get_or_init(|| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let account = |line: &str| {
                let mut fields = line.split(':');
                Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
            };
            text.lines().filter_map(account).collect()
        });
        accounts.get(name).copied()
    }
}

/// Returns the attribute's value for a list.
pub(crate) fn encode(text: &[u8], accounts: &Accounts) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the access list is no text")?;
    let entries = text.split([',', '\n']).map(without_comment);
    let entries = entries.filter(|entry| !entry.is_empty());
    let mut entries: Vec<_> = entries
        .map(|text| entry(text, accounts).ok_or_else(|| unknown(text)))
        .collect::<Result<_, _>>()?;
    entries.sort_unstable();
    if entries
        .windows(2)
        .any(|two| two[0].0 == two[1].0 && two[0].1 == two[1].1)
    {
        return Err("the access list has two entries for the same".into());
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        value.extend_from_slice(&(tag as u16).to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

/// Returns whether a list says no more than permissions do: such an access list is not kept.
pub(crate) const fn is_mode(value: &[u8]) -> bool {
    value.len() <= size_of_val(&VERSION) + 3 * ENTRY_BYTES
}

fn without_comment(entry: &str) -> &str {
    entry.split('#').next().unwrap_or_default().trim()
}

fn unknown(entry: &str) -> String {
    let entry = entry.escape_default();
    format!(
        "the entry `{entry}` of its access list is not understood, or /etc/passwd and /etc/group do \
         not have that name; pack it where they do, or without attributes"
    )
}

/// Reads an entry: `user:NAME:rwx`, with a numeric id instead of the name, or behind it all.
fn entry(text: &str, accounts: &Accounts) -> Option<(Tag, u32, u16)> {
    let text = text.strip_prefix("default:").unwrap_or(text);
    let mut fields = text.split(':').map(str::trim);
    let (kind, name, perm) = (fields.next()?, fields.next()?, fields.next()?);
    let tag = match (kind, name.is_empty()) {
        ("user" | "u", true) => Tag::Owner,
        ("user" | "u", false) => Tag::User,
        ("group" | "g", true) => Tag::OwningGroup,
        ("group" | "g", false) => Tag::Group,
        ("mask" | "m", true) => Tag::Mask,
        ("other" | "o", true) => Tag::Other,
        _ => return None,
    };
    let id = match (name.is_empty(), fields.next()) {
        (true, _) => NOBODY,
        (false, Some(id)) => id.parse().ok()?,
        (false, None) => name.parse().ok().or_else(|| accounts.id(tag, name))?,
    };
    Some((tag, id, permissions(perm)?))
}

fn permissions(text: &str) -> Option<u16> {
    let add = |sum, letter| match letter {
        'r' => Some(sum | 4),
        'w' => Some(sum | 2),
        'x' => Some(sum | 1),
        '-' => Some(sum),
        _ => None,
    };
    text.chars().try_fold(0, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_as_the_kernel_has_them() {
        let accounts = Accounts::default();
        let text = "user::rw-\nuser:70:r-x #effective:r--\nuser:lisa:rwx:7\ngroup::r--\nmask::rwx\nother::r--\n";
        let value = encode(text.as_bytes(), &accounts).unwrap();
        let expected = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 7, 0, 7, 0, 0, 0],
            &[2, 0, 5, 0, 70, 0, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 7, 0, 255, 255, 255, 255],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ];
        assert_eq!(value, expected.concat());
        assert!(!is_mode(&value));
        let plain = encode(b"user::rw-,group::r--,other::r--", &accounts);
        assert!(is_mode(&plain.unwrap()));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for bad in [
            "x::rwx",
            "user",
            "user:1:rwz",
            "user:1:rw:x",
            "user:1:r,u:1:w,g::r,m::r",
        ] {
            assert!(
                encode(bad.as_bytes(), &Accounts::default()).is_err(),
                "{bad}"
            );
        }
        let nobody = encode(b"user:nobody called so:rwx", &Accounts::default());
        assert!(nobody.unwrap_err().contains("/etc/passwd"));
    }
}
