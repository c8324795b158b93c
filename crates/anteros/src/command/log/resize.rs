//! `anteros log resize`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::{Device, WritableDevice, parse_size};
use anteros_log::layout::{BLOCK_BYTES, Superblock};
use anteros_log::{LogError, Options, Resized, plan_resize, resize, system_clock};

use serde_json::{Value, json};

use super::open;
use crate::args::ReportArgs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Grow or shrink a log that is not mounted
///
/// A crash on the way leaves the old size or the new one. A file becomes as long as the log.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// Size that it is to have (K, M, G, T); else as large as the file or device is
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    #[command(flatten)]
    report: ReportArgs,
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
        let file = open::file(path)?;
        let device: Arc<dyn WritableDevice> = file.clone();
        let options = Options::new(system_clock);
        let fail = |error: LogError| open::failure(path.display(), &error);
        let bytes = self.size.unwrap_or(file.size());
        // What is no log, or cannot have that size, does not become longer.
        plan_resize(&device, bytes, &options).map_err(fail)?;
        let length = path.is_file().then(|| file.size());
        let set_length = |bytes| {
            let set = file.set_len(bytes);
            set.map_err(|error| Failure::system(path, &error))
        };
        if length.is_some_and(|length| length < bytes) {
            set_length(bytes)?;
        }
        let resized = resize(&device, bytes, &options);
        if let Some(length) = length {
            // What was refused has changed nothing; of what failed nobody knows how far it came.
            let wanted = match &resized {
                Ok(resized) => resized.new.blocks * BLOCK_BYTES as u64,
                Err(LogError::TooFull { .. } | LogError::GrowsTooLittle { .. }) => length,
                Err(_) => file.size(),
            };
            if file.size() != wanted {
                set_length(wanted)?;
            }
        }
        let resized = resized.map_err(fail)?;
        match self.report.json {
            true => output::json(&report(&resized))?,
            false => tell(path, &resized)?,
        }
        Ok(Verdict::Good)
    }
}

/// The outcome for the log, as scripts see it.
fn report(Resized { old, new, emptied }: &Resized) -> Value {
    let bytes = |log: &Superblock| log.blocks * BLOCK_BYTES as u64;
    json!({
        "old_bytes": bytes(old),
        "bytes": bytes(new),
        "capacity_bytes": new.capacity() * BLOCK_BYTES as u64,
        "emptied_segments": emptied,
    })
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
