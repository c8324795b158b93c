//! The header of a member: one block, checked.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::fault::Fault;

/// Archives consist of blocks of so many bytes.
pub(super) const BLOCK_BYTES: usize = 512;

pub(super) type Block = [u8; BLOCK_BYTES];

/// A header as it lies in the archive; numbers are octal text, or binary with the top bit set.
///
/// ```text
/// 0     100   108  116  124   136    148       156       157       257    263
/// | name | mode | uid | gid | size | mtime | checksum | typeflag | linkname | magic, version
/// 265     297     329        337        345      500
/// | uname | gname | devmajor | devminor | prefix | … |
/// ```
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    name: [u8; 100],
    mode: [u8; 8],
    uid: [u8; 8],
    gid: [u8; 8],
    size: [u8; 12],
    mtime: [u8; 12],
    checksum: [u8; 8],
    typeflag: u8,
    linkname: [u8; 100],
    magic: [u8; 8],
    uname: [u8; 32],
    gname: [u8; 32],
    devmajor: [u8; 8],
    devminor: [u8; 8],
    prefix: [u8; 155],
    rest: [u8; 12],
}

const _: () = assert!(size_of::<RawHeader>() == BLOCK_BYTES);

/// The checksum counts its own field as spaces.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Magic and version of POSIX, the only headers with a prefix.
const USTAR: &[u8; 8] = b"ustar\x0000";
/// Magic and version of GNU tar.
const GNU: &[u8; 8] = b"ustar  \0";

/// A header whose checksum is right.
pub(super) struct Header<'a> {
    raw: &'a RawHeader,
    block: &'a Block,
}

impl<'a> Header<'a> {
    /// Checks a block that is not all zeros.
    pub fn parse(block: &'a Block) -> Result<Self, Fault> {
        let raw = RawHeader::ref_from_bytes(block).expect("as long as a block");
        let header = Self { raw, block };
        let found = number(&raw.checksum, "checksum")?;
        let (unsigned, signed) = header.sums();
        // Some old programs added signed bytes.
        match found == unsigned || found == signed {
            true => Ok(header),
            false => Err(Fault::Broken(format!(
                "the checksum is {found}, but its bytes add up to {unsigned}"
            ))),
        }
    }

    fn sums(&self) -> (i64, i64) {
        let byte = |(at, byte): (usize, &u8)| match CHECKSUM.contains(&at) {
            true => b' ',
            false => *byte,
        };
        let bytes = || self.block.iter().enumerate().map(byte);
        let unsigned = bytes().map(i64::from).sum();
        let signed = bytes().map(|byte| i64::from(byte as i8)).sum();
        (unsigned, signed)
    }

    pub const fn typeflag(&self) -> u8 {
        self.raw.typeflag
    }

    pub fn is_gnu(&self) -> bool {
        self.raw.magic == *GNU
    }

    /// The name, behind its prefix.
    pub fn name(&self) -> Vec<u8> {
        let (prefix, name) = (until_nul(&self.raw.prefix), until_nul(&self.raw.name));
        match self.raw.magic == *USTAR && !prefix.is_empty() {
            true => [prefix, name].join(&b'/'),
            false => name.to_vec(),
        }
    }

    pub fn link(&self) -> &[u8] {
        until_nul(&self.raw.linkname)
    }

    /// The permissions, without the bits of the kind that some programs add.
    pub fn perm(&self) -> Result<u16, Fault> {
        Ok((number(&self.raw.mode, "mode")? & 0o7777) as u16)
    }

    pub fn uid(&self) -> Result<u32, Fault> {
        within_32_bits(&self.raw.uid, "owner")
    }

    pub fn gid(&self) -> Result<u32, Fault> {
        within_32_bits(&self.raw.gid, "group")
    }

    pub fn mtime(&self) -> Result<i64, Fault> {
        number(&self.raw.mtime, "modification time")
    }

    pub fn size(&self) -> Result<u64, Fault> {
        size(&self.raw.size, "size")
    }

    /// The major and minor number of a device.
    pub fn device(&self) -> Result<(u32, u32), Fault> {
        Ok((
            within_32_bits(&self.raw.devmajor, "major device number")?,
            within_32_bits(&self.raw.devminor, "minor device number")?,
        ))
    }
}

/// Reads a number that is not negative.
pub(super) fn size(field: &[u8], what: &str) -> Result<u64, Fault> {
    let found = number(field, what)?;
    u64::try_from(found).map_err(|_| Fault::Broken(format!("the {what} is {found}")))
}

fn within_32_bits(field: &[u8], what: &str) -> Result<u32, Fault> {
    let found = number(field, what)?;
    u32::try_from(found)
        .map_err(|_| Fault::Broken(format!("the {what} is {found}, which 32 bits do not hold")))
}

/// Reads a number: octal digits up to a space or NUL, nothing for 0, or a binary one.
fn number(field: &[u8], what: &str) -> Result<i64, Fault> {
    let fail = || {
        let text = field.escape_ascii();
        Fault::Broken(format!("the {what} is `{text}`, which is no number"))
    };
    if field[0] & 0x80 != 0 {
        return binary(field).ok_or_else(fail);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| !is_blank(byte));
    let digits = &field[start.unwrap_or(field.len())..];
    let end = digits.iter().position(is_blank).unwrap_or(digits.len());
    let add = |sum: i64, digit: &u8| match digit {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    };
    digits[..end].iter().try_fold(0, add).ok_or_else(fail)
}

/// Reads a number of two's complement, of which the top bit only tells that it is one.
fn binary(field: &[u8]) -> Option<i64> {
    let first = i64::from(field[0] & 0x7f);
    let signed = if first & 0x40 != 0 {
        first - 0x80
    } else {
        first
    };
    let add = |sum: i64, byte: &u8| sum.checked_mul(256)?.checked_add(i64::from(*byte));
    field[1..].iter().try_fold(signed, add)
}

fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777", Some(0o7777_7777)),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (
                b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
                Some(i64::MAX),
            ),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"0000648\0", None),
            (b"-000001\0", None),
            (b"0x10\0\0\0\0", None),
        ] {
            assert_eq!(number(field, "size").ok(), expected, "{field:?}");
        }
    }
}
