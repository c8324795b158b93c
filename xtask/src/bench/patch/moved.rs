//! Bytes that updaters move which know blocks, or chunks of content, but no file systems, for an image over the old one, one
//! that is built anew, and one that is patched.
//!
//! One of them writes each block that is another one at its place. One keeps blocks that lie anywhere in the old image.
//! `casync` cuts images where their content says so, and fetches chunks that it does not have, compressed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::case::{Case, bytes, side};
use crate::bench::images::clear;
use crate::bench::report::{Comparison, Side, Unit};
use crate::outcome::Outcome;
use crate::run::{run, words};

const BLOCK_BYTES: usize = 4096;

/// A new image, and what it is called.
type Image<'a> = (&'a str, &'a Path);

impl Case<'_> {
    /// Counts the bytes that updaters move for each of the new images.
    pub(super) fn moved(&self) -> Outcome<Vec<Comparison>> {
        let based = self.bench.path("based.erofs");
        let mut mkfs = self.bench.anteros("mkfs");
        mkfs.arg("--quiet").arg("--base").arg(&self.old);
        run(mkfs.arg(&based).arg(&self.trees.new))?;
        let images = [
            ("mkfs --base", &*based),
            ("mkfs, rebuild", &self.rebuilt),
            ("patch --from", &self.patched),
        ];
        let old = fs::read(&self.old)?;
        let in_place = |image: &[u8]| in_place(&old, image);
        let known: HashSet<&[u8]> = old.chunks(BLOCK_BYTES).collect();
        let anywhere = |image: &[u8]| anywhere(&known, image);
        Ok(vec![
            self.comparison("all of the image", &images, |image| {
                Ok((String::new(), bytes(image)?))
            }),
            self.comparison("blocks that differ in place", &images, |image| {
                Ok((String::new(), in_place(&fs::read(image)?)))
            }),
            self.comparison("blocks that the old image has nowhere", &images, |image| {
                Ok((String::new(), anywhere(&fs::read(image)?)))
            }),
            self.comparison("chunks that casync fetches", &images, |image| {
                casync(&self.old, image, &self.bench.path("chunks"))
            }),
        ])
    }

    fn comparison(
        &self,
        what: &str,
        images: &[Image<'_>],
        figure: impl Fn(&Path) -> Outcome<(String, f64)>,
    ) -> Comparison {
        let side = |(name, image): &Image<'_>| -> Side {
            match figure(image) {
                Ok((command, figure)) => side(name, command, Ok(figure)),
                Err(error) => side(name, String::new(), Err(error.to_string())),
            }
        };
        Comparison {
            metric: format!("bytes moved: {what}"),
            subject: self.subject.clone(),
            at: None,
            unit: Unit::Bytes,
            yardsticks: &[],
            sides: images.iter().map(side).collect(),
        }
    }
}

/// Bytes of the blocks of an image that another one does not have at the same place.
fn in_place(old: &[u8], image: &[u8]) -> f64 {
    let mut before = old.chunks(BLOCK_BYTES);
    let blocks = image.chunks(BLOCK_BYTES);
    let moved = blocks.filter(|block| before.next() != Some(block));
    moved.map(<[u8]>::len).sum::<usize>() as f64
}

/// Bytes of the blocks of an image that are not among those of another one; each counts once.
fn anywhere(known: &HashSet<&[u8]>, image: &[u8]) -> f64 {
    let blocks: HashSet<&[u8]> = image.chunks(BLOCK_BYTES).collect();
    let moved = blocks.difference(known);
    moved.map(|block| block.len()).sum::<usize>() as f64
}

/// Bytes of the chunks, as a server has them, that an image has and another one has not.
fn casync(old: &Path, image: &Path, directory: &Path) -> Outcome<(String, f64)> {
    clear(directory)?;
    fs::create_dir_all(directory)?;
    let store = directory.join("store");
    let make = |image: &Path| {
        let mut make = Command::new("casync");
        make.arg("make").arg("--store").arg(&store);
        make.arg(directory.join("index.caibx")).arg(image);
        make.stdout(Stdio::null());
        make
    };
    run(&mut make(old))?;
    let before = stored(&store)?;
    let mut command = make(image);
    run(&mut command)?;
    let after = stored(&store)?;
    clear(directory)?;
    Ok((words(&command), after - before))
}

/// Bytes of all files below a directory.
fn stored(directory: &Path) -> Outcome<f64> {
    let mut pending = vec![PathBuf::from(directory)];
    let mut sum = 0.0;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => pending.push(entry.path()),
                false => sum += bytes(&entry.path())?,
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_where_they_differ_and_where_they_are_unknown() {
        let block = |byte: u8| vec![byte; BLOCK_BYTES];
        let old = [block(1), block(2), block(3)].concat();
        let image = [block(2), block(2), block(4), block(4), vec![1; 100]].concat();
        assert_eq!(in_place(&old, &image), (3 * BLOCK_BYTES + 100) as f64);
        let known = old.chunks(BLOCK_BYTES).collect();
        assert_eq!(anywhere(&known, &image), (BLOCK_BYTES + 100) as f64);
    }
}
