//! Ways and native file systems that take part.

use std::path::Path;

use rustix::mount::MountFlags;

use super::harness::Bench;
use super::native::{KINDS, Kind};
use super::turn;
use super::way::{self, Way};
use crate::bench::io_uring;
use crate::bench::mounted::mount;
use crate::outcome::Outcome;
use crate::peers;

/// The arguments of our mirror's ways, in the order in which they are told.
const OURS: [&str; 6] = [
    "",
    "--data cache",
    "--data buffer",
    "--data entries",
    "--data daemon",
    "--data daemon --unit 4K",
];

/// States where the kernel offers FUSE over io_uring, which ours take: as it would be without.
const OURS_WITHOUT_RINGS: &str = "--no-io-uring";

/// The same for libfuse's, which takes it only if told to.
const LIBFUSE_RINGS: (&str, &[&str]) = (
    way::HP_RINGS,
    &["--foreground", "-o", "io_uring", "SOURCE", "DIR"],
);

/// Those of libfuse, with their arguments.
const LIBFUSE: [(&str, &[&str]); 3] = [
    (way::HP, &["--foreground", "SOURCE", "DIR"]),
    (way::HP_WITHOUT, &way::HP_WITHOUT_ARGUMENTS),
    ("passthrough_ll", &["-f", "-o", "source=SOURCE", "DIR"]),
];

impl Bench<'_> {
    /// Finds out which ways there are; of each other one it says why it takes no part.
    ///
    /// # Errors
    /// When nothing can be mounted.
    pub(super) fn line_up(&mut self) -> Outcome {
        let ours = OURS.map(|arguments| Way::anteros(&self.anteros, arguments));
        let mut ways = ours.to_vec();
        let mut libfuse = LIBFUSE.to_vec();
        if io_uring::is_on() {
            ways.insert(1, Way::anteros(&self.anteros, OURS_WITHOUT_RINGS));
            libfuse.push(LIBFUSE_RINGS);
        }
        ways.push(Way::native());
        let built = peers::make().and_then(|()| peers::make_libfuse());
        for (name, arguments) in libfuse {
            let peer = match &built {
                Ok(()) => Way::libfuse(name, arguments).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match peer {
                Ok(way) => ways.push(way),
                Err(error) => self.note(format!("{name} takes no part: {error}")),
            }
        }
        self.ways = self.startable(ways)?;
        Ok(())
    }

    /// Those of some ways that can be started.
    ///
    /// # Errors
    /// When nothing can be mounted.
    pub(super) fn startable(&mut self, ways: Vec<Way>) -> Outcome<Vec<Way>> {
        let directory = self.place.directory("native")?;
        let kind = MountFlags::empty();
        let _tmpfs = mount(Path::new("none"), &directory, "tmpfs", kind, None)?;
        let mut startable = Vec::new();
        for way in ways {
            match turn::served(self.place, &directory, &way) {
                Ok(_) => startable.push(way),
                Err(error) => self.note(format!("{} takes no part: {error}", way.name)),
            }
        }
        Ok(startable)
    }

    /// All ways, or those whose names have one of the words of `--contender`, and those that all are compared with.
    pub(super) fn everybody(&self) -> Vec<Way> {
        let words = &self.options.contenders;
        let chosen = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
        let mut ways = self.ways.clone();
        if !words.is_empty() {
            ways.retain(|way| [way::AUTO, way::NATIVE].contains(&&*way.name) || chosen(&way.name));
        }
        ways
    }

    /// The ways of some names, in the order of the names.
    pub(super) fn named(&self, names: &[&str]) -> Vec<Way> {
        let everybody = self.everybody();
        let find = |name: &&str| everybody.iter().find(|way| way.name == **name);
        names.iter().filter_map(find).cloned().collect()
    }

    /// Our mirror with other arguments.
    pub(super) fn ours(&self, arguments: &str) -> Way {
        Way::anteros(&self.anteros, arguments)
    }

    /// The native file systems that the machine has, of those asked for.
    pub(super) fn kinds(&mut self) -> Vec<&'static Kind> {
        let asked = &self.options.filesystems;
        let is_asked = |kind: &&Kind| asked.is_empty() || asked.iter().any(|one| one == kind.name);
        let mut kinds = Vec::new();
        for kind in KINDS.iter().filter(is_asked) {
            match kind.missing() {
                None => kinds.push(kind),
                Some(reason) => self.note(format!("{} takes no part: {reason}", kind.name)),
            }
        }
        kinds
    }
}
