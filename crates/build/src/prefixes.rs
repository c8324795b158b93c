//! Long prefixes of attribute names: written once for the image, and in each attribute by their number.

use anteros_format::xattr::{LONG_PREFIX, PREFIXES, split_name};

use crate::{Error, Options};

/// Prefixes of an image at the most: the number has 7 bits.
const COUNT_MAX: usize = 128;
/// Bytes of a prefix behind the short one at the most.
const INFIX_BYTES_MAX: usize = 255;

/// The long prefixes of an image.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// In the order of their numbers.
    all: Vec<Prefix>,
    /// The number of the one that is the whole name of the attributes with digests.
    digest: Option<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Prefix {
    /// The short prefix it extends; 0 if none, which hides attributes from users.
    base: u8,
    /// The rest of it.
    infix: Vec<u8>,
}

impl Prefixes {
    /// Those that were asked for.
    ///
    /// # Errors
    ///
    /// If one is impossible, or there are too many.
    pub fn of(options: &Options) -> Result<Self, Error> {
        let names = options.xattr_prefixes.iter();
        let all = names.map(|name| Prefix::new(name));
        let mut prefixes = Self {
            all: all.collect::<Result<_, _>>()?,
            digest: None,
        };
        if let Some(name) = &options.digest_xattr {
            prefixes.add_digest(Prefix::of_digest(name)?);
        }
        match prefixes.count() {
            ..=COUNT_MAX => Ok(prefixes),
            count => Err(Error::Option(format!(
                "{count} prefixes of attributes; {COUNT_MAX} are the most"
            ))),
        }
    }

    /// Adds the name of attributes with digests, unless it is a prefix already.
    fn add_digest(&mut self, name: Prefix) {
        let known = self.all.iter().position(|prefix| *prefix == name);
        let number = known.unwrap_or(self.all.len());
        if known.is_none() {
            self.all.push(name);
        }
        self.digest = Some(number as u8); // at most 128, or it is refused
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the prefix that is the name of attributes with digests.
    pub const fn digest(&self) -> Option<u8> {
        self.digest
    }

    fn is_digest(&self, base: u8, rest: &[u8]) -> Option<u8> {
        let number = self.digest?;
        let name = &self.all[usize::from(number)];
        (name.base == base && name.infix == rest).then_some(number)
    }

    /// Splits a full name into the number of its longest prefix, as attributes have it, and the rest.
    /// Of a prefix that is all of a name, nothing would be left; that is so of digests alone.
    pub fn split<'a>(&self, name: &'a [u8]) -> (u8, &'a [u8]) {
        let (base, rest) = split_stored(name);
        if let Some(number) = self.is_digest(base, rest) {
            return (LONG_PREFIX | number, b"");
        }
        let fits = |prefix: &Prefix| {
            prefix.base == base
                && rest.len() > prefix.infix.len()
                && rest.starts_with(&prefix.infix)
        };
        let fitting = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, prefix)| fits(prefix));
        match fitting.max_by_key(|(_, prefix)| prefix.infix.len()) {
            Some((number, prefix)) => (LONG_PREFIX | number as u8, &rest[prefix.infix.len()..]),
            None => (base, rest),
        }
    }

    /// The table of them.
    pub fn table(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for Prefix { base, infix } in &self.all {
            table.extend_from_slice(&(infix.len() as u16 + 1).to_le_bytes()); // at most 256
            table.push(*base);
            table.extend_from_slice(infix);
            table.resize(table.len().next_multiple_of(4), 0);
        }
        table
    }
}

/// Splits a name that is stored into the index of its short prefix and the rest. Only that of digests may have none.
pub(crate) fn split_stored(name: &[u8]) -> (u8, &[u8]) {
    split_name(name).unwrap_or((0, name))
}

impl Prefix {
    /// The name of attributes with digests.
    fn of_digest(name: &[u8]) -> Result<Self, Error> {
        let refuse = |why: &str| {
            let name = name.escape_ascii();
            Err(Error::Option(format!(
                "the name `{name}` of attributes with digests {why}"
            )))
        };
        let is_prefix = PREFIXES.iter().any(|(_, prefix)| *prefix == name);
        match split_stored(name) {
            _ if name.contains(&0) => refuse("has a NUL"),
            _ if is_prefix => refuse("is no more than a prefix"),
            (_, []) => refuse("is empty"),
            (_, infix) if infix.len() > INFIX_BYTES_MAX => refuse("is longer than 255 bytes"),
            (base, infix) => Ok(Self {
                base,
                infix: infix.to_vec(),
            }),
        }
    }

    fn new(name: &[u8]) -> Result<Self, Error> {
        let refuse = |why: &str| {
            let name = name.escape_ascii();
            Err(Error::Option(format!(
                "the prefix `{name}` of attributes {why}"
            )))
        };
        match split_name(name) {
            _ if name.contains(&0) => refuse("has a NUL"),
            None => refuse("extends none of `user.`, `trusted.`, `security.` and `lustre.`"),
            Some((_, [])) => refuse("is all of a name"),
            Some((_, infix)) if infix.len() > INFIX_BYTES_MAX => refuse("is longer than 255 bytes"),
            Some((base, infix)) => Ok(Self {
                base,
                infix: infix.to_vec(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use anteros_format::xattr::LongPrefix;

    use super::*;

    fn prefixes(names: &[&str]) -> Result<Prefixes, Error> {
        let options = Options {
            xattr_prefixes: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
            ..Options::default()
        };
        Prefixes::of(&options)
    }

    #[test]
    fn the_longest_prefix_counts() {
        let prefixes = prefixes(&["trusted.over", "trusted.overlay.", "user.over"]).unwrap();
        assert_eq!(
            prefixes.split(b"trusted.overlay.opaque"),
            (0x81, &b"opaque"[..])
        );
        assert_eq!(prefixes.split(b"trusted.overlay."), (0x80, &b"lay."[..]));
        assert_eq!(prefixes.split(b"trusted.over"), (4, &b"over"[..]));
        assert_eq!(prefixes.split(b"user.overlay"), (0x82, &b"lay"[..]));
        assert_eq!(prefixes.split(b"security.over1"), (6, &b"over1"[..]));
    }

    #[test]
    fn the_table_reads_as_it_was_written() {
        let long = format!("user.{}", "x".repeat(255));
        let prefixes = prefixes(&["user.a", &long, "security.capa"]).unwrap();
        let (table, mut at) = (prefixes.table(), 0);
        for (index, prefix) in prefixes.all.iter().enumerate() {
            let size = usize::from(u16::from_le_bytes([table[at], table[at + 1]]));
            let read = LongPrefix::parse(index as u8, &table[at + 2..][..size]).unwrap();
            assert_eq!((read.base, &read.infix), (prefix.base, &prefix.infix));
            at = (at + 2 + size).next_multiple_of(4);
        }
        assert_eq!(at, table.len());
    }

    #[test]
    fn impossible_prefixes_are_refused() {
        let many: Vec<String> = (0..129).map(|n| format!("user.{n}.")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = format!("user.{}", "x".repeat(256));
        for (names, why) in [
            (&["overlay."][..], "extends none"),
            (&["user."], "extends none"),
            (&["system.posix_acl_access"], "all of a name"),
            (&[long.as_str()], "longer than 255"),
            (&many, "129 prefixes"),
        ] {
            let error = prefixes(names).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(prefixes(&many[1..]).is_ok());
    }
}
