//! Lines of mtree(5).
//!
//! ```text
//! /set uid=0 gid=0                    holds for all that follow
//! .          type=dir mode=0755       the root, which is entered
//!     bin    type=dir                 a directory of it, which is entered
//!         sh type=file mode=0755
//!     ..                              back to the root
//! ./etc/motd type=file                a name with a slash is a path from the root
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use anteros_core::Timestamp;

use super::entry::{
    Content, Entry, FileEntry, Sum, SumKind, What, Xattrs, id, number, path, short, sum, time,
};
use super::escape::unvis;
use crate::tar::acl::Accounts;
use crate::tar::members::Kind;
use crate::tar::pax::base64_decoded;

/// Keywords that make no difference to an image, or are looked at together with others.
const SILENT: [&str; 5] = ["nlink", "ignore", "nochange", "inode", "resdevice"];
/// Keywords of sums that are not compared.
const UNCOMPARED: [&str; 10] = [
    "cksum",
    "md5",
    "md5digest",
    "sha1",
    "sha1digest",
    "rmd160",
    "rmd160digest",
    "ripemd160digest",
    "sha384",
    "sha384digest",
];
/// Most keywords that are warned of; whoever makes them up says nothing new.
const WARNED_MAX: usize = 100;

/// Most bytes of keywords that hold for all that follow: each line costs as much.
const DEFAULT_BYTES_MAX: usize = 16 << 10;

/// Keywords with their values, encoded.
type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads lines, which may depend on those before them.
#[derive(Default)]
pub(super) struct Mtree {
    defaults: Keys,
    /// The directory that was entered last, below the root.
    directory: Vec<Vec<u8>>,
    is_root_entered: bool,
    accounts: Accounts,
    /// Names of files that have several, by device and inode.
    linked: HashMap<(Vec<u8>, u64), Vec<u8>>,
    warned: HashSet<Vec<u8>>,
    pub warnings: Vec<String>,
}

