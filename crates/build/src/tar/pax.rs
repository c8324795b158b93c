//! PAX records, each of which tells a property of the next member, or of all that follow.

use anteros_core::Timestamp;

use super::fault::Fault;

/// The properties that records tell. Of a property told twice the last record counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<Timestamp>,
    /// Attributes with their full names; the last one of a name counts.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// An access list as text.
    pub acl: Option<Vec<u8>>,
    /// The one that files in a directory get, as text.
    pub default_acl: Option<Vec<u8>>,
    pub sparse: SparseRecords,
}

/// Properties of a sparse file, as GNU tar tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SparseRecords {
    /// The version of the format, 1 if the map lies in front of the content.
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub name: Option<Vec<u8>>,
    /// Bytes of the file with its holes.
    pub size: Option<u64>,
    /// Starts and lengths of parts that hold data, one after the other.
    pub map: Vec<u64>,
}

impl SparseRecords {
    pub fn is_told(&self) -> bool {
        self.major.is_some() || self.size.is_some() || !self.map.is_empty()
    }
}

impl Records {
    /// Records of attributes alone.
    pub fn of_attributes(xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self {
            xattrs,
            ..Self::default()
        }
    }

    /// Adds the records of a header.
    pub fn add(&mut self, mut data: &[u8]) -> Result<(), Fault> {
        // What an earlier header said of holes does not go on.
        self.sparse = SparseRecords::default();
        // Some programs fill up with NULs.
        while !data.is_empty() && data[0] != 0 {
            let (record, rest) = split_record(data)?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let equals = equals.ok_or_else(|| no_record(record))?;
            self.record(&record[..equals], &record[equals + 1..])
                .map_err(|reason| {
                    let key = record[..equals].escape_ascii();
                    Fault::Broken(format!("the PAX record {key}: {reason}"))
                })?;
            data = rest;
        }
        Ok(())
    }

    /// Returns whether there are attributes or access lists.
    pub fn has_attributes(&self) -> bool {
        !self.xattrs.is_empty() || self.acl.is_some() || self.default_acl.is_some()
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        // A property without a value is as the header says.
        let told = (!value.is_empty()).then_some(value);
        match key {
            b"path" => self.path = text(told)?,
            b"linkpath" => self.link = text(told)?,
            b"size" => self.size = told.map(number).transpose()?,
            b"uid" => self.uid = told.map(id).transpose()?,
            b"gid" => self.gid = told.map(id).transpose()?,
            b"mtime" => self.mtime = told.map(time).transpose()?,
            b"SCHILY.acl.access" => self.acl = text(told)?,
            b"SCHILY.acl.default" => self.default_acl = text(told)?,
            // EROFS has no place for it, which is told under this name.
            b"SCHILY.acl.ace" => self.xattr(key.to_vec(), value.to_vec())?,
            b"SCHILY.realsize" => {
                return Err(
                    "sparse files of star are not supported; use its option -force-hole \
                            or GNU tar"
                        .into(),
                );
            }
            b"GNU.volume.offset" => {
                return Err(
                    "the rest of a member that begins in another volume; join the volumes first"
                        .into(),
                );
            }
            b"RHT.security.selinux" => {
                let value = [value, b"\0"].concat(); // as the kernel keeps it
                self.xattr(b"security.selinux".to_vec(), value)?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(unescaped(name), value.to_vec())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.xattr(url_decoded(name)?, base64_decoded(value)?)?;
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.record(key, value)?;
                }
            }
        }
        Ok(())
    }

    fn xattr(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<(), String> {
        if name.is_empty() || name.contains(&0) {
            return Err("this is no name of an attribute".into());
        }
        self.xattrs.push((name, value));
        Ok(())
    }
}

impl SparseRecords {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match key {
            b"major" => self.major = Some(number(value)?),
            b"minor" => self.minor = Some(number(value)?),
            b"name" => self.name = text(Some(value))?,
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"offset" | b"numbytes" => self.map.push(number(value)?),
            b"map" => {
                let numbers = value.split(|byte| *byte == b',');
                let numbers = numbers.filter(|text| !text.is_empty());
                self.map = numbers.map(number).collect::<Result<_, _>>()?;
            }
            _ => {} // numblocks, which the map itself tells
        }
        Ok(())
    }
}

/// Splits off a record, `LENGTH KEY=VALUE\n`, and answers `KEY=VALUE` and what is behind it.
fn split_record(data: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let space = data.iter().take(20).position(|byte| *byte == b' ');
    let space = space.ok_or_else(|| no_record(data))?;
    let length = number(&data[..space]).map_err(|_| no_record(data))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length <= space + 1 || length > data.len() || data[length - 1] != b'\n' {
        return Err(no_record(data));
    }
    Ok((&data[space + 1..length - 1], &data[length..]))
}

fn no_record(data: &[u8]) -> Fault {
    let start = data[..data.len().min(24)].escape_ascii();
    Fault::Broken(format!("`{start}` begins no PAX record"))
}

