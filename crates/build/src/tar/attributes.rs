//! Extended attributes of a member.

use std::collections::BTreeMap;

use anteros_core::FileKind;
use anteros_format::xattr::split_name;

use super::acl::{self, Accounts};
use super::fault::Fault;
use super::pax::Records;
use crate::xattr::{Found, Xattr};

/// Returns what records tell of a file of some kind. An access list as text counts more than one as an attribute.
pub(super) fn of(records: &Records, kind: FileKind, accounts: &Accounts) -> Result<Found, Fault> {
    let encode = |text: &Vec<u8>| acl::encode(text, accounts).map_err(Fault::Broken);
    let access = records.acl.as_ref().map(encode).transpose()?;
    let default = records.default_acl.as_ref().map(encode).transpose()?;
    let mut skipped = Vec::new();
    let mut kept: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for (name, value) in &records.xattrs {
        match has_place(name) {
            true => _ = kept.insert(name, value),
            false => skipped.push(name.clone()),
        }
    }
    if let Some(value) = access.as_ref().filter(|value| !acl::is_mode(value)) {
        kept.insert(acl::ACCESS, value);
    }
    if let Some(value) = default.as_ref().filter(|_| kind == FileKind::Directory) {
        kept.insert(acl::DEFAULT, value);
    }
    let kept = kept.iter().map(|(name, value)| Xattr::new(name, value));
    let kept = kept.collect::<Result<_, _>>().map_err(Fault::Unstorable)?;
    Ok(Found { kept, skipped })
}

/// Returns whether EROFS has a place for an attribute. Linux has none whose names are prefixes alone, but for access lists.
pub(crate) fn has_place(name: &[u8]) -> bool {
    let is_acl = [acl::ACCESS, acl::DEFAULT].contains(&name);
    split_name(name).is_some_and(|(_, rest)| is_acl || !rest.is_empty())
}
