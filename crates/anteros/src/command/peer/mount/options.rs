//! The words of `-o`, as mount(8) hands them on.
//!
//! Words that every mount has become flags. Those that are for other programs are left out. All others are for whoever reads
//! the image, who refuses what it does not know.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::mount::MountFlags;

use super::super::arguments::number;
use super::super::erofsfuse::IGNORED as IGNORED_BY_FUSE;
use super::driver::not_supported;
use crate::failure::{Failure, Kind};
use crate::options::CommonOption;

/// Words that set a flag, or take it back. The last one counts.
const FLAGS: [(&str, MountFlags, bool); 16] = [
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("nosymfollow", MountFlags::NOSYMFOLLOW, true),
    ("symfollow", MountFlags::NOSYMFOLLOW, false),
];

/// Words for other programs, and of what an image has in any case. Those of users come with flags that mount(8) adds.
const IGNORED: [&str; 27] = [
    "ro",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "comment",
    "helper",
    "uhelper",
    "async",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "lazytime",
    "nolazytime",
];

/// Options of the kernel's EROFS that change nothing where FUSE serves the image.
const KERNEL_ONLY: [&str; 5] = ["user_xattr", "acl", "cache_strategy", "dax", "directio"];

/// Beginnings of options for images that lie elsewhere.
const REMOTE: [&str; 3] = ["oci", "s3.", "nbd"];

/// Options of a call, sorted.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Flags of the mount, which is read-only in any case.
    pub flags: MountFlags,
    /// The words that became flags.
    words: Vec<String>,
    /// Options for whoever reads the image.
    pub image: Vec<String>,
    /// Extra devices of the image, in order.
    pub devices: Vec<PathBuf>,
    /// The byte of the source at which the image begins.
    pub offset: u64,
    /// Options of a loop device, if one is asked for.
    loop_device: Vec<String>,
    /// Tells whether a mount that stands gets other flags.
    pub is_remount: bool,
}

impl Options {
    /// Sorts the words of all `-o`.
    ///
    /// # Errors
    ///
    /// If a number is none, or the image is said to lie elsewhere.
    pub fn parse(given: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            flags: MountFlags::RDONLY,
            words: Vec::new(),
            image: Vec::new(),
            devices: Vec::new(),
            offset: 0,
            loop_device: Vec::new(),
            is_remount: false,
        };
        for word in given.iter().flat_map(|given| words(given)) {
            options.add(&word)?;
        }
        Ok(options)
    }

    fn add(&mut self, word: &str) -> Result<(), Failure> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if let Some((_, flag, is_set)) = FLAGS.iter().find(|(known, ..)| *known == word) {
            self.flags.set(*flag, *is_set);
            self.words.push(word.into());
            return Ok(());
        }
        match name {
            "remount" => self.is_remount = true,
            "device" => self.devices.push(value.into()),
            "fsoffset" | "offset" => self.offset = offset(word, value)?,
            "loop" | "sizelimit" => self.loop_device.push(word.into()),
            _ if IGNORED.contains(&name) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ if REMOTE.iter().any(|remote| name.starts_with(remote)) => {
                let hint = "only images in files and on block devices are mounted";
                return Err(not_supported(&format!("option -o {name}")).hint(hint));
            }
            _ => self.image.push(word.into()),
        }
        Ok(())
    }

    /// Tells whether an option for the reader of the image is given.
    pub fn has(&self, wanted: &str) -> bool {
        let name = |option: &String| option.split('=').next() == Some(wanted);
        self.image.iter().any(name)
    }

    /// Tells whether a loop device is asked for.
    pub fn wants_loop(&self) -> bool {
        !self.loop_device.is_empty()
    }

    /// The options of the kernel's EROFS, but for `left_out`, with devices and offset as it calls them.
    pub fn for_kernel(&self, left_out: &[String]) -> Vec<String> {
        let image = self.image.iter().filter(|word| !left_out.contains(word));
        let mut words: Vec<String> = image.cloned().collect();
        words.extend(device_words(&self.devices));
        if self.offset > 0 {
            words.push(format!("fsoffset={}", self.offset));
        }
        words
    }

    /// Options for mount(8), which makes a loop device; `devices` are the block devices in place of extra ones.
    pub fn for_loop(&self, left_out: &[String], devices: &[PathBuf]) -> String {
        let mut words = vec!["ro".to_owned()];
        words.extend(self.words.iter().cloned());
        let image = self.image.iter().filter(|word| !left_out.contains(word));
        words.extend(image.cloned());
        words.extend(device_words(devices));
        let is_told = |word: &String| word.starts_with("loop");
        words.extend((!self.loop_device.iter().any(is_told)).then(|| "loop".into()));
        words.extend(self.loop_device.iter().cloned());
        if self.offset > 0 {
            words.push(format!("offset={}", self.offset));
        }
        words.join(",")
    }

    /// The arguments of `anteros mount` that say the same.
    ///
    /// # Errors
    ///
    /// If FUSE has no such option.
    pub fn for_fuse(&self) -> Result<Vec<OsString>, Failure> {
        let mut arguments = Vec::new();
        for word in self.words.iter().chain(&self.image) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_flag = FLAGS.iter().any(|(known, ..)| known == word);
            match name {
                "max_threads" => arguments.push(format!("--workers={value}").into()),
                _ if CommonOption::named(word).is_some() => {
                    arguments.extend(["-o".into(), word.into()]);
                }
                // Nothing writes times, so only links are left.
                _ if is_flag && name != "nosymfollow" => {}
                _ if IGNORED_BY_FUSE.contains(&name) || KERNEL_ONLY.contains(&name) => {}
                _ => return Err(not_supported(&format!("option -o {word} of FUSE"))),
            }
        }
        Ok(arguments)
    }
}

