//! The options of `-o`, as mount(8) takes them.

use anteros_fuse::{Attributes, MountOptions};

/// An option of any mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommonOption {
    ReadOnly(bool),
    Suid(bool),
    Dev(bool),
    Exec(bool),
    Atime(bool),
    AllowOther,
    DefaultPermissions,
    /// An option that has no effect here, or that is for other programs.
    Ignored,
}

/// All of them; the last of those that say the contrary counts.
const COMMON_OPTIONS: [(&str, CommonOption); 18] = [
    ("ro", CommonOption::ReadOnly(true)),
    ("rw", CommonOption::ReadOnly(false)),
    ("nosuid", CommonOption::Suid(false)),
    ("suid", CommonOption::Suid(true)),
    ("nodev", CommonOption::Dev(false)),
    ("dev", CommonOption::Dev(true)),
    ("noexec", CommonOption::Exec(false)),
    ("exec", CommonOption::Exec(true)),
    ("noatime", CommonOption::Atime(false)),
    ("atime", CommonOption::Atime(true)),
    ("allow_other", CommonOption::AllowOther),
    ("default_permissions", CommonOption::DefaultPermissions),
    ("relatime", CommonOption::Ignored),
    ("defaults", CommonOption::Ignored),
    ("async", CommonOption::Ignored),
    ("auto", CommonOption::Ignored),
    ("noauto", CommonOption::Ignored),
    ("_netdev", CommonOption::Ignored),
];

impl CommonOption {
    /// Returns the option of a name.
    pub fn named(name: &str) -> Option<Self> {
        let found = COMMON_OPTIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, option)| *option)
    }
}

/// Reads an option of a mount that has only the common ones.
fn common_option(name: &str) -> Result<CommonOption, String> {
    CommonOption::named(name).ok_or_else(|| unknown(name, &[]))
}

/// Says that there is no such option, and lists those that there are.
pub fn unknown(name: &str, others: &[&str]) -> String {
    let known = COMMON_OPTIONS.iter().map(|(known, _)| *known);
    let known: Vec<&str> = others.iter().copied().chain(known).collect();
    format!("there is no option {name}; there are {}", known.join(", "))
}

/// Describes the options of a mount that has only the common ones.
#[derive(Debug, clap::Args)]
pub struct OptionArgs {
    /// As mount(8) takes it: ro, nosuid (the default) or suid, nodev (the default) or dev, noexec, noatime, allow_other, …
    #[arg(short, value_name = "OPTION,...", value_delimiter = ',', value_parser = common_option)]
    options: Vec<CommonOption>,
}

impl OptionArgs {
    /// Returns what is asked for in all.
    pub fn sum(&self) -> CommonOptions {
        CommonOptions::of(self.options.iter().copied())
    }
}

/// The sum of all options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommonOptions {
    /// `ro` or `rw`; `None` without either.
    pub read_only: Option<bool>,
    suid: bool,
    dev: bool,
    noexec: bool,
    noatime: bool,
    /// Other users have access.
    pub allow_other: bool,
    default_permissions: bool,
}

impl CommonOptions {
    /// Returns those of some options.
    pub fn of(given: impl IntoIterator<Item = CommonOption>) -> Self {
        let mut options = Self::default();
        for option in given {
            match option {
                CommonOption::ReadOnly(yes) => options.read_only = Some(yes),
                CommonOption::Suid(yes) => options.suid = yes,
                CommonOption::Dev(yes) => options.dev = yes,
                CommonOption::Exec(yes) => options.noexec = !yes,
                CommonOption::Atime(yes) => options.noatime = !yes,
                CommonOption::AllowOther => options.allow_other = true,
                CommonOption::DefaultPermissions => options.default_permissions = true,
                CommonOption::Ignored => {}
            }
        }
        options
    }

    /// Tells whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Returns what the mount is to be like. Without a option, set-id bits and devices count for nothing.
    pub fn attributes(&self) -> Attributes {
        Attributes {
            read_only: self.is_read_only(),
            suid: self.suid,
            dev: self.dev,
            noexec: self.noexec,
            noatime: self.noatime,
        }
    }

    /// Adds these options to those of a mount.
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
