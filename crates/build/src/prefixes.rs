//! Long prefixes of attribute names: written once for the image, and in each attribute by their number.

use anteros_format::xattr::{LONG_PREFIX, split_name};

use crate::{Error, Options};

/// Prefixes of an image at the most: the number has 7 bits.
const COUNT_MAX: usize = 128;
/// Bytes of a prefix behind the short one at the most.
const INFIX_BYTES_MAX: usize = 255;

/// The long prefixes of an image, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Prefixes(Vec<Prefix>);

#[derive(Debug)]
struct Prefix {
    /// The short prefix it extends.
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
        let names = &options.xattr_prefixes;
        if names.len() > COUNT_MAX {
            let count = names.len();
            return Err(Error::Option(format!(
                "{count} prefixes of attributes; {COUNT_MAX} are the most"
            )));
        }
        names
            .iter()
            .map(|name| Prefix::new(name))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Splits a full name into the number of its longest prefix, as attributes have it, and the rest.
    /// Of a prefix that is all of a name, nothing would be left.
    pub fn split<'a>(&self, name: &'a [u8]) -> (u8, &'a [u8]) {
        let (base, rest) = split_name(name).expect("others are not kept");
        let fits = |prefix: &Prefix| {
            prefix.base == base
                && rest.len() > prefix.infix.len()
                && rest.starts_with(&prefix.infix)
        };
        let fitting = self.0.iter().enumerate().filter(|(_, prefix)| fits(prefix));
        match fitting.max_by_key(|(_, prefix)| prefix.infix.len()) {
            Some((number, prefix)) => (LONG_PREFIX | number as u8, &rest[prefix.infix.len()..]),
            None => (base, rest),
        }
    }

    /// The table of them.
    pub fn table(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for Prefix { base, infix } in &self.0 {
            table.extend_from_slice(&(infix.len() as u16 + 1).to_le_bytes()); // at most 256
            table.push(*base);
            table.extend_from_slice(infix);
            table.resize(table.len().next_multiple_of(4), 0);
        }
        table
    }
}

impl Prefix {
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
        for (index, prefix) in prefixes.0.iter().enumerate() {
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
