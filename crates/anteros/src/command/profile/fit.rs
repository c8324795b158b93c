//! Ranges of a profile that files still have.

use std::io;
use std::os::unix::fs::MetadataExt;

use anteros_trace::profile::{Digest, Hasher, Range};

use super::tree::{Found, Tree};
use crate::failure::Verdict;
use crate::output;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of which digests are made, in all: a hole of any length takes no room in an image.
const DIGESTED_BYTES_MAX: u64 = 64 << 30;
/// Ranges that do not fit, of which each is named.
const NAMED_MAX: usize = 10;

/// Finds out which ranges of a profile files still have.
pub struct Fit<'a> {
    tree: &'a Tree,
    /// The file that was looked for last, with its path.
    last: Option<(Vec<u8>, Result<Found, Misfit>)>,
    /// Ranges that do not fit, with the reasons; no more than are named.
    named: Vec<(Range, Misfit)>,
    /// Ranges that do not fit.
    misfits: u64,
    /// Ranges with other content.
    changed: u64,
    /// Bytes of which digests may still be made.
    room: u64,
    /// Ranges that are longer than that.
    unseen: u64,
    piece: Vec<u8>,
}

/// Tells why files do not have a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// There is no such file, or it cannot be read.
    Missing(String),
    /// The file ends before the range begins.
    BehindEnd(u64),
    /// The content is another one.
    Changed,
}

impl<'a> Fit<'a> {
    /// Nothing is known yet of these files.
    pub fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            last: None,
            named: Vec::new(),
            misfits: 0,
            changed: 0,
            room: DIGESTED_BYTES_MAX,
            unseen: 0,
            piece: Vec::new(),
        }
    }

    /// Returns the ranges that the files have, each as far as its file goes and with the digest of its content. One that
    /// has another digest is left out. Those for which it would take too long are taken as they are, without one.
    pub fn with_digests(&mut self, ranges: Vec<Range>) -> Vec<Range> {
        let ranges = ranges.into_iter();
        ranges.filter_map(|range| self.with_digest(range)).collect()
    }

    /// Returns as much of a range as its file has, whatever its content.
    pub fn cut_one(&mut self, range: Range) -> Option<Range> {
        let cut = self.cut(&range).map(|(_, cut)| cut);
        self.note(range, cut)
    }

    /// Returns as much of a range as its file on the host has, and the file's inode. One that has not is passed over.
    pub fn inode(&mut self, range: &Range) -> Option<(u64, Range)> {
        let (found, cut) = self.cut(range).ok()?;
        let metadata = found.file()?.metadata().ok()?;
        Some((metadata.ino(), cut))
    }

    /// Returns as much of a range as its file has. If it has a digest, it is left out where the content is another one.
    pub fn verified(&mut self, range: Range) -> Option<Range> {
        match range.digest {
            Some(_) => self.with_digest(range),
            None => self.cut_one(range),
        }
    }

    /// Returns how many ranges have another content.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Returns how many ranges the files do not have.
    pub fn misfits(&self) -> u64 {
        self.misfits
    }

    fn with_digest(&mut self, range: Range) -> Option<Range> {
        let bytes = self.cut(&range).map_or(0, |(_, cut)| cut.len);
        let Some(room) = self.room.checked_sub(bytes) else {
            self.unseen += 1;
            return self.cut_one(Range {
                digest: None,
                ..range
            });
        };
        self.room = room;
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE_BYTES, 0);
        let tree = self.tree;
        let cut = self.cut(&range).and_then(|(found, cut)| {
            let digest = digest(tree, found, &cut, &mut piece);
            let digest = digest.map_err(|error| Misfit::Missing(error.to_string()))?;
            match range.digest.is_some_and(|known| known != digest) {
                true => Err(Misfit::Changed),
                false => Ok(Range {
                    digest: Some(digest),
                    ..cut
                }),
            }
        });
        self.piece = piece;
        self.note(range, cut)
    }

    /// Returns the file of a range, and as much of the range as the file has.
    fn cut(&mut self, range: &Range) -> Result<(&Found, Range), Misfit> {
        if self
            .last
            .as_ref()
            .is_none_or(|(path, _)| *path != range.path)
        {
            let found = self.tree.find(&range.path);
            let found = found.map_err(|error| Misfit::Missing(error.to_string()));
            self.last = Some((range.path.clone(), found));
        }
        let found = match &self.last {
            Some((_, Ok(found))) => found,
            Some((_, Err(misfit))) => return Err(misfit.clone()),
            None => return Err(Misfit::Missing(String::new())),
        };
        match found.size.checked_sub(range.offset) {
            Some(rest) if rest > 0 => {
                let cut = Range {
                    len: range.len.min(rest),
                    ..range.clone()
                };
                Ok((found, cut))
            }
            _ => Err(Misfit::BehindEnd(found.size)),
        }
    }

    fn note(&mut self, range: Range, fit: Result<Range, Misfit>) -> Option<Range> {
        match fit {
            Ok(fit) => Some(fit),
            Err(misfit) => {
                self.misfits += 1;
                self.changed += u64::from(misfit == Misfit::Changed);
                if self.named.len() < NAMED_MAX {
                    self.named.push((range, misfit));
                }
                None
            }
        }
    }

    /// Tells what does not fit.
    pub fn tell(&self) -> Verdict {
        for (range, misfit) in &self.named {
            let reason = match misfit {
                Misfit::Missing(reason) => reason.clone(),
                Misfit::BehindEnd(size) => {
                    format!("nothing at byte {}, it has {size} bytes", range.offset)
                }
                Misfit::Changed => format!(
                    "{} bytes at {} are not those of the profile",
                    range.len, range.offset
                ),
            };
            let name = output::name(&range.path);
            output::complain("warning", format_args!("{name}: {reason}"));
        }
        let others = self.misfits - self.named.len() as u64;
        if others > 0 {
            let text = format!("{} more ranges do not fit", output::count(others));
            output::complain("warning", text);
        }
        if self.unseen > 0 {
            let text = format!(
                "{} ranges have no digest, and were not compared: that is done for {} in all",
                output::count(self.unseen),
                output::bytes(DIGESTED_BYTES_MAX),
            );
            output::complain("warning", text);
        }
        match self.misfits + self.unseen {
            0 => Verdict::Good,
            _ => Verdict::Partial,
        }
    }
}

/// The digest of the content of a range.
fn digest(tree: &Tree, found: &Found, range: &Range, piece: &mut [u8]) -> io::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut at = range.offset;
    while at < range.end() {
        let wanted = (range.end() - at).min(piece.len() as u64) as usize;
        let count = tree.read(found, at, &mut piece[..wanted])?;
        if count == 0 {
            break;
        }
        hasher.update(&piece[..count]);
        at += count as u64;
    }
    Ok(hasher.digest())
}
