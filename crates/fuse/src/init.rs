//! The handshake: the kernel's first request says what it offers, our reply what we take.

use rustix::io::Errno;
use rustix::param::page_size;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::MountError;
use crate::device::{Device, REQUEST_LEN_MAX, Request};
use crate::proto::{InHeader, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, init_flag, op};
use crate::retrieve;

/// The largest READ that a kernel sends which is not set to send larger ones, in bytes.
pub const READ_LEN_MAX: usize = 1 << 20;

/// Beyond this, larger requests only cost memory.
const REQUEST_LEN_LIMIT: usize = 16 << 20;

/// The least it may be told to keep to: what it uses when told nothing, and room for everything else
/// that is answered.
const READ_LEN_MIN: usize = 128 << 10;

/// The least `max_write` the kernel accepts. It wants a request buffer larger than this.
const WRITE_LEN_MIN: usize = 4096;

/// Requests that may wait without a caller waiting for them (readahead), and when to call that
/// congested.
const BACKGROUND_MAX: u16 = 64;
const CONGESTED_AT: u16 = BACKGROUND_MAX / 4 * 3;

/// Mounts on top of each other that the kernel may meet below us when it reads lent files: none.
const STACK_DEPTH: u32 = 1;

/// Features taken if offered. Opens are answered with ENOSYS, which tells a kernel with `NO_OPEN(DIR)_SUPPORT` to do
/// without them, and to keep file pages and directory listings cached. With passthrough, files are opened for real after
/// all, and so they are where they can be written to; directories are, where listings are not to be
/// [kept](Terms::keeps_listings).
const WANTED: u64 = init_flag::ASYNC_READ
    | init_flag::ASYNC_DIO
    | init_flag::EXPORT_SUPPORT
    | init_flag::DO_READDIRPLUS
    | init_flag::READDIRPLUS_AUTO
    | init_flag::NO_OPEN_SUPPORT
    | init_flag::NO_OPENDIR_SUPPORT
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::CACHE_SYMLINKS;

/// What we take besides for a file system that can be written to. Privileges are dropped by whoever
/// writes, when the kernel says so: otherwise it would ask for a file's capabilities before each write. Whether an access
/// list takes the set-group-id bit along, only the kernel knows, which knows all groups of the caller; whether that of the
/// directory is among them it says when something is made.
/// Cached pages go when size or time of a file have changed behind the kernel's back. `ATOMIC_O_TRUNC` is not
/// taken: it would have us cut off a program that runs before the kernel refuses to.
const WANTED_TO_WRITE: u64 = init_flag::BIG_WRITES
    | init_flag::DONT_MASK
    | init_flag::AUTO_INVAL_DATA
    | init_flag::HANDLE_KILLPRIV_V2
    | init_flag::SETXATTR_EXT
    | init_flag::INIT_EXT
    | init_flag::CREATE_SUPP_GROUP;

/// The part of [`WANTED`] that is for a file system that never changes: to do without opens, and direct access that nobody waits for. After a write of that kind, the kernel neither syncs a file that was opened to be
/// synced, nor drops the old content that it has cached.
const ONLY_TO_READ: u64 = init_flag::NO_OPEN_SUPPORT | init_flag::ASYNC_DIO;

/// Features for attributes that are cached for a while: they are learned from listings. The kernel asks for them at the
/// beginning of a directory, and where something was looked up in it.
const TO_BELIEVE: u64 = init_flag::DO_READDIRPLUS | init_flag::READDIRPLUS_AUTO;

/// Wanted properties of the mount.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Bytes of the largest WRITE, if there are any.
    pub write_len_max: Option<usize>,
    /// Tells whether the kernel checks permissions. POSIX ACLs are asked for too then; it only honours them together with
    /// mode bits.
    pub check_permissions: bool,
    /// Tells whether attributes and names are cached for any time at all.
    pub believes: bool,
    /// Bytes of the largest READ, as [`read_len`] makes it.
    pub read_len_max: usize,
    /// Bytes to read ahead, if less than the kernel would.
    pub readahead: Option<usize>,
    /// Tells whether files may be lent to the kernel.
    pub passthrough: bool,
    /// Tells whether the kernel may write back later. It does not do both, and lending goes first.
    pub write_back: bool,
    /// Tells whether requests may come over io_uring.
    pub rings: bool,
    /// Tells whether inodes are found that were forgotten, for file handles.
    pub exports: bool,
    /// Tells whether the kernel may keep listings of directories that change through it alone.
    pub keeps_listings: bool,
}

