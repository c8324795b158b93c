//! A part of a tree that stands for all of it.
//!
//! All files lie in a line, by extension and then by path, each as long as its content and its inode. Pieces of the
//! line at equal distances are the sample: each kind of file has its share in it, and each byte and each small file the
//! same chance. Files that are longer than a piece are cut, all others are copied whole. A tree that is not larger than
//! the sample is itself the sample.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, FileTimes, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::failure::{Failure, Kind};
use crate::{interrupt, output};

/// Bytes that an inode counts beside its content.
const INODE_BYTES: u64 = 256;
/// About the metadata of a directory: its inode, its name, and its own entries.
const DIRECTORY_BYTES: u64 = 100;
/// Pieces are about so long, but shorter where there would be only a few. Longer ones know more of what large clusters look
/// back to, but there are fewer: of /usr/bin, 64 MiB in pieces of 2 MiB say 2.6 % too much, and 32 MiB 10 % too little; in
/// these, 0.5 % and 2.7 % too much.
const PIECE_BYTES: u64 = 256 << 10;
const PIECES_MIN: u64 = 16;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A file or a symbolic link of the tree, relative to it.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    bytes: u64,
    is_link: bool,
}

impl Entry {
    const fn weight(&self) -> u64 {
        self.bytes + INODE_BYTES
    }

    /// Names of equal kind lie together.
    fn key(&self) -> (Option<&std::ffi::OsStr>, &Path) {
        (self.path.extension(), &self.path)
    }
}

/// The entries of a directory.
#[derive(Debug, Default)]
pub struct Tree {
    root: PathBuf,
    entries: Vec<Entry>,
    directories: u64,
    /// Bytes of all regular files.
    pub bytes: u64,
    pub files: u64,
}

impl Tree {
    /// Lists a directory and all below.
    pub fn list(root: &Path, cancel: &AtomicBool) -> Result<Self, Failure> {
        let mut tree = Self {
            root: root.to_owned(),
            directories: 1,
            ..Self::default()
        };
        let mut linked = BTreeSet::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            interrupt::check(cancel)?;
            let place = match directory.as_os_str().is_empty() {
                true => root.to_owned(),
                false => root.join(&directory),
            };
            let fail = |error: io::Error| Failure::system(&place, &error);
            for entry in fs::read_dir(&place).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let path = directory.join(entry.file_name());
                let found = entry
                    .metadata()
                    .map_err(|e| Failure::system(&root.join(&path), &e))?;
                if found.is_dir() {
                    tree.directories += 1;
                    open.push(path);
                } else if found.nlink() < 2 || linked.insert((found.dev(), found.ino())) {
                    tree.add(path, &found);
                }
            }
        }
        tree.entries.sort_by(|a, b| a.key().cmp(&b.key()));
        Ok(tree)
    }

    fn add(&mut self, path: PathBuf, found: &Metadata) {
        let is_link = found.is_symlink();
        if !is_link && !found.is_file() {
            return;
        }
        let bytes = if is_link { 0 } else { found.len() };
        self.bytes += bytes;
        self.files += u64::from(!is_link);
        self.entries.push(Entry {
            path,
            bytes,
            is_link,
        });
    }

    /// Returns whether it is no larger than a sample of so many bytes.
    pub fn fits(&self, sample_bytes: u64) -> bool {
        self.weight() <= sample_bytes
    }

    fn weight(&self) -> u64 {
        self.entries.iter().map(Entry::weight).sum()
    }

    /// The parts of files that stand for all of them: an entry and a range of its bytes.
    fn chosen(&self, sample_bytes: u64) -> Vec<(&Entry, u64, u64)> {
        let weight = self.weight();
        let pieces = (sample_bytes / PIECE_BYTES).max(PIECES_MIN);
        let piece = sample_bytes / pieces;
        let step = weight / pieces;
        let begin = |index: u64| index * step + (step - piece.min(step)) / 2;
        let (mut at, mut index, mut chosen) = (0, 0, Vec::new());
        for entry in &self.entries {
            let end = at + entry.weight();
            while index < pieces && begin(index) + piece <= at {
                index += 1;
            }
            let is_whole = entry.bytes <= piece;
            if is_whole {
                if index < pieces && (begin(index)..begin(index) + piece).contains(&at) {
                    chosen.push((entry, 0, entry.bytes));
                }
            } else {
                for index in index..pieces {
                    let from = begin(index).max(at);
                    let to = (begin(index) + piece).min(end);
                    if from >= to {
                        break;
                    }
                    let within = |position: u64| (position - at).min(entry.bytes);
                    chosen.push((entry, within(from), within(to)));
                }
            }
            at = end;
        }
        chosen
    }
}