impl Mtree {
    /// Reads a line; `None` if it tells of no file.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Entry>, String> {
        let words = line.split(u8::is_ascii_whitespace);
        let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        if is_path_last(&words) {
            words.rotate_right(1);
        }
        let mut words = words.into_iter();
        match words.next() {
            None => Ok(None),
            Some(word) if word.starts_with(b"#") => Ok(None),
            Some(b"/set") => {
                self.defaults.extend(keys(words));
                self.check_defaults().map(|()| None)
            }
            Some(b"/unset") => {
                self.unset(words);
                Ok(None)
            }
            Some(b"..") => self.leave().map(|()| None),
            Some(word) if word.starts_with(b"/") => {
                let word = short(word);
                Err(format!(
                    "`{word}` is absolute, and no command that is known"
                ))
            }
            Some(name) => {
                let mut told = self.defaults.clone();
                told.extend(keys(words));
                self.entry(name, &told).map(Some)
            }
        }
    }

    fn check_defaults(&self) -> Result<(), String> {
        let told = self.defaults.iter();
        let bytes: usize = told.map(|(key, value)| key.len() + value.len()).sum();
        match bytes {
            ..=DEFAULT_BYTES_MAX => Ok(()),
            _ => Err(format!(
                "`/set` with {bytes} bytes in all; {DEFAULT_BYTES_MAX} are the most"
            )),
        }
    }

    fn unset<'a>(&mut self, words: impl Iterator<Item = &'a [u8]>) {
        for word in words {
            match word {
                b"all" => self.defaults.clear(),
                word => _ = self.defaults.remove(word),
            }
        }
    }

    fn leave(&mut self) -> Result<(), String> {
        if self.directory.pop().is_some() {
            return Ok(());
        }
        match std::mem::take(&mut self.is_root_entered) {
            true => Ok(()),
            false => Err("`..` leads out of the root".into()),
        }
    }

    fn entry(&mut self, name: &[u8], told: &Keys) -> Result<Entry, String> {
        let what = text(told, b"type")?.ok_or_else(|| {
            let name = short(name);
            format!("`{name}` has no type")
        })?;
        let path = self.path(name, &what)?;
        let what = match what[..] {
            [b'd', b'i', b'r'] => What::Other(Kind::Directory),
            _ => match self.known(&path, told)? {
                Some(first) => What::HardLink(first),
                None => kind(&path, &what, told)?,
            },
        };
        let is_directory = matches!(what, What::Other(Kind::Directory));
        let usual = if is_directory { 0o755 } else { 0o644 };
        let mode = text(told, b"mode")?.map(|text| number("mode", &text, 8));
        let mode = mode.transpose()?.unwrap_or(usual);
        if mode > 0o177_777 {
            return Err(format!("the mode is {mode:o}, of more than 16 bits"));
        }
        self.warn_of(told);
        Ok(Entry {
            path,
            what,
            perm: (mode & 0o7777) as u16,
            uid: self.owner(told, "uid", "uname")?,
            gid: self.owner(told, "gid", "gname")?,
            mtime: mtime(told)?,
            xattrs: xattrs(told)?,
        })
    }

    /// The path that a name means; a directory in the one that was entered last is entered.
    fn path(&mut self, name: &[u8], what: &[u8]) -> Result<Vec<u8>, String> {
        let decoded = unvis(name)?;
        if decoded.contains(&b'/') {
            return path(&decoded);
        }
        if decoded == b"." {
            if !self.directory.is_empty() {
                return Err("`.` within a directory; it stands for the root".into());
            }
            self.is_root_entered = true;
            return Ok(Vec::new());
        }
        let decoded = path(&decoded)?;
        let mut names = self.directory.clone();
        names.push(decoded.clone());
        let names = path(&names.join(&b'/'))?;
        if what == b"dir" {
            self.directory.push(decoded);
        }
        Ok(names)
    }

    /// Returns the first name of a file that was told of under another one.
    fn known(&mut self, path: &[u8], told: &Keys) -> Result<Option<Vec<u8>>, String> {
        let links = text(told, b"nlink")?.map(|text| number("number of links", &text, 10));
        let inode = text(told, b"inode")?.map(|text| number("inode", &text, 10));
        let (Some(2..), Some(inode)) = (links.transpose()?, inode.transpose()?) else {
            return Ok(None);
        };
        let device = text(told, b"resdevice")?.unwrap_or_default();
        let key = (device, inode);
        if let Some(first) = self.linked.get(&key) {
            return Ok(Some(first.clone()));
        }
        self.linked.insert(key, path.to_vec());
        Ok(None)
    }

    /// Returns an owner or a group, by its number or else by its name.
    fn owner(&self, told: &Keys, by_number: &str, by_name: &str) -> Result<u32, String> {
        if let Some(number) = text(told, by_number.as_bytes())? {
            return id(by_number, &number);
        }
        let Some(name) = text(told, by_name.as_bytes())? else {
            return Ok(0);
        };
        let found = std::str::from_utf8(&name).ok();
        let found = found.and_then(|name| match by_name {
            "uname" => self.accounts.user(name),
            _ => self.accounts.group(name),
        });
        found.ok_or_else(|| {
            let name = short(&name);
            format!("the {by_name} `{name}` is unknown on this machine; tell the {by_number}")
        })
    }

    /// Warns of what is left out, once for each keyword.
    fn warn_of(&mut self, told: &Keys) {
        for (key, value) in told {
            let name = String::from_utf8_lossy(key);
            let text = match &*name {
                _ if is_known(&name) => continue,
                "flags" if value == b"none" => continue,
                "flags" => "the flags of files have no place in an image".into(),
                _ if UNCOMPARED.contains(&&*name) => {
                    format!("sums of the kind `{name}` are not compared with files")
                }
                _ => format!("the keyword `{}` is unknown, and ignored", short(key)),
            };
            if self.warned.len() < WARNED_MAX && self.warned.insert(key.clone()) {
                self.warnings.push(text);
            }
        }
    }
}

/// Returns whether the path of an entry stands behind its keywords, as `mtree -D` writes them.
fn is_path_last(words: &[&[u8]]) -> bool {
    let [first, .., last] = words else {
        return false;
    };
    let equals = first.iter().position(|byte| *byte == b'=');
    let key = equals.and_then(|equals| std::str::from_utf8(&first[..equals]).ok());
    key.is_some_and(is_known) && (*last == b"." || last.starts_with(b"./"))
}

/// The kind of an entry, with what is particular to it.
fn kind(path: &[u8], what: &[u8], told: &Keys) -> Result<What, String> {
    Ok(match what {
        b"file" => What::File(file(path, told)?),
        b"dir" => What::Other(Kind::Directory),
        b"link" => {
            let target = text(told, b"link")?.ok_or("a symbolic link without `link`")?;
            What::Other(Kind::Symlink(target))
        }
        b"fifo" => What::Other(Kind::Fifo),
        b"socket" => What::Other(Kind::Socket),
        b"char" => {
            let (major, minor) = device(told)?;
            What::Other(Kind::CharDevice(major, minor))
        }
        b"block" => {
            let (major, minor) = device(told)?;
            What::Other(Kind::BlockDevice(major, minor))
        }
        other => return Err(format!("the type is `{}`, which is unknown", short(other))),
    })
}