fn offset(word: &str, value: &str) -> Result<u64, Failure> {
    number(value).map_err(|error| Failure::new(Kind::Usage, format_args!("-o {word}: {error}")))
}

/// Cuts at commas, but for those between quotation marks. These stay, as the kernel wants them.
fn words(given: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in given.chars() {
        is_quoted ^= letter == '"';
        match letter {
            ',' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn device_words(devices: &[PathBuf]) -> impl Iterator<Item = String> + '_ {
    let word = |device: &PathBuf| format!("device={}", device.display());
    devices.iter().map(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &str) -> Options {
        Options::parse(&[given.to_owned()]).unwrap()
    }

    #[test]
    fn each_word_goes_to_whom_it_concerns() {
        let options =
            parse("rw,nosuid,nodev,suid,x-systemd.automount,user_xattr,loop,offset=0x1000");
        assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::NODEV);
        assert_eq!(options.for_kernel(&[]), ["user_xattr", "fsoffset=4096"]);
        let words = "ro,nosuid,nodev,suid,user_xattr,loop,offset=4096";
        assert_eq!(options.for_loop(&[], &options.devices), words);
        let left_out = ["user_xattr".to_owned()];
        assert_eq!(options.for_kernel(&left_out), ["fsoffset=4096"]);
    }

    #[test]
    fn devices_are_told_in_their_order() {
        let options = parse("device=b,,device=a,cache_strategy=readahead,sizelimit=9");
        let words = ["cache_strategy=readahead", "device=b", "device=a"];
        assert_eq!(options.for_kernel(&[]), words);
        let words = "ro,cache_strategy=readahead,device=b,device=a,loop,sizelimit=9";
        assert_eq!(options.for_loop(&[], &options.devices), words);
    }

    #[test]
    fn commas_between_quotation_marks_are_part_of_a_word() {
        assert_eq!(
            words("a,context=\"b:c0,c1\",,d"),
            ["a", "context=\"b:c0,c1\"", "d"]
        );
    }

    #[test]
    fn what_fuse_has_not_is_refused() {
        let told = parse("noexec,acl,dax=never,subtype=x,max_threads=3,strictatime");
        let told: Vec<OsString> = told.for_fuse().unwrap();
        assert_eq!(told, ["-o", "noexec", "--workers=3"]);
        for word in ["noacl", "nosymfollow", "nonsense=1"] {
            let refused = parse(word).for_fuse().unwrap_err();
            assert!(refused.message().contains(word), "{refused:?}");
        }
    }

    #[test]
    fn images_elsewhere_are_refused() {
        for word in [
            "oci",
            "oci.blob=x",
            "s3.endpoint=x",
            "offset=-1",
            "fsoffset=x",
        ] {
            assert!(Options::parse(&[word.to_owned()]).is_err(), "{word}");
        }
    }
}