/// Something to build images of that stands for a tree.
pub struct Sample {
    pub source: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// Tells how many times its content the tree has; exactly 1 if it is the tree.
    pub times: f64,
    /// Directories of the tree, and of the sample.
    directories: (u64, u64),
}

impl Sample {
    /// A sample of about so many bytes, copied into `place` if the tree is larger.
    pub fn of(tree: &Tree, bytes: u64, place: &Path, cancel: &AtomicBool) -> Result<Self, Failure> {
        if tree.fits(bytes) {
            return Ok(Self {
                source: tree.root.clone(),
                bytes: tree.bytes,
                times: 1.0,
                directories: (tree.directories, tree.directories),
            });
        }
        let source = place.join("sample");
        let fail = |path: &Path, error: io::Error| Failure::system(path, &error);
        DirBuilder::new()
            .mode(0o700)
            .create(&source)
            .map_err(|e| fail(&source, e))?;
        let mut sample = Self {
            source,
            bytes: 0,
            times: 1.0,
            directories: (tree.directories, 1),
        };
        let mut weight = 0;
        for (entry, from, to) in tree.chosen(bytes) {
            interrupt::check(cancel)?;
            sample.copy(tree, entry, from, to)?;
            sample.bytes += to - from;
            weight += to - from + INODE_BYTES;
        }
        sample.times = tree.weight() as f64 / weight.max(1) as f64;
        Ok(sample)
    }

    /// The size of an image of the tree, where the sample's has so many bytes.
    pub fn scaled(&self, image_bytes: u64) -> u64 {
        let (all, here) = self.directories;
        let content = image_bytes.saturating_sub(here * DIRECTORY_BYTES);
        (content as f64 * self.times) as u64 + all * DIRECTORY_BYTES
    }

    /// Returns whether it is a part of the tree.
    pub fn is_part(&self) -> bool {
        self.directories.0 != self.directories.1 || self.times > 1.0
    }

    fn copy(&mut self, tree: &Tree, entry: &Entry, from: u64, to: u64) -> Result<(), Failure> {
        let (source, mut copy) = (tree.root.join(&entry.path), self.source.join(&entry.path));
        self.make_parents(copy.parent().unwrap_or(&self.source).to_owned())?;
        if from > 0 {
            // A further part of the same file.
            let name = copy.file_name().unwrap_or_default().to_owned();
            let mut other = name.clone();
            other.push(format!(".{from}"));
            copy.set_file_name(if name.len() < 230 {
                other
            } else {
                format!("{from}").into()
            });
        }
        if entry.is_link {
            let target = fs::read_link(&source).map_err(|e| Failure::system(&source, &e))?;
            return symlink(target, &copy).map_err(|e| room(&copy, &e));
        }
        let fail = |error: io::Error| Failure::system(&source, &error);
        let mut input = File::open(&source).map_err(fail)?;
        let times = input.metadata().map_err(fail)?;
        let mut made = File::create_new(&copy).map_err(|e| room(&copy, &e))?;
        input.seek(SeekFrom::Start(from)).map_err(fail)?;
        let mut left = to - from;
        let mut buffer = vec![0; COPY_BYTES.min(left as usize)];
        while left > 0 {
            let count = buffer.len().min(left as usize);
            let read = input.read(&mut buffer[..count]).map_err(fail)?;
            if read == 0 {
                let text = format!("{}: is shorter than a moment ago", source.display());
                return Err(Failure::new(Kind::System, text));
            }
            made.write_all(&buffer[..read])
                .map_err(|e| room(&copy, &e))?;
            left -= read as u64;
        }
        // Times that differ take larger inodes.
        let kept = times.modified().map(|at| FileTimes::new().set_modified(at));
        kept.and_then(|kept| made.set_times(kept))
            .map_err(|e| room(&copy, &e))
    }

