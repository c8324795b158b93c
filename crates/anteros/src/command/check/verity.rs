//! All blocks of an image beside its hash tree.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use anteros_core::{FileDevice, Window, unpoisoned};
use anteros_verity::Mismatch;
use serde::Serialize;

use crate::args::ImageArgs;
use crate::failure::Failure;
use crate::output;

/// Most blocks that are told.
const TOLD_MAX: usize = 100;

/// Blocks that are not the ones that were hashed.
#[derive(Default)]
pub struct Blocks {
    count: u64,
    wrong: BTreeSet<Mismatch>,
    omitted: u64,
}

/// Blocks as scripts see them.
#[derive(Serialize)]
pub struct View {
    blocks: u64,
    wrong: Vec<String>,
    wrong_omitted: u64,
}

impl Blocks {
    /// Compares all blocks, if a root hash is told.
    pub fn check(
        image: &ImageArgs,
        workers: usize,
        cancel: &AtomicBool,
    ) -> Result<Option<Self>, Failure> {
        if image.verity.is_none() {
            return Ok(None);
        }
        let path = &image.image;
        let device = FileDevice::open(path).map_err(|e| Failure::system(path, &e))?;
        let device = image.hash_tree(Arc::new(Window::new(device, image.offset)))?;
        let found = Mutex::new(Self::default());
        let tell = |wrong| {
            let mut found = unpoisoned(found.lock());
            found.add(wrong);
        };
        let checked = anteros_verity::check(&device, workers, cancel, &tell);
        checked.map_err(|e| Failure::system(path, &e))?;
        let mut found = unpoisoned(found.into_inner());
        found.count = device.superblock().data_blocks;
        Ok(Some(found))
    }

    fn add(&mut self, wrong: Mismatch) {
        if self.wrong.len() < TOLD_MAX {
            self.wrong.insert(wrong);
        } else if !self.wrong.contains(&wrong) {
            self.omitted += 1;
        }
    }

    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }

    pub fn view(&self) -> View {
        View {
            blocks: self.count,
            wrong: self.wrong.iter().map(ToString::to_string).collect(),
            wrong_omitted: self.omitted,
        }
    }

    pub fn print(&self, name: &str, quiet: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for wrong in &self.wrong {
            writeln!(out, "fault: {name}: {wrong}")?;
        }
        if self.omitted > 0 {
            writeln!(out, "… and {} more", output::count(self.omitted))?;
        }
        if !quiet && self.is_clean() {
            let count = output::count(self.count);
            writeln!(
                out,
                "{name}: all {count} blocks are the ones that were hashed"
            )?;
        }
        Ok(())
    }
}
