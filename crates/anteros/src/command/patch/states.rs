//! `anteros patch --list` and `--rollback`: the states of an image.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Options, Patch, Rollback, roll_back, roll_back_device};
use anteros_core::{FileDevice, Overlaid, Timestamp};
use anteros_format::patch::Change;
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_image::{CheckOptions, Image, OpenOptions, Patched};
use serde::Serialize;

use super::base;
use crate::command::mkfs::{self, Before};
use crate::failure::{Failure, Kind};
use crate::output;

/// A state as scripts see it.
#[derive(Serialize)]
struct State {
    number: u32,
    current: bool,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    restores: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    appended_bytes: u64,
    image_bytes: u64,
}

impl State {
    fn of(state: &Patched, is_current: bool) -> Self {
        let record = &state.record;
        let (change, restores) = match record.change {
            Change::Patch => ("patch", None),
            Change::Rollback(number) => ("rollback", Some(number)),
        };
        Self {
            number: record.number,
            current: is_current,
            change,
            restores,
            time: Some(output::time(record.time)),
            appended_bytes: record.end - record.start,
            image_bytes: record.end,
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mark = if self.current { '*' } else { ' ' };
        let time = self.time.as_deref().unwrap_or("");
        let change = match self.restores {
            Some(number) => format!("{} to {number}", self.change),
            None => self.change.into(),
        };
        let bytes = output::bytes(self.appended_bytes);
        let line = format!(
            "{mark} {:>4}  {change:<16} {bytes:>12}  {time}",
            self.number
        );
        writeln!(out, "{}", line.trim_end())
    }
}

/// Tells of all states, the oldest first.
pub fn list(image: &Image, json: bool, workers: usize, cancel: &AtomicBool) -> Result<(), Failure> {
    let known = states(image, "nothing is told of", workers, cancel)?;
    let built_bytes = match known.last() {
        None => image.recorded_bytes(),
        Some(first) => bytes_of(image, &first.record.former)?,
    };
    let built = State {
        number: 0,
        current: known.is_empty(),
        change: "built",
        restores: None,
        time: None,
        appended_bytes: built_bytes,
        image_bytes: built_bytes,
    };
    let current = known.first().map(|state| state.record.number);
    let states = known.iter().rev();
    let states = states.map(|state| State::of(state, Some(state.record.number) == current));
    let states: Vec<State> = [built].into_iter().chain(states).collect();
    if json {
        return Ok(output::json(&states)?);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    states.iter().try_for_each(|state| state.print(&mut out))?;
    Ok(out.flush()?)
}

/// The states that patches made, the current one first. No file has the bytes of the record by which they are found.
/// `what` is done to no broken image.
pub fn states(
    image: &Image,
    what: &str,
    workers: usize,
    cancel: &AtomicBool,
) -> Result<Vec<Patched>, Failure> {
    let states = image.patches();
    let states = states.map_err(|e| Failure::image(image.name(), &e))?;
    if let Some(state) = states.first() {
        let record = state.at..state.record.end;
        let options = CheckOptions {
            gaps_in: vec![record.clone()],
            ..metadata(workers)
        };
        let report = mkfs::check_metadata(image, &options, what, cancel)?;
        crate::interrupt::check(cancel)?;
        base::check_record(image, &record, &report.gaps)?;
    }
    Ok(states)
}

/// The superblock that a state had, or has.
pub fn superblock_of(states: &[Patched], number: u32) -> Option<[u8; SUPERBLOCK_BYTES]> {
    let state = states.iter().find(|state| state.record.number == number);
    match (number, states.last()) {
        (0, first) => first.map(|state| state.record.former),
        _ => state.map(|state| state.superblock),
    }
}

fn metadata(workers: usize) -> CheckOptions {
    CheckOptions {
        data: false,
        workers,
        ..CheckOptions::default()
    }
}

/// Bytes of the image that a superblock counts.
pub fn bytes_of(image: &Image, superblock: &[u8]) -> Result<u64, Failure> {
    let parsed = parsed(image, superblock)?;
    Ok(parsed.blocks << parsed.block_bits) // as was checked
}

fn parsed(image: &Image, superblock: &[u8]) -> Result<Superblock, Failure> {
    Superblock::parse(superblock).map_err(|fault| {
        let name = image.name();
        Failure::new(
            Kind::Corrupt,
            format_args!("{name}: a former superblock: {fault}"),
        )
    })
}

/// Makes a former state the current one, by a record behind the image. Returns the number of the state that this makes.
pub fn restore(
    path: &Path,
    image: &Image,
    number: u32,
    time: Timestamp,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<u32, Failure> {
    base::refuse(image)?;
    let states = states(image, "nothing is told of", workers, cancel)?;
    let name = image.name();
    let hint = format!("`anteros patch {name} --list` tells which there are");
    let usage = |text: String| Err(Failure::new(Kind::Usage, text).hint(&hint));
    let (Some(current), Some(first)) = (states.first(), states.last()) else {
        return usage(format!("{name}: was never patched"));
    };
    let last = current.record.number;
    let found = states.iter().find(|state| state.record.number == number);
    let superblock = match (number, found) {
        (0, _) => first.record.former,
        (_, Some(state)) if number != last => state.superblock,
        (_, Some(_)) => return usage(format!("{name}: state {number} is the current one")),
        _ => {
            return usage(format!(
                "{name}: there is no state {number}, {last} is the last"
            ));
        }
    };
    check_state(path, &superblock, workers, cancel)?;
    let counts_alike = parsed(image, &superblock)?.meta_block == image.superblock().meta_block;
    let options = Options {
        block_bits: image.superblock().block_bits,
        wide: image.superblock().has_48bit(),
        append: Some(base::appended(image, path)?),
        patch: Some(Patch {
            number: last.saturating_add(1),
            time,
            previous: Some(current.at),
            // Slots count from another block else.
            free: match counts_alike {
                true => current.record.free.clone(),
                false => Vec::new(),
            },
            dry_run: false,
        }),
        ..Options::default()
    };
    let rollback = Rollback { number, superblock };
    let metadata = std::fs::metadata(path).map_err(|e| Failure::system(path, &e))?;
    let written = match metadata.is_file() {
        true => roll_back(path, &rollback, &options),
        false => {
            let device = FileDevice::open_writable(path).map_err(Failure::os)?;
            roll_back_device(Arc::new(device), &rollback, &options)
        }
    };
    written.map_err(|e| mkfs::failure(path, Before::File, &e))?;
    Ok(last + 1)
}

/// Makes sure that a former state is whole, as its superblock shows it.
fn check_state(
    path: &Path,
    superblock: &[u8],
    workers: usize,
    cancel: &AtomicBool,
) -> Result<(), Failure> {
    let device = FileDevice::open(path).map_err(Failure::os)?;
    let device = Overlaid::new(device, [(SUPERBLOCK_OFFSET, superblock.to_vec())]);
    let state = Image::open(Arc::new(device), Vec::new(), OpenOptions::default());
    let state = state.map_err(|e| Failure::opening(path.display(), &e))?;
    let what = "that state would be";
    mkfs::check_metadata(&state, &metadata(workers), what, cancel)?;
    crate::interrupt::check(cancel)
}