    fn make_parents(&mut self, directory: PathBuf) -> Result<(), Failure> {
        let missing = directory.ancestors().take_while(|path| !path.exists());
        self.directories.1 += missing.count() as u64;
        fs::create_dir_all(&directory).map_err(|e| room(&directory, &e))
    }
}

/// The failure to write a temporary file.
pub fn room(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::system(path, error);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.hint(ROOM),
        _ => failure,
    }
}

/// The way out where temporary files have no room.
const ROOM: &str = "a smaller --sample takes less room, and TMPDIR says where it is";

/// A directory for temporary files, which goes when this does.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `TMPDIR`.
    pub fn new() -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        let path = parent.join(format!("anteros-advise-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| room(&path, &e))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fails early if so many bytes do not fit.
    pub fn check_room(&self, needed: u64) -> Result<(), Failure> {
        let found = rustix::fs::statvfs(&self.0).map_err(|e| room(&self.0, &e.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free >= needed {
            return Ok(());
        }
        let (free, needed) = (output::bytes(free), output::bytes(needed));
        let place = self.0.parent().unwrap_or(&self.0).display();
        let message = format!("{place}: {free} are free, and temporary files take {needed}");
        Err(Failure::new(Kind::System, message).hint(ROOM))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            output::complain("warning", format_args!("{}: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, u64)]) -> Tree {
        let mut entries: Vec<_> = files
            .iter()
            .map(|(path, bytes)| Entry {
                path: path.into(),
                bytes: *bytes,
                is_link: false,
            })
            .collect();
        entries.sort_by(|a, b| a.key().cmp(&b.key()));
        Tree {
            entries,
            ..Tree::default()
        }
    }

    #[test]
    fn each_kind_of_file_has_its_share() {
        let names: Vec<_> = (0..6000)
            .map(|n| format!("{n}.{}", ["a", "b", "c"][n % 3]))
            .collect();
        let files: Vec<_> = names.iter().map(|name| (&name[..], 10_000)).collect();
        let tree = tree(&files);
        let chosen = tree.chosen(6 << 20);
        for kind in ["a", "b", "c"] {
            let of_kind =
                |(entry, ..): &&(&Entry, u64, u64)| entry.path.extension().unwrap() == kind;
            let count = chosen.iter().filter(of_kind).count();
            assert!(
                (180..230).contains(&count),
                "{kind}: {count} of {}",
                chosen.len()
            );
        }
        assert!(
            chosen
                .iter()
                .all(|(entry, from, to)| (*from, *to) == (0, entry.bytes))
        );
    }

    #[test]
    fn long_files_are_cut_at_equal_distances() {
        let tree = tree(&[("long", 1 << 30)]);
        let chosen = tree.chosen(64 << 20);
        assert_eq!(chosen.len(), 256);
        assert!(chosen.iter().all(|(_, from, to)| to - from == 256 << 10));
        let mut ends = chosen.iter().map(|(_, from, _)| from);
        let first = ends.next().unwrap();
        let (second, third) = (ends.next().unwrap(), ends.next().unwrap());
        assert_eq!(second - first, third - second);
        // And nothing is chosen beyond the end of the content.
        assert!(chosen.iter().all(|(entry, _, to)| *to <= entry.bytes));
    }
}
