//! Headers of a tar archive, as POSIX.1-2001 has them.
//!
//! ```text
//! byte 0      100    108   116   124    136     148        156    157        257
//!      | name | mode | uid | gid | size | mtime | checksum | type | linkname |
//! byte 257     263       265     297     329        337        345      500
//!      | magic | version | uname | gname | devmajor | devminor | prefix |   |
//! ```
//!
//! Numbers are octal digits. What does not fit, or has no field, stands in front, in an entry of type `x` that has a record
//! for each: `LENGTH KEY=VALUE` and a line feed, where the length in decimal digits counts all of the record.

use anteros_core::{Rdev, Timestamp};

use super::acl;
use crate::Xattr;

/// Headers and data lie in blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;

/// Bytes of the fields for a name and for the target of a link.
const NAME_BYTES: usize = 100;
/// The highest owner, group and device number that a header holds: seven octal digits.
const NUMBER_MAX: u64 = 0o777_7777;
/// The highest size and time that a header holds: eleven octal digits.
const LARGE_MAX: u64 = 0o777_7777_7777;

/// Key of the records of extended attributes, as star, GNU tar and libarchive have it.
const XATTR_KEY: &[u8] = b"SCHILY.xattr.";
/// Names of entries that hold records begin with this. Nobody extracts them.
const RECORDS_NAME: &[u8] = b"PaxHeaders/";
/// Names of files with holes begin with this in their headers, for who does not know that form.
const SPARSE_NAME: &[u8] = b"GNUSparseFile.0/";

/// Types of entries, by the letter that stands for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    Regular = b'0',
    HardLink = b'1',
    Symlink = b'2',
    CharDevice = b'3',
    BlockDevice = b'4',
    Directory = b'5',
    Fifo = b'6',
    Records = b'x',
}

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub(super) kind: Type,
    pub(super) path: &'a [u8],
    /// The target of a link.
    pub(super) link: &'a [u8],
    pub(super) perm: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Bytes that follow.
    pub(super) size: u64,
    /// The size of a file with holes, of which a list and the segments follow.
    pub(super) sparse_size: Option<u64>,
    pub(super) mtime: Timestamp,
    pub(super) rdev: Rdev,
    pub(super) xattrs: &'a [Xattr],
}

impl Entry<'_> {
    /// The header, behind records if it needs some.
    pub(super) fn blocks(&self) -> Vec<u8> {
        let records = self.records();
        let mut blocks = Vec::new();
        if !records.is_empty() {
            blocks.extend(self.records_header(records.len()));
            blocks.extend(&records);
            blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        blocks.extend(self.header());
        blocks
    }

    fn records_header(&self, len: usize) -> [u8; BLOCK_BYTES] {
        let path = [RECORDS_NAME, last_name(self.path)].concat();
        let entry = Entry {
            kind: Type::Records,
            path: &path,
            link: &[],
            perm: 0o644,
            uid: 0,
            gid: 0,
            size: len as u64,
            sparse_size: None,
            mtime: Timestamp::default(),
            rdev: Rdev::default(),
            xattrs: &[],
        };
        entry.header()
    }

    /// The header alone; a number that does not fit is 0 there, and a name is cut.
    fn header(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let is_device = matches!(self.kind, Type::CharDevice | Type::BlockDevice);
        let rdev = if is_device {
            self.rdev
        } else {
            Rdev::default()
        };
        match self.sparse_size {
            Some(_) => text(
                &mut block[..NAME_BYTES],
                &[SPARSE_NAME, last_name(self.path)].concat(),
            ),
            None => text(&mut block[..NAME_BYTES], self.path),
        }
        octal(&mut block[100..108], u64::from(self.perm) & 0o7777);
        octal(&mut block[108..116], u64::from(self.uid));
        octal(&mut block[116..124], u64::from(self.gid));
        octal(&mut block[124..136], self.size);
        octal(
            &mut block[136..148],
            u64::try_from(self.mtime.secs).unwrap_or(0),
        );
        block[156] = self.kind as u8;
        text(&mut block[157..257], self.link);
        text(&mut block[257..265], b"ustar\x0000");
        octal(&mut block[329..337], rdev.major.into());
        octal(&mut block[337..345], rdev.minor.into());
        // The checksum is counted with spaces in its place.
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        octal(&mut block[148..155], sum);
        block
    }

    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let mut decimal = |key: &[u8], number: u64, max: u64| {
            if number > max {
                record(&mut records, key, number.to_string().as_bytes());
            }
        };
        decimal(b"uid", self.uid.into(), NUMBER_MAX);
        decimal(b"gid", self.gid.into(), NUMBER_MAX);
        decimal(b"size", self.size, LARGE_MAX);
        if let Some(size) = self.sparse_size {
            record(&mut records, b"GNU.sparse.major", b"1");
            record(&mut records, b"GNU.sparse.minor", b"0");
            record(&mut records, b"GNU.sparse.name", self.path);
            record(
                &mut records,
                b"GNU.sparse.realsize",
                size.to_string().as_bytes(),
            );
        } else if self.path.len() > NAME_BYTES {
            record(&mut records, b"path", self.path);
        }
        if self.link.len() > NAME_BYTES {
            record(&mut records, b"linkpath", self.link);
        }
        let fits = u64::try_from(self.mtime.secs).is_ok_and(|secs| secs <= LARGE_MAX);
        if !fits || self.mtime.nanos > 0 {
            record(&mut records, b"mtime", seconds(self.mtime).as_bytes());
        }
        for xattr in self.xattrs {
            let key = [XATTR_KEY, &escaped(&xattr.name)].concat();
            record(&mut records, &key, &xattr.value);
            // Some tools leave out attributes of the system, and look for lists in their own records.
            if let (Some(key), Some(list)) = (acl::key(&xattr.name), acl::text(&xattr.value)) {
                record(&mut records, key, list.as_bytes());
            }
        }
        records
    }
}

