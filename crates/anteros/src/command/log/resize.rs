//! `anteros log resize`

use std::fs::File;
use std::path::{Path, PathBuf};

use anteros_core::parse_size;
use anteros_log::layout::{BLOCK_BYTES, Superblock};
use anteros_log::{LogError, Options, Resized, describe, resize, system_clock};

use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Grow or shrink a log that is not mounted
///
/// A crash on the way leaves the old size or the new one. A file becomes as long as the log.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// How large it is to be (K, M, G, T); else as large as the file or device is
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let path = &self.device;
        if path.is_dir() {
            let message = format!("{}: is a directory", path.display());
            return Err(Failure::new(Kind::Usage, message).hint(
                "a log is resized while it is not mounted: unmount it, and name its file or device",
            ));
        }
        let device = super::open(path)?;
        let options = Options::new(system_clock);
        let fail = |error: LogError| super::failure(path.display(), &error);
        // What is no log does not become longer.
        describe(device.clone(), options.clone()).map_err(fail)?;
        let bytes = self.size.unwrap_or(device.size());
        let length = Some(device.size()).filter(|_| path.is_file());
        let device = match length {
            Some(length) if length < bytes => {
                drop(device);
                set_length(path, bytes)?;
                super::open(path)?
            }
            _ => device,
        };
        let resized = resize(&device, bytes, &options);
        if let Some(length) = length {
            // What was refused has changed nothing; of what failed nobody knows how far it came.
            let wanted = match &resized {
                Ok(resized) => resized.new.blocks * BLOCK_BYTES as u64,
                Err(LogError::TooFull { .. } | LogError::GrowsTooLittle { .. }) => length,
                Err(_) => device.size(),
            };
            if device.size() != wanted {
                set_length(path, wanted)?;
            }
        }
        tell(path, &resized.map_err(fail)?)?;
        Ok(Verdict::Good)
    }
}

fn set_length(path: &Path, bytes: u64) -> Result<(), Failure> {
    let file = File::options().write(true).open(path);
    file.and_then(|file| file.set_len(bytes))
        .map_err(|error| Failure::system(path, &error))
}

fn tell(path: &Path, resized: &Resized) -> Result<(), Failure> {
    let Resized { old, new, emptied } = resized;
    let size = |log: &Superblock| output::bytes(log.blocks * BLOCK_BYTES as u64);
    let name = output::name(path.as_os_str().as_encoded_bytes());
    if old.blocks == new.blocks {
        output::text(&format!("{name}: has {} already\n", size(old)))?;
        return Ok(());
    }
    let room = output::bytes(new.capacity() * BLOCK_BYTES as u64);
    let mut text = format!(
        "{name}: {} instead of {}, of which files may fill {room}\n",
        size(new),
        size(old)
    );
    if *emptied > 0 {
        text += &format!(
            "moved the content of {} segments\n",
            output::count(*emptied)
        );
    }
    let tables = new.tables();
    if tables != old.tables() {
        text += &format!("moved the tables to block {}\n", tables.start);
    }
    output::text(&text)?;
    Ok(())
}
