//! The options of `-o`, as mount(8) takes them.

use anteros_fuse::{Attributes, MountOptions};

/// An option of any mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    ReadOnly(bool),
    Suid(bool),
    Dev(bool),
    Exec(bool),
    Atime(bool),
    AllowOther,
    DefaultPermissions,
    /// An option that changes nothing here, or is for others to heed.
    Nothing,
}

/// All of them; the last of those that say the contrary counts.
const WORDS: [(&str, Word); 18] = [
    ("ro", Word::ReadOnly(true)),
    ("rw", Word::ReadOnly(false)),
    ("nosuid", Word::Suid(false)),
    ("suid", Word::Suid(true)),
    ("nodev", Word::Dev(false)),
    ("dev", Word::Dev(true)),
    ("noexec", Word::Exec(false)),
    ("exec", Word::Exec(true)),
    ("noatime", Word::Atime(false)),
    ("atime", Word::Atime(true)),
    ("allow_other", Word::AllowOther),
    ("default_permissions", Word::DefaultPermissions),
    ("relatime", Word::Nothing),
    ("defaults", Word::Nothing),
    ("async", Word::Nothing),
    ("auto", Word::Nothing),
    ("noauto", Word::Nothing),
    ("_netdev", Word::Nothing),
];

impl Word {
    /// Returns the option of a name.
    pub fn named(name: &str) -> Option<Self> {
        let found = WORDS.iter().find(|(known, _)| *known == name);
        found.map(|(_, word)| *word)
    }
}

/// Reads an option of a mount that has no others.
pub fn word(name: &str) -> Result<Word, String> {
    Word::named(name).ok_or_else(|| unknown(name, &[]))
}

/// Says that there is no such option, and which there are.
pub fn unknown(name: &str, others: &[&str]) -> String {
    let known = WORDS.iter().map(|(known, _)| *known);
    let known: Vec<&str> = others.iter().copied().chain(known).collect();
    format!("there is no option {name}; there are {}", known.join(", "))
}

/// The sum of all options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Nothing is to be written, or something is; `None` if that was not said.
    pub read_only: Option<bool>,
    suid: bool,
    dev: bool,
    noexec: bool,
    noatime: bool,
    /// Others are let in.
    pub allow_other: bool,
    default_permissions: bool,
}

impl Wishes {
    /// Returns those of some options.
    pub fn of(words: impl IntoIterator<Item = Word>) -> Self {
        let mut wishes = Self::default();
        for word in words {
            match word {
                Word::ReadOnly(yes) => wishes.read_only = Some(yes),
                Word::Suid(yes) => wishes.suid = yes,
                Word::Dev(yes) => wishes.dev = yes,
                Word::Exec(yes) => wishes.noexec = !yes,
                Word::Atime(yes) => wishes.noatime = !yes,
                Word::AllowOther => wishes.allow_other = true,
                Word::DefaultPermissions => wishes.default_permissions = true,
                Word::Nothing => {}
            }
        }
        wishes
    }

    /// Tells whether nothing is to be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Returns what the mount is to be like. Without a word, set-id bits and devices count for nothing.
    pub fn attributes(&self) -> Attributes {
        Attributes {
            read_only: self.is_read_only(),
            suid: self.suid,
            dev: self.dev,
            noexec: self.noexec,
            noatime: self.noatime,
        }
    }

    /// Returns the options of a mount with these.
    pub fn apply(&self, options: MountOptions) -> MountOptions {
        MountOptions {
            allow_other: options.allow_other || self.allow_other,
            default_permissions: options.default_permissions
                || self.default_permissions
                || self.allow_other,
            attributes: Some(self.attributes()),
            ..options
        }
    }
}
