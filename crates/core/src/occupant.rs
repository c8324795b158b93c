//! Occupants of a device, by the marks that file systems and their like leave: whoever is about to write over it asks
//! first.
//!
//! Marks are looked for at both ends, as arrays, partition tables and some others keep one, or all, at the end. Of these, and of what
//! this project makes, one that is found counts; else the first of the list. That something is found does not say that it is whole.

use std::fmt;
use std::fs::File;
use std::io;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::device::{Device, FileDevice, Window};

/// Tells what lies on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// An EROFS image.
    Image,
    /// A log.
    Log,
    /// An image in Android's sparse form.
    Sparse,
    /// Something else, by the words for it.
    Other(&'static str),
    /// Bytes that say nothing of what they are.
    Data,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "an EROFS image",
            Self::Log => "a log",
            Self::Sparse => "a sparse image of Android",
            Self::Other(name) => name,
            Self::Data => "data that is no file system that is known",
        })
    }
}

/// A mark: words for whoever leaves it, where it is, and what it is.
type Mark = (&'static str, u64, &'static [u8]);

const IMAGE: Mark = ("", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]);
const LOG: [Mark; 2] = [("", 1024, b"antlog\r\n"), ("", 4096 + 1024, b"antlog\r\n")];

const SPARSE: Mark = ("", 0, &[0x3a, 0xff, 0x26, 0xed]);