/// Returns whether nothing of a keyword is left out.
fn is_known(name: &str) -> bool {
    let used = [
        "type", "mode", "uid", "gid", "uname", "gname", "size", "time", "tar_time", "link",
        "device", "content", "contents", "optional",
    ];
    used.contains(&name)
        || SILENT.contains(&name)
        || sum_kind(name).is_some()
        || xattr_name(name.as_bytes()).is_some()
}

/// Splits words into keywords and values.
fn keys<'a>(words: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    words.map(|word| {
        let equals = word.iter().position(|byte| *byte == b'=');
        let (key, value) = match equals {
            Some(equals) => (&word[..equals], &word[equals + 1..]),
            None => (word, &b""[..]),
        };
        (key.to_vec(), value.to_vec())
    })
}

/// Returns the value of a keyword, if it is told, decoded.
fn text(told: &Keys, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(value) = told.get(key) else {
        return Ok(None);
    };
    if value.is_empty() {
        return Err(format!("`{}` has no value", short(key)));
    }
    unvis(value).map(Some)
}

fn mtime(told: &Keys) -> Result<Timestamp, String> {
    let told = match text(told, b"time")? {
        Some(told) => Some(told),
        None => text(told, b"tar_time")?,
    };
    told.map_or_else(|| Ok(Timestamp::default()), |told| time(&told))
}

fn file(name: &[u8], told: &Keys) -> Result<FileEntry, String> {
    let size = text(told, b"size")?.map(|text| number("size", &text, 10));
    let place = match text(told, b"contents")? {
        Some(place) => Some(place),
        None => text(told, b"content")?,
    };
    if let Some(place) = place.as_ref().filter(|place| place.starts_with(b"/")) {
        return Err(format!(
            "the content `{}` is absolute; it lies below the directory of content",
            short(place)
        ));
    }
    Ok(FileEntry {
        size: size.transpose()?,
        content: Content::Path(path(place.as_deref().unwrap_or(name))?),
        sums: sums(told)?,
        is_optional: told.contains_key(&b"optional"[..]),
    })
}

fn sum_kind(key: &str) -> Option<SumKind> {
    Some(match key {
        "sha256" | "sha256digest" => SumKind::Sha256,
        "sha512" | "sha512digest" => SumKind::Sha512,
        _ => return None,
    })
}

fn sums(told: &Keys) -> Result<Vec<Sum>, String> {
    let kinds = told.iter().filter_map(|(key, value)| {
        let kind = sum_kind(std::str::from_utf8(key).ok()?)?;
        Some(sum(kind, value))
    });
    kinds.collect()
}

/// Returns the name of an attribute, encoded, that a keyword of go-mtree tells.
fn xattr_name(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(b"xattr.")
        .or_else(|| key.strip_prefix(b"xattrs."))
}

fn xattrs(told: &Keys) -> Result<Xattrs, String> {
    let found = told.iter().filter_map(|(key, value)| {
        let name = xattr_name(key)?;
        let decoded = base64_decoded(value);
        let decoded = decoded.map_err(|e| format!("the attribute `{}`: {e}", short(name)));
        Some(decoded.and_then(|value| Ok((unvis(name)?, value))))
    });
    found.collect()
}

/// Reads a device: its format and the two parts of its number, or the number as Linux packs it.
fn device(told: &Keys) -> Result<(u32, u32), String> {
    let text = text(told, b"device")?.ok_or("a device without `device`")?;
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b',').collect();
    let fail = || {
        let text = short(&text);
        format!("the device is `{text}`; one is like `linux,8,1`, or a number")
    };
    match parts[..] {
        [packed] => {
            let packed = c_number(packed).ok_or_else(fail)?;
            Ok((rustix::fs::major(packed), rustix::fs::minor(packed)))
        }
        [major, minor] | [_, major, minor] => {
            let part = |text| c_number(text).and_then(|part| u32::try_from(part).ok());
            part(major).zip(part(minor)).ok_or_else(fail)
        }
        _ => Err(fail()),
    }
}

/// Reads a number as C writes it.
fn c_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (digits, base) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let digits = Some(digits).filter(|digits| !digits.starts_with('+'));
    u64::from_str_radix(digits?, base).ok()
}