/// Features that the kernel and we agreed upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Files may be lent.
    pub lends: bool,
    /// The kernel writes back.
    pub writes_back: bool,
    /// SETXATTR has flags of its own.
    pub extended_xattrs: bool,
    /// No directory is opened.
    pub keeps_listings: bool,
    /// Requests come over io_uring, as soon as there is a ring for each queue; none come before.
    pub rings: bool,
}

/// The size of the largest READ for a wish in bytes, where requests have up to `limit`: a power of two
/// that the kernel takes.
pub fn read_len(wanted: usize, limit: usize) -> usize {
    1 << wanted.clamp(READ_LEN_MIN, limit.max(READ_LEN_MIN)).ilog2()
}

/// Bytes of the largest request that the kernel is set to send: 1 MiB, unless the sysctl
/// `fs.fuse.max_pages_limit` (Linux 6.13) says otherwise; never more than 16 MiB.
pub fn request_len_limit() -> usize {
    let pages = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
    let pages: Option<usize> = pages.ok().and_then(|text| text.trim().parse().ok());
    let limit = pages.map_or(READ_LEN_MAX, |pages| pages.saturating_mul(page_size()));
    1 << limit.clamp(page_size(), REQUEST_LEN_LIMIT).ilog2()
}

/// Receives and answers the INIT request of a fresh mount, and says what was agreed upon.
///
/// # Errors
///
/// [`MountError::KernelVersion`], or [`MountError::Handshake`] when the device fails, the mount has
/// gone already, or what comes first is no INIT.
pub fn handshake(device: &Device, terms: Terms) -> Result<Agreed, MountError> {
    let mut request = Request::default();
    let is_there = device.receive(&mut request, REQUEST_LEN_MAX);
    if !is_there.map_err(MountError::Handshake)? {
        return Err(MountError::Handshake(Errno::NODEV.into()));
    }
    let (unique, offer) = parse(request.bytes())
        .ok_or_else(|| MountError::Handshake(std::io::ErrorKind::InvalidData.into()))?;
    let answer = negotiate(&offer, terms);
    let payload = answer
        .as_ref()
        .map(IntoBytes::as_bytes)
        .map_err(|_| Errno::PROTO);
    device
        .send(unique, payload)
        .map_err(MountError::Handshake)?;
    let answer = answer?;
    Ok(Agreed {
        lends: answer.max_stack_depth > 0,
        writes_back: u64::from(answer.flags) & init_flag::WRITEBACK_CACHE != 0,
        extended_xattrs: u64::from(answer.flags) & init_flag::SETXATTR_EXT != 0,
        keeps_listings: u64::from(answer.flags) & init_flag::NO_OPENDIR_SUPPORT != 0,
        rings: u64::from(answer.flags2) << 32 & init_flag::OVER_IO_URING != 0,
    })
}

/// Features that the kernel offers.
#[derive(Debug, Clone, Copy)]
struct Offer {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u64,
}

/// The number of an INIT request, and what it offers.
fn parse(request: &[u8]) -> Option<(u64, Offer)> {
    let (header, body) = InHeader::read_from_prefix(request).ok()?;
    let (init, rest) = InitIn::read_from_prefix(body).ok()?;
    if header.opcode != op::INIT {
        return None;
    }
    let mut flags = u64::from(init.flags);
    if flags & init_flag::INIT_EXT != 0 {
        let (high, _) = u32::read_from_prefix(rest).ok()?;
        flags |= u64::from(high) << 32;
    }
    let offer = Offer {
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags,
    };
    Some((header.unique, offer))
}