/// Marks at the beginning.
const MARKS: &[Mark] = &[
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an f2fs file system", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    ("a squashfs file system", 0, b"hsqs"),
    ("a squashfs file system", 0, b"sqsh"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS volume", 0x4000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x8000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x1_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x2_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x4_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x8_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x10_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x20_0000, b"SKUL\xba\xbe"),
    ("a LUKS volume", 0x40_0000, b"SKUL\xba\xbe"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("a member of a RAID array", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a member of a RAID array", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    (
        "a bcachefs file system",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "a bcache device",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("a swap area", 4096 - 10, b"SWAPSPACE2"),
    ("a swap area", 8192 - 10, b"SWAPSPACE2"),
    ("a swap area", 16384 - 10, b"SWAPSPACE2"),
    ("a swap area", 65536 - 10, b"SWAPSPACE2"),
    ("a swap area", 4096 - 10, b"SWAP-SPACE"),
    ("a suspended system", 4096 - 10, b"S1SUSPEND"),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("an NTFS file system", 3, b"NTFS    "),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 54, b"FAT     "),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a UDF file system", 0x8001, b"BEA01"),
    ("a UDF file system", 0x8801, b"NSR0"),
    ("an HFS+ file system", 0x400, b"H+"),
    ("an HFS+ file system", 0x400, b"HX"),
    ("an HFS file system", 0x400, b"BD"),
    ("an APFS container", 32, b"NXSB"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("a NILFS file system", 0x406, &[0x34, 0x34]),
    ("an OCFS2 file system", 0x2000, b"OCFSV2"),
    ("a GFS2 file system", 0x1_0000, &[1, 0x16, 0x19, 0x70]),
    ("a minix file system", 0x410, &[0x7f, 0x13]),
    ("a minix file system", 0x410, &[0x8f, 0x13]),
    ("a minix file system", 0x410, &[0x68, 0x24]),
    ("a minix file system", 0x410, &[0x78, 0x24]),
    ("a minix file system", 0x418, &[0x5a, 0x4d]),
    ("a cramfs file system", 0, &[0x45, 0x3d, 0xcd, 0x28]),
    ("a romfs file system", 0, b"-rom1fs-"),
    ("a UBI volume", 0, b"UBI#"),
    ("a UBIFS file system", 0, &[0x31, 0x18, 0x10, 0x06]),
    ("a Ceph volume", 0, b"bluestore block device"),
    ("a Stratis pool", 512, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a dm-verity tree", 0, b"verity\0\0"),
    ("a dm-integrity volume", 0, b"integrt\0"),
    ("a VDO volume", 0, b"dmvdo001"),
];

/// Marks of partition tables behind the boot sector, for both lengths of a sector.
const GPT: [Mark; 2] = [
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
];

/// Marks so many bytes before the end.
const MARKS_AT_END: &[Mark] = &[
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
    (
        "a member of a RAID array (Intel)",
        1024,
        b"Intel Raid ISM Cfg Sig. ",
    ),
    (
        "a member of a RAID array (DDF)",
        512,
        &[0xde, 0x11, 0xde, 0x11],
    ),
    (
        "a member of a RAID array (DDF)",
        512,
        &[0x11, 0xde, 0x11, 0xde],
    ),
];

/// The number in superblocks of arrays, in both orders of bytes.
const MD: [[u8; 4]; 2] = [[0xfc, 0x4e, 0x2b, 0xa9], [0xa9, 0x2b, 0x4e, 0xfc]];

/// Blocks of which ZFS keeps two at each end, the blocks of numbers in their second half, and these.
const ZFS_LABEL: u64 = 256 << 10;
const ZFS_STEP: u64 = 1024;
const ZFS: [[u8; 8]; 2] = [
    [0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c],
];

/// States how much of a device is looked at where nothing leaves a mark.
const HEAD: u64 = 4096;
/// States how much of a file is read at once.
const PORTION: u64 = 1 << 20;

/// Returns what a device holds, as far as marks say: `None` for one without any.
///
/// # Errors
///
/// The error of the medium.
pub fn marked(device: &dyn Device) -> io::Result<Option<Occupant>> {
    if let Some(name) = at_end(device)? {
        return Ok(Some(Occupant::Other(name)));
    }
    if has(device, &IMAGE)? {
        return Ok(Some(Occupant::Image));
    }
    for mark in &LOG {
        if has(device, mark)? {
            return Ok(Some(Occupant::Log));
        }
    }
    if has(device, &SPARSE)? {
        return Ok(Some(Occupant::Sparse));
    }
    for mark in GPT.iter().chain(MARKS) {
        if has(device, mark)? {
            return Ok(Some(Occupant::Other(mark.0)));
        }
    }
    let found = match ext(device)? {
        None if is_zfs(device)? => Some("a ZFS pool"),
        None => boot_sector(device)?,
        found => found,
    };
    Ok(found.map(Occupant::Other))
}

impl FileDevice {
    /// Returns what lies there. A regular file holds data if a byte of it is not zero; of a block device, only the
    /// beginning is looked at where no mark is found.
    ///
    /// # Errors
    ///
    /// The error of the medium.
    pub fn occupant(&self) -> io::Result<Option<Occupant>> {
        self.occupant_from(0)
    }

    /// Returns what lies there from a byte on.
    ///
    /// # Errors
    ///
    /// The error of the medium.
    pub fn occupant_from(&self, start: u64) -> io::Result<Option<Occupant>> {
        let found = marked(&Window::new(self, start))?;
        if found.is_some() {
            return Ok(found);
        }
        let holds_data = match self.file().metadata()?.is_file() {
            true => self.has_data(start)?,
            false => {
                let len = HEAD.min(self.size().saturating_sub(start));
                !is_zero(self, start, len)?
            }
        };
        Ok(holds_data.then_some(Occupant::Data))
    }

    /// Returns whether any byte of a file from there on is not zero. Holes are not read.
    fn has_data(&self, mut at: u64) -> io::Result<bool> {
        let size = self.size();
        while at < size {
            let (start, end) = data_behind(self.file(), at, size)?;
            at = start;
            while at < end {
                let len = PORTION.min(end - at);
                if !is_zero(self, at, len)? {
                    return Ok(true);
                }
                at += len;
            }
        }
        Ok(false)
    }
}

/// The next bytes of a file that are no hole; at its end, none.
fn data_behind(file: &File, at: u64, size: u64) -> io::Result<(u64, u64)> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => {
            let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
            Ok((start.min(size), end.min(size)))
        }
        Err(Errno::NXIO) => Ok((size, size)),
        Err(Errno::INVAL) => Ok((at, size)),
        Err(errno) => Err(errno.into()),
    }
}

fn is_zero(device: &dyn Device, at: u64, len: u64) -> io::Result<bool> {
    let mut bytes = vec![0; len as usize];
    device.read_at(at, &mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// Bytes of a device, if it has so many.
fn bytes<const LEN: usize>(device: &dyn Device, at: u64) -> io::Result<Option<[u8; LEN]>> {
    let mut bytes = [0; LEN];
    match at.checked_add(LEN as u64) {
        Some(end) if end <= device.size() => {
            device.read_at(at, &mut bytes)?;
            Ok(Some(bytes))
        }
        _ => Ok(None),
    }
}

fn has(device: &dyn Device, &(_, at, mark): &Mark) -> io::Result<bool> {
    if at.saturating_add(mark.len() as u64) > device.size() {
        return Ok(false);
    }
    let mut found = vec![0; mark.len()];
    device.read_at(at, &mut found)?;
    Ok(found == mark)
}

fn at_end(device: &dyn Device) -> io::Result<Option<&'static str>> {
    let size = device.size();
    for &(name, before, mark) in MARKS_AT_END {
        let Some(at) = size.checked_sub(before) else {
            continue;
        };
        if has(device, &(name, at, mark))? {
            return Ok(Some(name));
        }
    }
    // Formats 0.90 and 1.0 of Linux' own arrays.
    let places = [
        (size & !0xffff).checked_sub(0x1_0000),
        (size / 512)
            .checked_sub(16)
            .map(|sector| (sector & !7) * 512),
    ];
    for place in places.into_iter().flatten() {
        if bytes(device, place)?.is_some_and(|found| MD.contains(&found)) {
            return Ok(Some("a member of a RAID array"));
        }
    }
    Ok(None)
}

fn ext(device: &dyn Device) -> io::Result<Option<&'static str>> {
    if bytes(device, 0x438)? != Some([0x53, 0xef]) {
        return Ok(None);
    }
    let features = |at| Ok::<_, io::Error>(bytes(device, at)?.map_or(0, u32::from_le_bytes));
    let (compatible, incompatible) = (features(0x45c)?, features(0x460)?);
    // Extents, 64 bits and flexible groups; a journal.
    Ok(Some(match (incompatible & 0x2c0, compatible & 4) {
        (1.., _) => "an ext4 file system",
        (0, 1..) => "an ext3 file system",
        (0, 0) => "an ext2 file system",
    }))
}

fn is_zfs(device: &dyn Device) -> io::Result<bool> {
    let size = device.size();
    // Labels at the end lie in whole blocks of that length.
    let end = size / ZFS_LABEL * ZFS_LABEL;
    let labels = [
        0,
        ZFS_LABEL,
        end.wrapping_sub(2 * ZFS_LABEL),
        end.wrapping_sub(ZFS_LABEL),
    ];
    for label in labels {
        for at in (ZFS_LABEL / 2..ZFS_LABEL).step_by(ZFS_STEP as usize) {
            let Some(place) = label.checked_add(at) else {
                continue;
            };
            if bytes(device, place)?.is_some_and(|found| ZFS.contains(&found)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn boot_sector(device: &dyn Device) -> io::Result<Option<&'static str>> {
    let Some(sector) = bytes::<512>(device, 0)?.filter(|sector| sector[510..] == [0x55, 0xaa])
    else {
        return Ok(None);
    };
    let mut entries = sector[446..510].chunks_exact(16);
    let is_table =
        entries.clone().all(|entry| entry[0] & 0x7f == 0) && entries.any(|entry| entry[4] != 0);
    Ok(Some(match is_table {
        true => "a partition table (MBR)",
        false => "a boot sector",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any mark is away from either end.
    const SIZE: usize = 10 << 20;

    fn with(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        for (at, mark) in marks {
            bytes[*at..at + mark.len()].copy_from_slice(mark);
        }
        bytes
    }

    fn name(marks: &[(usize, &[u8])]) -> String {
        let found = marked(&with(marks)).unwrap();
        found.map_or("nothing".into(), |found| found.to_string())
    }

    #[test]
    fn each_mark_is_found_where_it_is() {
        assert_eq!(name(&[]), "nothing");
        for &(expected, at, mark) in MARKS {
            assert_eq!(name(&[(at as usize, mark)]), expected, "{at}");
        }
        for &(expected, before, mark) in MARKS_AT_END {
            assert_eq!(
                name(&[(SIZE - before as usize, mark)]),
                expected,
                "{before}"
            );
        }
        assert_eq!(name(&[(1024, IMAGE.2)]), "an EROFS image");
        assert_eq!(name(&[(1024, LOG[0].2)]), "a log");
        assert_eq!(name(&[(5120, LOG[0].2)]), "a log");
        assert_eq!(name(&[(0, SPARSE.2)]), "a sparse image of Android");
        for label in [0, 256 << 10, SIZE - (512 << 10), SIZE - (256 << 10)] {
            let place = label + (128 << 10) + 5 * 1024;
            assert_eq!(name(&[(place, &ZFS[0])]), "a ZFS pool", "{label}");
        }
        for place in [SIZE - 0x1_0000, SIZE - 8192, 0, 4096] {
            assert_eq!(name(&[(place, &MD[0])]), "a member of a RAID array");
        }
    }

    #[test]
    fn kinds_of_one_family_are_told_apart() {
        let ext = (0x438, &[0x53, 0xef][..]);
        assert_eq!(name(&[ext]), "an ext2 file system");
        assert_eq!(name(&[ext, (0x45c, &[4])]), "an ext3 file system");
        assert_eq!(
            name(&[ext, (0x45c, &[4]), (0x460, &[0x40])]),
            "an ext4 file system"
        );
        let boot = (510, &[0x55, 0xaa][..]);
        assert_eq!(name(&[boot]), "a boot sector");
        assert_eq!(name(&[boot, (446, b"code")]), "a boot sector");
        assert_eq!(name(&[boot, (450, &[0x83])]), "a partition table (MBR)");
        assert_eq!(
            name(&[boot, (450, &[0xee]), GPT_MARK]),
            "a partition table (GPT)"
        );
        assert_eq!(name(&[boot, (82, b"FAT32   ")]), "a FAT file system");
    }

    const GPT_MARK: (usize, &[u8]) = (512, b"EFI PART");

    /// Tests that what holds a part of an array at its end is no image that may be replaced unasked.
    #[test]
    fn ends_count_before_the_beginning() {
        let image = (1024, IMAGE.2);
        assert_eq!(
            name(&[image, (SIZE - 8192, &MD[0])]),
            "a member of a RAID array"
        );
        assert_eq!(name(&[image, (0x438, &[0x53, 0xef])]), "an EROFS image");
    }

    #[test]
    fn what_is_short_has_no_marks_beyond_its_end() {
        for len in (0..600).chain(4000..4200) {
            assert_eq!(marked(&vec![0u8; len]).unwrap(), None, "{len}");
        }
        let mut short = vec![0; 300 << 10];
        short[1024..1028].copy_from_slice(IMAGE.2);
        assert_eq!(marked(&short).unwrap(), Some(Occupant::Image));
    }

    #[test]
    fn a_file_is_empty_if_all_of_it_is_zero() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let look = || FileDevice::open(file.path()).unwrap().occupant().unwrap();
        assert_eq!(look(), None);
        file.as_file().set_len(20 << 20).unwrap();
        assert_eq!(look(), None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[0; 5000], 1 << 20).unwrap();
        assert_eq!(look(), None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"x", (20 << 20) - 1).unwrap();
        assert_eq!(look(), Some(Occupant::Data));
    }
}
