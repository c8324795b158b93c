//! `cargo xtask compare`: what the kernel makes of mutated images, beside what `check` and our reader make of them.
//!
//! A kernel may die of a mutant, so none is mounted by the kernel of this machine: a virtual machine does that
//! (`machine`, `guest`), and whoever dies there is started again. Each mutant is a fixture with one or two fields
//! changed (`mutate`); both sides write down all that they find, path by path (`walk`).
//!
//! | outcome | |
//! |---|---|
//! | agrees | both refuse it, or both read the same |
//! | stricter | `check` complains, and the kernel reads what we read, or what we refuse |
//! | passes | **wrong**: `check` is content, and the kernel refuses it or a part of it |
//! | differs | **wrong**: what both read without an error is not the same, and `check` is content |
//! | told | what both read is not the same, and `check` complains |
//! | died | the kernel died of it; `check` has to complain |

mod guest;
mod machine;
mod mutate;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_format::features::Incompat;
use anteros_image::{CheckOptions, Image, ImageFs, OpenOptions, check};

use crate::outcome::Outcome;
use machine::{Machine, Verdict};
use mutate::{Mutant, Original, Part};

pub(crate) use guest::main as judge_in_virtual_machine;

/// Images that a machine is given at once.
const BATCH: usize = 200;
/// Bytes of metadata and data that a check of a mutant looks at.
const WORK_BYTES_MAX: u64 = 64 << 20;
/// States where mutants and reports go.
const PLACE: &str = "target/compare";

/// Tells how the two sides stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Agrees,
    Stricter,
    Told,
    Died,
    Newer,
    Passes,
    Differs,
    DiedUnseen,
    Panicked,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Stricter => "stricter",
            Self::Told => "told",
            Self::Died => "died",
            Self::Newer => "newer than the kernel",
            Self::Passes => "PASSES",
            Self::Differs => "DIFFERS",
            Self::DiedUnseen => "DIED UNSEEN",
            Self::Panicked => "PANICKED",
        }
    }

    const fn is_wrong(self) -> bool {
        matches!(
            self,
            Self::Passes | Self::Differs | Self::DiedUnseen | Self::Panicked
        )
    }
}

/// Holds what we make of an image.
struct Ours {
    /// Holds what `check` complains of, the first of it.
    complaint: Option<String>,
    /// The record, or why it is not opened.
    record: Result<String, String>,
}

/// Compares so many mutants.
///
/// # Errors
/// When something is wrong, or what the comparison needs is missing.
pub(crate) fn compare(options: &[&str]) -> Outcome {
    let (count, seed) = numbers(options)?;
    let place = Path::new(PLACE);
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::create_dir_all(place)?;
    let machine = Machine::new(place)?;
    let originals = originals(&machine)?;
    let mut counts = BTreeMap::new();
    let mut report = String::new();
    let names: Vec<u64> = (seed..seed + count).collect();
    for batch in names.chunks(BATCH) {
        let mutants: Vec<_> = batch
            .iter()
            .map(|&seed| (seed, original_of(&originals, seed)))
            .map(|(seed, original)| (seed, original, original.mutant(seed)))
            .collect();
        let images: Vec<&[u8]> = mutants
            .iter()
            .map(|(_, _, mutant)| &*mutant.bytes)
            .collect();
        let verdicts = machine.judge(&images)?;
        for ((seed, original, mutant), verdict) in mutants.iter().zip(&verdicts) {
            let (kind, why) = judge(mutant, verdict);
            *counts.entry((mutant.part, kind)).or_insert(0) += 1;
            if !matches!(kind, Kind::Agrees | Kind::Stricter) {
                let (name, changes) = (&original.name, &mutant.changes);
                let line = format!("{}: {seed} of {name}: {changes}\n    {why}\n", kind.name());
                report.push_str(&line);
                if kind.is_wrong() {
                    print!("{line}");
                    fs::write(place.join(format!("{seed}.erofs")), &mutant.bytes)?;
                }
            }
        }
        eprintln!("{} of {count}", batch[batch.len() - 1] + 1 - seed);
        fs::write(place.join("report"), &report)?;
    }
    tell(&machine, count, &counts)
}

