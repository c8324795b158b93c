//! The handshake: the kernel's first request says what it offers, our reply what we take.

use rustix::io::Errno;
use rustix::param::page_size;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::MountError;
use crate::device::{Device, REQUEST_LEN_MAX};
use crate::proto::{InHeader, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, init_flag, op};

/// The largest READ the kernel may send, in bytes; also its limit for unprivileged settings.
pub const READ_LEN_MAX: usize = 1 << 20;

/// The least `max_write` the kernel accepts. Nothing is written here, and it wants a request buffer
/// larger than this.
const WRITE_LEN_MAX: u32 = 4096;

/// Requests that may wait without a caller waiting for them (readahead), and when to call that
/// congested.
const BACKGROUND_MAX: u16 = 64;
const CONGESTED_AT: u16 = BACKGROUND_MAX / 4 * 3;

/// What we take if it is offered. Opens are answered with ENOSYS, which tells a kernel with
/// `NO_OPEN(DIR)_SUPPORT` to do without them, and to keep file pages and directory listings cached.
const WANTED: u32 = init_flag::ASYNC_READ
    | init_flag::ASYNC_DIO
    | init_flag::EXPORT_SUPPORT
    | init_flag::DO_READDIRPLUS
    | init_flag::READDIRPLUS_AUTO
    | init_flag::NO_OPEN_SUPPORT
    | init_flag::NO_OPENDIR_SUPPORT
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::CACHE_SYMLINKS;

/// Receives and answers the INIT request of a fresh mount.
///
/// `check_permissions` asks for POSIX ACLs too, which the kernel only honours together with mode
/// bits.
///
/// # Errors
///
/// [`MountError::KernelVersion`], or [`MountError::Handshake`] when the device fails, the mount has
/// gone already, or what comes first is no INIT.
pub fn handshake(device: &Device, check_permissions: bool) -> Result<(), MountError> {
    let mut buf = vec![0; REQUEST_LEN_MAX];
    let len = device.receive(&mut buf).map_err(MountError::Handshake)?;
    let len = len.ok_or_else(|| MountError::Handshake(Errno::NODEV.into()))?;
    let (header, init) = parse(&buf[..len])
        .ok_or_else(|| MountError::Handshake(std::io::ErrorKind::InvalidData.into()))?;
    let answer = negotiate(&init, check_permissions);
    let payload = answer
        .as_ref()
        .map(IntoBytes::as_bytes)
        .map_err(|_| Errno::PROTO);
    device
        .send(header.unique, payload)
        .map_err(MountError::Handshake)?;
    answer.map(drop)
}

fn parse(request: &[u8]) -> Option<(InHeader, InitIn)> {
    let (header, body) = InHeader::read_from_prefix(request).ok()?;
    let (init, _) = InitIn::read_from_prefix(body).ok()?;
    (header.opcode == op::INIT).then_some((header, init))
}

fn negotiate(offer: &InitIn, check_permissions: bool) -> Result<InitOut, MountError> {
    if offer.major != MAJOR || offer.minor < MINOR_MIN {
        return Err(MountError::KernelVersion {
            major: offer.major,
            minor: offer.minor,
        });
    }
    let acl = if check_permissions {
        init_flag::POSIX_ACL
    } else {
        0
    };
    Ok(InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: offer.max_readahead,
        flags: offer.flags & (WANTED | acl),
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTED_AT,
        max_write: WRITE_LEN_MAX,
        time_gran: 1,
        max_pages: (READ_LEN_MAX / page_size()).max(1) as u16,
        ..InitOut::new_zeroed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(major: u32, minor: u32) -> InitIn {
        InitIn {
            major,
            minor,
            max_readahead: 131_072,
            flags: u32::MAX,
        }
    }

    #[test]
    fn takes_nothing_that_was_not_offered() {
        let bare = InitIn {
            flags: init_flag::MAX_PAGES,
            ..offer(7, 31)
        };
        assert_eq!(negotiate(&bare, true).unwrap().flags, init_flag::MAX_PAGES);
    }

    #[test]
    fn acls_come_with_permission_checks_only() {
        for check in [false, true] {
            let answer = negotiate(&offer(7, 45), check).unwrap();
            assert_eq!(answer.flags & init_flag::POSIX_ACL != 0, check);
            assert_eq!((answer.major, answer.max_readahead), (7, 131_072));
        }
    }

    #[test]
    fn old_kernels_are_named() {
        for (major, minor) in [(6, 99), (7, 30), (8, 0)] {
            let error = negotiate(&offer(major, minor), true).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("FUSE {major}.{minor}")), "{text}");
        }
    }

    #[test]
    fn anything_but_a_whole_init_is_no_handshake() {
        let header = InHeader {
            opcode: op::INIT,
            ..InHeader::new_zeroed()
        };
        let mut request = [header.as_bytes(), offer(7, 45).as_bytes(), &[0; 48]].concat();
        assert!(parse(&request).is_some());
        assert!(parse(&request[..56]).is_some(), "kernels before 7.36");
        for len in [0, 39, 40, 55] {
            assert!(parse(&request[..len]).is_none(), "{len} bytes");
        }
        request[4..8].copy_from_slice(&op::GETATTR.to_ne_bytes());
        assert!(parse(&request).is_none());
    }
}
