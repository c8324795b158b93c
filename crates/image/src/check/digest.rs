//! Digests of content that files have as attributes.

use anteros_core::{FileKind, zeros};
use anteros_format::inode::Inode;
use sha2::digest::Output;
use sha2::{Digest, Sha256};

use crate::map::{Extent, Map, Source};
use crate::{Error, Place, Reader};

use super::finding::FindingKind;
use super::run::Run;

/// Stands in front of the 32 bytes of a digest.
const ALGORITHM: &[u8] = b"sha256:";

/// Compares the content of a regular file with the digest that it has, if that is wished.
pub(super) fn check(run: &Run<'_>, reader: &mut Reader<'_>, inode: &Inode, map: &Map) {
    let prefix = run.image.superblock().digest_prefix;
    let has_content = inode.kind == FileKind::Regular && inode.size > 0;
    let Some(prefix) = prefix.filter(|_| run.options.digests && has_content) else {
        return;
    };
    let Some(recorded) = run.ok(run.image.digest_xattr(inode, prefix)) else {
        return;
    };
    let place = Place::Xattrs(inode.nid);
    let Some(recorded) = recorded else {
        return run.note(place, FindingKind::DigestMissing);
    };
    let Some(recorded) = digest(&recorded) else {
        let value = recorded.escape_ascii().to_string();
        return run.note(place, FindingKind::DigestForm { value });
    };
    let Some(Some(found)) = run.ok(content(run, reader, inode, map)) else {
        return;
    };
    if found != recorded {
        let [recorded, found] = [recorded, found].map(|digest| format!("{digest:x}"));
        run.note(place, FindingKind::Digest { recorded, found });
    }
}

/// The digest that the value of an attribute is.
fn digest(value: &[u8]) -> Option<Output<Sha256>> {
    let bytes: [u8; 32] = value.strip_prefix(ALGORITHM)?.try_into().ok()?;
    Some(bytes.into())
}

/// The digest of a file's content; `None` if the check has ended meanwhile.
fn content(
    run: &Run<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
    map: &Map,
) -> crate::Result<Option<Output<Sha256>>> {
    let mut digest = Sha256::new();
    for extent in run.image.extents(inode, map) {
        let extent = extent?;
        if extent.source == Source::Hole {
            if !take_hole(run, &extent, &mut digest) {
                return Ok(None);
            }
            continue;
        }
        let mut goes_on = true;
        reader.read_extent(inode, &extent, |_, bytes| {
            goes_on = goes_on && run.spend(bytes.len() as u64);
            digest.update(bytes);
            Ok::<_, Error>(())
        })?;
        if !goes_on {
            return Ok(None);
        }
    }
    Ok(Some(digest.finalize()))
}

/// Takes the zeros of a hole; answers whether the check goes on.
fn take_hole(run: &Run<'_>, extent: &Extent, digest: &mut Sha256) -> bool {
    zeros(extent.len).all(|piece| {
        let goes_on = run.spend(piece.len() as u64);
        if goes_on {
            digest.update(piece);
        }
        goes_on
    })
}
