//! `anteros patch --apply`: an image becomes what a patch makes of it, if it is the one that the patch is of.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Appended, Difference, Options, apply_to_device};
use anteros_core::FileDevice;
use anteros_format::SLOT_BYTES;
use anteros_image::{CheckOptions, Image, OpenOptions};

use super::export::Source;
use super::{base, states};
use crate::command::mkfs::{self, Before};
use crate::failure::{Failure, Kind};
use crate::patch_file::{PatchFile, Standing};

/// A patch that was applied.
pub struct Applied {
    /// The state of the image now.
    pub number: u32,
    /// Bytes that were appended; none if the image had the patch already.
    pub bytes: Option<u64>,
}

/// Applies the patch in a file to an image.
pub fn apply(
    source: &Source<'_>,
    file: &Path,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<Applied, Failure> {
    let patch = PatchFile::open(file, cancel)?;
    let header = &patch.header;
    let number = header.number;
    let device = Arc::new(FileDevice::open(source.path).map_err(Failure::os)?);
    if patch.standing(&device)? == Standing::Patched {
        patch.check_patched(&device, cancel)?;
        return Ok(Applied {
            number,
            bytes: None,
        });
    }
    base::refuse(source.image)?;
    let metadata = std::fs::metadata(source.path);
    let metadata = metadata.map_err(|e| Failure::system(source.path, &e))?;
    let work = (workers, cancel);
    std::thread::scope(|scope| {
        let base = scope.spawn(|| {
            patch.check_base(&device, true, cancel)?;
            patch.check_places(&device, !metadata.is_file(), cancel)
        });
        let slots = check_slots(source.image, &patch, work);
        let result = check_result(device.clone(), &patch, file, work);
        // Of an image that is another one, the others can say nothing.
        base.join().expect("it does not panic")?;
        slots.and(result)
    })?;
    write(source, &patch, metadata.is_file())?;
    Ok(Applied {
        number,
        bytes: Some(header.end - header.start),
    })
}

/// Makes sure that the image is whole, and that no state of it refers to slots that the patch takes for roots, if it takes any.
fn check_slots(
    image: &Image,
    patch: &PatchFile,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<(), Failure> {
    if patch.roots.is_empty() {
        return Ok(());
    }
    let place = |(at, root): &(u64, Vec<u8>)| *at..*at + root.len() as u64;
    let slots: Vec<Range<u64>> = patch.roots.iter().map(place).collect();
    let options = CheckOptions {
        gaps_in: slots.clone(),
        data: false,
        workers,
        ..CheckOptions::default()
    };
    let report = mkfs::check_metadata(image, &options, "nothing is applied to", cancel)?;
    crate::interrupt::check(cancel)?;
    let state = image.patched();
    let state = state.map_err(|e| Failure::image(image.name(), &e))?;
    let sb = image.superblock();
    let origin = u64::from(sb.meta_block) << sb.block_bits;
    let was_free = |slot: &Range<u64>| {
        let Some(state) = &state else {
            return true;
        };
        let within = |free: &anteros_format::patch::Slots| {
            let first = origin + u64::from(free.first) * SLOT_BYTES;
            let end = origin + free.end() * SLOT_BYTES;
            first <= slot.start && slot.end <= end
        };
        state.record.free.iter().any(within)
    };
    let is_free = |slot: &Range<u64>| {
        let mut gaps = report.gaps.iter();
        gaps.any(|gap| gap.start <= slot.start && slot.end <= gap.end) && was_free(slot)
    };
    match slots.iter().all(is_free) {
        true => Ok(()),
        false => {
            let name = image.name();
            let message = format!("{name}: the patch puts a root where something else lies");
            Err(Failure::new(Kind::Corrupt, message))
        }
    }
}

/// Makes sure that the image and the patch make one that is whole, and has the states that the patch speaks of.
fn check_result(
    device: Arc<FileDevice>,
    patch: &PatchFile,
    file: &Path,
    (workers, cancel): (usize, &AtomicBool),
) -> Result<(), Failure> {
    let name = file.display();
    let header = &patch.header;
    let view = Arc::new(patch.over(device));
    let made = Image::open(view, Vec::new(), OpenOptions::default());
    let made = made.map_err(|e| Failure::opening(&name, &e))?;
    base::refuse(&made)?;
    let hint = format!(
        "`anteros check --patch {name} {}` lists every fault",
        made.name()
    );
    let known = states::states(&made, "the patch would make", workers, cancel);
    let known = known.map_err(|failure| failure.hint(hint))?;
    let is_current = known.first().map(|state| state.record.number) == Some(header.number);
    let goes_on = states::superblock_of(&known, header.base) == Some(header.former);
    let states = known
        .iter()
        .filter(|state| state.record.number > header.base);
    let roots = states.filter_map(|state| state.record.root.filter(|at| *at < header.start));
    let mut roots: Vec<u64> = roots.collect();
    roots.sort_unstable();
    let are_told = roots.iter().eq(patch.roots.iter().map(|(at, _)| at));
    match is_current && goes_on && are_told {
        true => Ok(()),
        false => {
            let message = format!("{name}: its records tell of other states than its header");
            Err(Failure::new(Kind::Corrupt, message))
        }
    }
}

fn write(source: &Source<'_>, patch: &PatchFile, is_file: bool) -> Result<(), Failure> {
    let appended = base::appended(source.image, source.path)?;
    let options = Options {
        append: Some(Appended {
            end: patch.header.end,
            ..appended
        }),
        ..Options::default()
    };
    let difference = Difference {
        start: patch.header.start,
        bytes: &patch.bytes,
        roots: patch.roots.clone(),
        superblock: patch.header.superblock,
    };
    let written = match is_file {
        true => anteros_build::apply(source.path, &difference, &options),
        false => {
            let device = FileDevice::open_writable(source.path).map_err(Failure::os)?;
            apply_to_device(Arc::new(device), &difference, &options)
        }
    };
    written.map_err(|e| mkfs::failure(source.path, Before::File, &e))
}
