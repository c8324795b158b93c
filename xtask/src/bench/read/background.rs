//! Reading and writing that goes on beside a measurement, as in section 5.7 of the EROFS paper: four threads, each
//! with a file of its own, read and write at random places, 256 KB of each a second.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::pattern::BLOCK;
use crate::bench::random::Random;

const THREADS: u64 = 4;
/// The size of a thread's file.
const FILE_BYTES: u64 = 64 << 20;
/// A block is read and one written at this pace, which makes 256 KB a second of each.
const PACE: Duration = Duration::from_micros(1_000_000 * BLOCK as u64 / 256_000);

/// Work in the background, until dropped.
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    directory: PathBuf,
}

impl Background {
    /// Makes the files and starts.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(super) fn start(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut background = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            directory: directory.to_owned(),
        };
        for number in 0..THREADS {
            let file = make(&directory.join(number.to_string()))?;
            let stop = background.stop.clone();
            let work = thread::spawn(move || work(&file, Random::new(number), &stop));
            background.threads.push(work);
        }
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(error)) = thread.join() {
                eprintln!("bench read: background: {error}");
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A file full of data on the disk, so that reading it is work.
fn make(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let data = vec![0x5a; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(data.len()) {
        file.write_all_at(&data, offset)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn work(file: &File, mut random: Random, stop: &AtomicBool) -> io::Result<()> {
    let mut block = [0; BLOCK];
    let mut place = || random.below(FILE_BYTES / BLOCK as u64) * BLOCK as u64;
    while !stop.load(Ordering::Relaxed) {
        file.read_exact_at(&mut block, place())?;
        file.write_all_at(&block, place())?;
        thread::sleep(PACE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_ends_with_its_files() {
        let directory =
            std::env::temp_dir().join(format!("anteros-background-{}", std::process::id()));
        let background = Background::start(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
        drop(background);
        assert!(!directory.exists());
    }
}
