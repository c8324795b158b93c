//! Extended attributes that overlayfs keeps in its upper directory.

/// Names of the attribute in which it keeps where something was copied up from: a file handle behind a head.
const ORIGINS: [&[u8]; 2] = [b"trusted.overlay.origin", b"user.overlay.origin"];
/// The head: version, magic number, length, flags, type of the handle, and the UUID of the file system.
const HEAD_BYTES: usize = 21;
const MAGIC: u8 = 0xfb;
/// Handles as FUSE makes them: an inode and its generation, and the same of its parent.
const OF_FUSE: [u8; 2] = [0x81, 0x82];

/// The value as it is to be stored.
///
/// What a handle of FUSE leads to has no name for the kernel, and overlayfs asks whether the name is still true: it finds
/// the copy stale. Of an origin that has no handle, it keeps an empty value.
pub(crate) fn storable<'a>(name: &[u8], value: &'a [u8]) -> &'a [u8] {
    match ORIGINS.contains(&name) && is_of_fuse(value) {
        true => &[],
        false => value,
    }
}

fn is_of_fuse(origin: &[u8]) -> bool {
    let Some([_, MAGIC, _, _, kind, uuid @ ..]) = origin.get(..HEAD_BYTES) else {
        return false;
    };
    // FUSE has no identity.
    OF_FUSE.contains(kind) && uuid.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_in_fuse_are_not_kept() {
        let origin = |kind, uuid| {
            let mut origin = vec![0, MAGIC, 33, 0, kind];
            origin.extend([uuid; 16]);
            origin.extend([7; 12]);
            origin
        };
        for (name, kind, uuid, is_kept) in [
            ("trusted.overlay.origin", 0x81, 0, false),
            ("user.overlay.origin", 0x82, 0, false),
            ("trusted.overlay.origin", 0x81, 5, true),
            ("trusted.overlay.origin", 1, 0, true),
            ("trusted.overlay.upper", 0x81, 0, true),
        ] {
            let value = origin(kind, uuid);
            let stored = storable(name.as_bytes(), &value);
            assert_eq!(stored == value, is_kept, "{name} {kind} {uuid}");
        }
        for short in [&b""[..], b"\0\xfb", &origin(0x81, 0)[..20]] {
            assert_eq!(storable(ORIGINS[0], short), short);
        }
    }
}
