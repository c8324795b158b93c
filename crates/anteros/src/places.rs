//! Mounts and their places, as the kernel lists them: asking the place itself would wait for a daemon that has died.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_core::unescaped;

use crate::failure::{Failure, Kind};

/// The first letters of the kinds of file system that this program serves.
pub const OURS: &str = "fuse.anteros";
/// The kind of a mounted log.
pub const LOG: &str = "fuse.anteros-log";
/// The kind of an image that the kernel has mounted.
const IMAGE: &str = "erofs";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    id: u64,
    parent: u64,
    /// The directory.
    pub point: PathBuf,
    /// The kind of file system.
    pub kind: String,
    /// The device or file that is mounted, or whatever stands for one.
    pub source: PathBuf,
}

impl Place {
    /// The mount on a directory, on top of whatever is there besides; `None` if nothing is mounted on it.
    ///
    /// # Errors
    ///
    /// When the kernel does not say, or there is no such path.
    pub fn at(directory: &Path) -> io::Result<Option<Self>> {
        let point = absolute(directory)?;
        let places = parse(&fs::read("/proc/self/mountinfo")?);
        Ok(top(&places, &point).cloned())
    }

    /// Tells by its kind whether it is one that this program mounts.
    pub fn is_ours(&self) -> bool {
        self.kind.starts_with(OURS) || self.kind == IMAGE
    }
}

/// The absolute path of what may not answer.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let failed = match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    // The directory around it is another file system's, which does.
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if failed.kind() != ErrorKind::NotFound => {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(failed),
    }
}

fn parse(mountinfo: &[u8]) -> Vec<Place> {
    let lines = mountinfo.split(|&byte| byte == b'\n');
    let place = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let number = |at: usize| std::str::from_utf8(words.get(at)?).ok()?.parse().ok();
        let kind = words.iter().position(|word| *word == b"-")? + 1;
        Some(Place {
            id: number(0)?,
            parent: number(1)?,
            point: unescaped(words.get(4)?),
            kind: String::from_utf8_lossy(words.get(kind)?).into_owned(),
            source: unescaped(words.get(kind + 1)?),
        })
    };
    lines.filter_map(place).collect()
}

/// Of what is mounted on one directory, what no other one there lies on.
fn top<'a>(places: &'a [Place], point: &Path) -> Option<&'a Place> {
    let there = || places.iter().filter(|place| place.point == point);
    let is_hidden =
        |place: &Place| there().any(|other| other.parent == place.id && other.id != place.id);
    there().find(|place| !is_hidden(place))
}

/// Refuses to mount where something that this program serves, or an image that the kernel has mounted, would be hidden, unless
/// that is asked for.
pub fn check_free(directory: &Path, stack: bool) -> Result<(), Failure> {
    let found = Place::at(directory).ok().flatten();
    // The root of everything is no place that somebody forgot.
    let found = found.filter(|place| place.is_ours() && place.point.as_os_str().as_bytes() != b"/");
    match found {
        Some(place) if !stack => {
            let kind = match place.kind.as_str() {
                LOG => "a log",
                IMAGE => "an image",
                _ => "an image or a mirror",
            };
            let message = format!("{}: {kind} is mounted here already", directory.display());
            let hint = "`anteros umount` takes it away first; --stack mounts on top of it";
            Err(Failure::new(Kind::Usage, message).hint(hint))
        }
        _ => Ok(()),
    }
}

/// Links that are followed to a file that is to be made.
const LINKS_MAX: usize = 40;

/// Returns where a file lies, or would lie, that is to be put in the place of another: behind all symbolic links, which stay.
///
/// # Errors
///
/// When links lead to each other, or cannot be read.
pub fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            // A link counts from its own directory; one that begins at the root stands by itself.
            Ok(link) => path = path.with_file_name("").join(link),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Returns a name beside a file, for what will take its place.
///
/// # Errors
///
/// If the path has no last name.
pub fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".anteros-{}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_is_found() {
        let text = b"20 1 0:1 / / rw - ext4 /dev/a rw\n\
            30 20 0:2 / /a\\040b rw shared:1 - tmpfs none rw\n\
            31 30 0:3 / /a\\040b rw - fuse.anteros-log /x rw\n\
            40 31 0:4 / /a\\040b/c rw - erofs y ro\n";
        let places = parse(text);
        let kind = |path: &str| top(&places, Path::new(path)).map(|place| &place.kind[..]);
        assert_eq!(kind("/a b"), Some("fuse.anteros-log"));
        assert_eq!(kind("/a b/c"), Some("erofs"));
        assert_eq!(kind("/"), Some("ext4"));
        let source = top(&places, Path::new("/a b")).map(|place| place.source.as_path());
        assert_eq!(source, Some(Path::new("/x")));
        assert_eq!(kind("/nowhere"), None);
    }
}