fn text(value: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
    match value {
        Some(value) if value.contains(&0) => Err("there is a NUL in it".into()),
        value => Ok(value.map(<[u8]>::to_vec)),
    }
}

/// Reads a decimal number that is not negative, nor more than the kernel has for sizes.
pub(crate) fn number(text: &[u8]) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_number);
    let number = number.and_then(|text| text.parse::<i64>().ok());
    number.map(|number| number as u64).ok_or_else(|| {
        let text = text[..text.len().min(40)].escape_ascii();
        format!("`{text}` is no number from 0 to 2^63 - 1")
    })
}

fn id(text: &[u8]) -> Result<u32, String> {
    let found = number(text)?;
    u32::try_from(found).map_err(|_| format!("{found} is beyond 32 bits"))
}

/// Reads seconds with a fraction; digits behind the ninth are dropped, so times get earlier.
fn time(text: &[u8]) -> Result<Timestamp, String> {
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut parts = digits.splitn(2, |byte| *byte == b'.');
    let secs = number(parts.next().unwrap_or_default())? as i64;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(format!("`{}` is no time", text.escape_ascii()));
    }
    let digit = |at| fraction.get(at).map_or(0, |digit| u32::from(digit - b'0'));
    let nanos = (0..9).fold(0, |sum, at| sum * 10 + digit(at));
    let is_rounded = fraction.iter().skip(9).any(|digit| *digit != b'0');
    Ok(match is_negative {
        false => Timestamp { secs, nanos },
        true => match nanos + u32::from(is_rounded) {
            0 => Timestamp {
                secs: -secs,
                nanos: 0,
            },
            nanos => Timestamp {
                secs: -secs - 1,
                nanos: 1_000_000_000 - nanos,
            },
        },
    })
}

/// Decodes the two escapes that GNU tar has in names of attributes.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match rest {
            [b'%', b'3', b'D', behind @ ..] => (b'=', behind),
            [b'%', b'2', b'5', behind @ ..] => (b'%', behind),
            _ => (first, behind),
        };
        decoded.push(byte);
        rest = behind;
    }
    decoded
}

fn url_decoded(name: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || (*bytes.next()? as char).to_digit(16);
        let code = digit().zip(digit());
        let (high, low) = code.ok_or("there is no code of a byte behind `%`")?;
        decoded.push((high << 4 | low) as u8);
    }
    Ok(decoded)
}

/// Decodes base64, with the padding at its end or without.
pub(crate) fn base64_decoded(text: &[u8]) -> Result<Vec<u8>, String> {
    let end = text.iter().position(|byte| *byte == b'=');
    let text = &text[..end.unwrap_or(text.len())];
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err("its value is no base64".into()),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(data: &[u8]) -> Result<Records, String> {
        let mut records = Records::default();
        records.add(data).map_err(|fault| format!("{fault:?}"))?;
        Ok(records)
    }

    #[test]
    fn records_tell_properties() {
        let data = b"12 path=a/b\n30 mtime=1350244992.023960108\n16 SCHILY.foo=1\n7 uid=\n";
        let records = parse(data).unwrap();
        assert_eq!(records.path.unwrap(), b"a/b");
        let mtime = records.mtime.unwrap();
        assert_eq!((mtime.secs, mtime.nanos), (1_350_244_992, 23_960_108));
        assert_eq!(records.uid, None);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in [
            &b"x"[..],
            b"5 a=b\n",
            b"7 a=b\n",
            b"6 a=bc\n",
            b"0 a=b\n",
            b"2 \n",
            b"5 ab\n",
            b"18446744073709551616 a=b\n",
            b"9 uid=-1\n",
            b"11 size=0x1\n",
            b"12 path=\0aaa\n",
            b"14 mtime=1e400\n",
            b"18 GNU.sparse.map=\n",
        ] {
            assert!(parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn times_get_earlier_when_they_are_cut() {
        for (text, secs, nanos) in [
            ("7", 7, 0),
            ("7.5", 7, 500_000_000),
            ("7.0000000019", 7, 1),
            ("-1.5", -2, 500_000_000),
            ("-1", -1, 0),
            ("-0.0000000001", -1, 999_999_999),
        ] {
            assert_eq!(
                time(text.as_bytes()),
                Ok(Timestamp { secs, nanos }),
                "{text}"
            );
        }
    }

    #[test]
    fn attributes_of_both_kinds() {
        let data = b"29 SCHILY.xattr.user.a%3Db=\0\n39 LIBARCHIVE.xattr.user.%61c=AAECgA==\n";
        let found = parse(data).unwrap().xattrs;
        let expected = [
            (b"user.a=b".to_vec(), vec![0]),
            (b"user.ac".to_vec(), vec![0, 1, 2, 0x80]),
        ];
        assert_eq!(found, expected);
    }
}