fn numbers(options: &[&str]) -> Outcome<(u64, u64)> {
    let (mut count, mut seed) = (2000, 1);
    for pair in options.chunks(2) {
        match pair {
            ["--mutants", number] => count = number.parse()?,
            ["--seed", number] => seed = number.parse()?,
            _ => return Err(format!("{}: unknown", pair.join(" ")).into()),
        }
    }
    Ok((count, seed))
}

fn original_of(originals: &[Original], seed: u64) -> &Original {
    &originals[(seed % originals.len() as u64) as usize]
}

/// The fixtures that the kernel knows how to read; both sides agree on all of them, or nothing is worth anything.
fn originals(machine: &Machine) -> Outcome<Vec<Original>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir("tests/fixtures")? {
        let path = entry?.path();
        let is_image = path.extension().is_some_and(|end| end == "erofs");
        if is_image && !path.with_extension("blob").exists() {
            paths.push(path);
        }
    }
    paths.sort();
    let all = paths.iter().map(|path| Original::read(path));
    let all: Vec<Original> = all.collect::<Outcome<_>>()?;
    let images: Vec<&[u8]> = all.iter().map(Original::bytes).collect();
    let verdicts = machine.judge(&images)?;
    let mut known = Vec::new();
    for (original, verdict) in all.into_iter().zip(verdicts) {
        let whole = Mutant {
            bytes: original.bytes().to_vec(),
            part: Part::Superblock,
            changes: String::new(),
        };
        match judge(&whole, &verdict) {
            (Kind::Agrees, _) => known.push(original),
            (Kind::Newer, _) => eprintln!("{}: the kernel is older", original.name),
            (_, why) => return Err(format!("{}, as it is: {why}", original.name).into()),
        }
    }
    eprintln!("{} fixtures, Linux {}", known.len(), machine.version());
    Ok(known)
}

/// Compares what the two sides say.
fn judge(mutant: &Mutant, verdict: &Verdict) -> (Kind, String) {
    let Ok(ours) = catch_unwind(AssertUnwindSafe(|| examine(&mutant.bytes))) else {
        return (Kind::Panicked, "anteros panics".into());
    };
    let complains = ours.complaint.is_some();
    let theirs = match verdict {
        Verdict::Died(words) if complains => return (Kind::Died, words.clone()),
        Verdict::Died(words) => return (Kind::DiedUnseen, words.clone()),
        Verdict::Said(text) => text,
    };
    let refused = theirs.strip_prefix(guest::REFUSED);
    match (&ours.record, refused) {
        (Err(_), Some(_)) => (Kind::Agrees, String::new()),
        (Ok(_), Some(why)) if is_newer(&mutant.bytes) => (Kind::Newer, why.trim().into()),
        (Ok(_), Some(why)) if !complains => (
            Kind::Passes,
            format!("the kernel refuses it:{}", why.trim_end()),
        ),
        (Ok(_), Some(_)) | (Err(_), None) => (Kind::Stricter, String::new()),
        (Ok(ours), None) => compare_records(ours, theirs, complains),
    }
}

/// Features that came after the kernels which may judge: addresses of 48 bits, a metabox.
fn is_newer(bytes: &[u8]) -> bool {
    let field: Option<[u8; 4]> = bytes.get(1104..1108).and_then(|b| b.try_into().ok());
    let bits = field.map_or(0, u32::from_le_bytes);
    bits & (Incompat::FORTY_EIGHT_BIT | Incompat::METABOX).bits() != 0
}