fn negotiate(offer: &Offer, terms: Terms) -> Result<InitOut, MountError> {
    if offer.major != MAJOR || offer.minor < MINOR_MIN {
        return Err(MountError::KernelVersion {
            major: offer.major,
            minor: offer.minor,
        });
    }
    let mut flags = match terms.write_len_max {
        Some(_) => WANTED & !ONLY_TO_READ | WANTED_TO_WRITE,
        None => WANTED,
    };
    if !terms.keeps_listings {
        flags &= !init_flag::NO_OPENDIR_SUPPORT;
    }
    if !terms.believes {
        flags &= !TO_BELIEVE;
    }
    if !terms.exports {
        flags &= !init_flag::EXPORT_SUPPORT;
    }
    if terms.check_permissions {
        flags |= init_flag::POSIX_ACL;
    }
    if terms.passthrough {
        flags |= init_flag::INIT_EXT | init_flag::PASSTHROUGH;
    }
    if terms.rings {
        flags |= init_flag::INIT_EXT | init_flag::OVER_IO_URING;
    }
    let lends = flags & offer.flags & init_flag::PASSTHROUGH != 0;
    if terms.write_back && !lends {
        flags |= init_flag::WRITEBACK_CACHE;
    }
    flags &= offer.flags;
    let readahead = terms.readahead.unwrap_or(usize::MAX);
    // Of a file system that never changes, nothing comes but what was retrieved.
    let write_len_max = terms.write_len_max.unwrap_or(retrieve::LEN_MAX);
    let write_len_max = write_len_max.max(WRITE_LEN_MIN);
    Ok(InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: u32::try_from(readahead)
            .map_or(offer.max_readahead, |len| len.min(offer.max_readahead)),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_stack_depth: if lends { STACK_DEPTH } else { 0 },
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTED_AT,
        max_write: write_len_max as u32,
        time_gran: 1,
        max_pages: (terms.read_len_max.max(write_len_max) / page_size()).max(1) as u16,
        ..InitOut::new_zeroed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        write_len_max: None,
        check_permissions: true,
        believes: true,
        read_len_max: READ_LEN_MAX,
        readahead: None,
        passthrough: true,
        write_back: false,
        rings: false,
        exports: true,
        keeps_listings: true,
    };

    fn offer(major: u32, minor: u32) -> Offer {
        Offer {
            major,
            minor,
            max_readahead: 131_072,
            flags: u64::MAX,
        }
    }

    #[test]
    fn takes_nothing_that_was_not_offered() {
        let bare = Offer {
            flags: init_flag::MAX_PAGES,
            ..offer(7, 31)
        };
        let answer = negotiate(&bare, TERMS).unwrap();
        assert_eq!(u64::from(answer.flags), init_flag::MAX_PAGES);
        assert_eq!((answer.flags2, answer.max_stack_depth), (0, 0));
    }

    #[test]
    fn what_can_be_written_to_is_opened_and_written_in_large_pieces() {
        let terms = Terms {
            write_len_max: Some(1 << 20),
            read_len_max: 128 << 10,
            ..TERMS
        };
        let answer = negotiate(&offer(7, 45), terms).unwrap();
        let flags = u64::from(answer.flags) | u64::from(answer.flags2) << 32;
        assert_eq!((answer.max_write, answer.max_pages), (1 << 20, 256));
        assert_eq!(flags & ONLY_TO_READ, 0);
        assert_eq!(flags & WANTED_TO_WRITE, WANTED_TO_WRITE);
    }

    #[test]
    fn file_handles_are_for_those_who_find_what_was_forgotten() {
        for (exports, write_len_max) in [(false, Some(4096)), (true, Some(4096)), (true, None)] {
            let terms = Terms {
                exports,
                write_len_max,
                ..TERMS
            };
            let flags = u64::from(negotiate(&offer(7, 45), terms).unwrap().flags);
            assert_eq!(flags & init_flag::EXPORT_SUPPORT != 0, exports);
        }
    }

    #[test]
    fn acls_come_with_permission_checks_only() {
        for check_permissions in [false, true] {
            let terms = Terms {
                check_permissions,
                ..TERMS
            };
            let answer = negotiate(&offer(7, 45), terms).unwrap();
            let acls = u64::from(answer.flags) & init_flag::POSIX_ACL != 0;
            assert_eq!(acls, check_permissions);
            assert_eq!((answer.major, answer.max_readahead), (7, 131_072));
        }
    }

    #[test]
    fn directories_are_opened_unless_listings_are_kept() {
        for (keeps_listings, write_len_max) in
            [(false, Some(4096)), (true, Some(4096)), (true, None)]
        {
            let terms = Terms {
                keeps_listings,
                write_len_max,
                ..TERMS
            };
            let flags = u64::from(negotiate(&offer(7, 45), terms).unwrap().flags);
            assert_eq!(flags & init_flag::NO_OPENDIR_SUPPORT != 0, keeps_listings);
        }
    }

    #[test]
    fn listings_bring_attributes_where_they_are_believed() {
        for (believes, write_len_max) in [(false, Some(4096)), (true, Some(4096)), (true, None)] {
            let terms = Terms {
                believes,
                write_len_max,
                ..TERMS
            };
            let flags = u64::from(negotiate(&offer(7, 45), terms).unwrap().flags);
            assert_eq!(flags & TO_BELIEVE, if believes { TO_BELIEVE } else { 0 });
        }
    }

    #[test]
    fn passthrough_is_taken_where_there_is_something_to_lend() {
        for passthrough in [false, true] {
            let terms = Terms {
                passthrough,
                ..TERMS
            };
            let answer = negotiate(&offer(7, 45), terms).unwrap();
            assert_eq!(answer.flags & 1 << 30 != 0, passthrough);
            assert_eq!(answer.flags2, if passthrough { 1 << 5 } else { 0 });
            assert_eq!(answer.max_stack_depth, u32::from(passthrough));
        }
    }

    #[test]
    fn the_kernel_writes_back_where_nothing_is_lent() {
        let bare = Offer {
            flags: !init_flag::PASSTHROUGH,
            ..offer(7, 45)
        };
        let terms = Terms {
            write_back: true,
            ..TERMS
        };
        for (offer, writes_back) in [(offer(7, 45), false), (bare, true)] {
            let answer = negotiate(&offer, terms).unwrap();
            let flags = u64::from(answer.flags);
            assert_eq!(flags & init_flag::WRITEBACK_CACHE != 0, writes_back);
            assert_eq!(answer.max_stack_depth == 0, writes_back);
        }
    }

    #[test]
    fn readahead_is_lowered_and_never_raised() {
        for (wanted, agreed) in [
            (None, 131_072),
            (Some(0), 0),
            (Some(4096), 4096),
            (Some(1 << 20), 131_072),
            (Some(usize::MAX), 131_072),
        ] {
            let terms = Terms {
                readahead: wanted,
                ..TERMS
            };
            let answer = negotiate(&offer(7, 45), terms).unwrap();
            assert_eq!(answer.max_readahead, agreed, "{wanted:?}");
        }
    }

    #[test]
    fn reads_are_powers_of_two_within_bounds() {
        for (wanted, len) in [
            (0, 128 << 10),
            (128 << 10, 128 << 10),
            ((256 << 10) - 1, 128 << 10),
            (300_000, 256 << 10),
            (usize::MAX, 1 << 20),
        ] {
            assert_eq!(read_len(wanted, READ_LEN_MAX), len, "{wanted}");
            let terms = Terms {
                read_len_max: read_len(wanted, READ_LEN_MAX),
                ..TERMS
            };
            let pages = negotiate(&offer(7, 45), terms).unwrap().max_pages;
            assert_eq!(usize::from(pages) * page_size(), len, "{wanted}");
        }
    }

    #[test]
    fn old_kernels_are_named() {
        for (major, minor) in [(6, 99), (7, 30), (8, 0)] {
            let error = negotiate(&offer(major, minor), TERMS).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("FUSE {major}.{minor}")), "{text}");
        }
    }

    /// An INIT request of a kernel that knows flags from bit 32 on.
    fn request(flags: u32) -> Vec<u8> {
        let header = InHeader {
            opcode: op::INIT,
            ..InHeader::new_zeroed()
        };
        let init = InitIn {
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags,
        };
        [header.as_bytes(), init.as_bytes(), &[0x20; 4], &[0; 44]].concat()
    }

    #[test]
    fn anything_but_a_whole_init_is_no_handshake() {
        let mut request = request(1);
        assert!(parse(&request).is_some());
        assert!(parse(&request[..56]).is_some(), "kernels before 7.36");
        for len in [0, 39, 40, 55] {
            assert!(parse(&request[..len]).is_none(), "{len} bytes");
        }
        request[4..8].copy_from_slice(&op::GETATTR.to_ne_bytes());
        assert!(parse(&request).is_none());
    }

    #[test]
    fn the_upper_flags_count_if_they_are_announced() {
        let flags = |request: &[u8]| parse(request).map(|(_, offer)| offer.flags);
        assert_eq!(flags(&request(1)), Some(1));
        assert_eq!(flags(&request(1 << 30)), Some(0x2020_2020_4000_0000));
        assert_eq!(flags(&request(1 << 30)[..56]), None);
    }
}