/// The last name of a path, without a slash behind it.
fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Fills a field with text, as far as it goes.
fn text(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Fills a field with octal digits, and a NUL behind; with 0 if there are too many.
fn octal(field: &mut [u8], number: u64) {
    let width = field.len() - 1;
    let fits = number >> (3 * width) == 0;
    let digits = format!("{:0width$o}", if fits { number } else { 0 });
    field[..width].copy_from_slice(digits.as_bytes());
    field[width] = 0;
}

/// Adds a record, which counts the digits of its own length.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // A space, an equals sign and a line feed.
    let rest = key.len() + value.len() + 3;
    let digits = |number: usize| number.to_string().len();
    let mut len = rest + digits(rest);
    len = rest + digits(len);
    records.extend(len.to_string().as_bytes());
    records.extend([b" ", key, b"=", value, b"\n"].concat());
}

/// A time in decimal seconds, without zeros at its end.
fn seconds(time: Timestamp) -> String {
    let nanos = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let sign = if nanos < 0 { "-" } else { "" };
    let (secs, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let text = format!("{sign}{secs}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The name of an attribute in a key, which ends at the first equals sign: GNU tar escapes it so.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in name {
        match byte {
            b'%' => escaped.extend(b"%25"),
            b'=' => escaped.extend(b"%3D"),
            byte => escaped.push(byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Entry<'_> = Entry {
        kind: Type::Regular,
        path: b"etc/passwd",
        link: b"",
        perm: 0o640,
        uid: 0,
        gid: 42,
        size: 1234,
        sparse_size: None,
        mtime: Timestamp {
            secs: 1_700_000_000,
            nanos: 0,
        },
        rdev: Rdev { major: 0, minor: 0 },
        xattrs: &[],
    };

    #[test]
    fn what_fits_takes_one_block() {
        let block = PLAIN.blocks();
        assert_eq!(block.len(), BLOCK_BYTES);
        assert_eq!(&block[..11], b"etc/passwd\0");
        assert_eq!(
            &block[100..148],
            b"0000640\x000000000\x000000052\x0000000002322\x0014524770400\0"
        );
        assert_eq!(&block[156..158], b"0\0");
        assert_eq!(&block[257..265], b"ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        let own: u32 = block[148..156].iter().map(|&byte| u32::from(byte)).sum();
        let told = std::str::from_utf8(&block[148..154]).unwrap();
        assert_eq!(u32::from_str_radix(told, 8).unwrap(), sum - own + 8 * 32);
        assert_eq!(&block[154..156], b"\0 ");
    }

    /// The records of an entry.
    fn records(entry: &Entry<'_>) -> String {
        let blocks = entry.blocks();
        let text = match blocks.len() {
            BLOCK_BYTES => &[],
            len => {
                assert_eq!((blocks[156], len % BLOCK_BYTES), (b'x', 0));
                &blocks[BLOCK_BYTES..len - BLOCK_BYTES]
            }
        };
        let text = String::from_utf8(text.to_vec()).unwrap();
        text.trim_end_matches('\0').to_owned()
    }

    #[test]
    fn what_does_not_fit_has_a_record() {
        assert_eq!(records(&PLAIN), "");
        let path = "d/".repeat(50) + "x";
        let entry = Entry {
            path: path.as_bytes(),
            link: path.as_bytes(),
            uid: 0o1000_0000,
            gid: 0o777_7777,
            size: 8 << 30,
            ..PLAIN
        };
        let expected =
            format!("15 uid=2097152\n19 size=8589934592\n111 path={path}\n115 linkpath={path}\n");
        assert_eq!(records(&entry), expected);
        let fits = Entry {
            path: &path.as_bytes()[1..],
            size: (8 << 30) - 1,
            ..PLAIN
        };
        assert_eq!(records(&fits), "");
        let block = fits.blocks();
        assert_eq!(&block[..100], &path.as_bytes()[1..]);
        assert_eq!(&block[124..136], b"77777777777\0");
    }

    #[test]
    fn times_are_exact() {
        for (secs, nanos, expected) in [
            (5, 500_000_000, "13 mtime=5.5\n"),
            (0, 1, "21 mtime=0.000000001\n"),
            (-1, 0, "12 mtime=-1\n"),
            (-2, 750_000_000, "15 mtime=-1.25\n"),
            (-1, 750_000_000, "15 mtime=-0.25\n"),
            (8 << 30, 0, "20 mtime=8589934592\n"),
        ] {
            let mtime = Timestamp { secs, nanos };
            assert_eq!(records(&Entry { mtime, ..PLAIN }), expected);
        }
    }

    #[test]
    fn attributes_have_records_of_their_own() {
        let xattrs = [("user.a", &b"1\n2"[..]), ("user.b=%", b"")];
        let xattrs = xattrs.map(|(name, value)| Xattr {
            name: name.into(),
            value: value.into(),
        });
        let entry = Entry {
            xattrs: &xattrs,
            ..PLAIN
        };
        let expected = "27 SCHILY.xattr.user.a=1\n2\n30 SCHILY.xattr.user.b%3D%25=\n";
        assert_eq!(records(&entry), expected);
    }

    /// A record of 9, 99, … bytes takes one digit more than it seems to.
    #[test]
    fn a_record_counts_its_own_length() {
        for len in 0..1200 {
            let mut records = Vec::new();
            record(&mut records, b"k", &vec![b'v'; len]);
            let digits = records.split(|&byte| byte == b' ').next().unwrap();
            let told: usize = std::str::from_utf8(digits).unwrap().parse().unwrap();
            assert_eq!(told, records.len());
        }
    }
}