/// Compares two records line by line, column by column.
fn compare_records(ours: &str, theirs: &str, complains: bool) -> (Kind, String) {
    let lines = |text: &str| -> BTreeMap<String, Vec<String>> {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let columns = |rest: &str| rest.split('\t').map(str::to_owned).collect();
        lines
            .map(|(path, rest)| (path.to_owned(), columns(rest)))
            .collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let mut worst = (Kind::Agrees, String::new());
    let mut note = |kind: Kind, why: String| {
        if kind > worst.0 {
            worst = (kind, why);
        }
    };
    for (path, theirs) in &theirs {
        let Some(ours) = ours.get(path) else { continue };
        // What cannot be looked up has nothing else.
        let is_there = [ours, theirs]
            .iter()
            .all(|line| line.get(1).is_some_and(|inode| inode != walk::FAULT));
        let columns = if is_there { walk::COLUMNS.len() } else { 2 };
        for (column, (ours, theirs)) in walk::COLUMNS
            .iter()
            .zip(ours.iter().zip(theirs))
            .take(columns)
        {
            let kind = match (&**ours, &**theirs) {
                (ours, theirs) if ours == theirs => continue,
                (walk::FAULT, _) if complains => Kind::Stricter,
                (walk::FAULT, _) => Kind::Differs,
                (_, walk::FAULT) if complains => Kind::Stricter,
                (_, walk::FAULT) => Kind::Passes,
                _ if complains => Kind::Told,
                _ => Kind::Differs,
            };
            note(
                kind,
                format!("{path}: {column}: here {ours}, there {theirs}"),
            );
        }
    }
    let count = |text: &BTreeMap<String, Vec<String>>| text.len();
    if count(&ours) != count(&theirs) {
        let kind = if complains {
            Kind::Stricter
        } else {
            Kind::Differs
        };
        let why = format!("{} paths here, {} there", count(&ours), count(&theirs));
        note(kind, why);
    }
    if complains {
        note(Kind::Stricter, String::new());
    }
    worst
}

/// Checks and reads an image.
fn examine(bytes: &[u8]) -> Ours {
    let device: Arc<Vec<u8>> = Arc::new(bytes.to_vec());
    let open = |verify_checksum| {
        let options = OpenOptions {
            verify_checksum,
            ..OpenOptions::default()
        };
        Image::open(device.clone(), Vec::new(), options)
    };
    let complaint = match open(false) {
        Err(error) => Some(error.to_string()),
        Ok(image) => complaint(&image),
    };
    let record = match open(true) {
        Err(error) => Err(error.to_string()),
        Ok(image) => Ok(walk::record(&ImageFs::new(Arc::new(image)))),
    };
    Ours { complaint, record }
}

/// The first of what `check` says, unless it is content.
fn complaint(image: &Image) -> Option<String> {
    let options = CheckOptions {
        workers: 1,
        work_bytes_max: WORK_BYTES_MAX,
        ..CheckOptions::default()
    };
    let report = check(image, &options, &(), &AtomicBool::new(false));
    let worst = report
        .findings
        .iter()
        .max_by_key(|finding| finding.severity());
    let said = worst.map_or_else(|| "it complains".into(), ToString::to_string);
    (!report.is_clean()).then_some(said)
}

/// Tells what came out, part by part.
fn tell(machine: &Machine, count: u64, counts: &BTreeMap<(Part, Kind), u64>) -> Outcome {
    let mut kinds: Vec<Kind> = counts.keys().map(|(_, kind)| *kind).collect();
    kinds.sort();
    kinds.dedup();
    println!("{count} mutants, Linux {}", machine.version());
    let heads: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    println!("| part | {} |", heads.join(" | "));
    println!("|---|{}", "--:|".repeat(kinds.len()));
    for part in Part::ALL {
        let of = |kind: &Kind| counts.get(&(part, *kind)).copied().unwrap_or(0).to_string();
        let row: Vec<_> = kinds.iter().map(of).collect();
        println!("| {} | {} |", part.name(), row.join(" | "));
    }
    let wrong: u64 = counts
        .iter()
        .filter(|((_, kind), _)| kind.is_wrong())
        .map(|(_, count)| count)
        .sum();
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} mutants are judged wrongly; they are in {PLACE}").into()),
    }
}
