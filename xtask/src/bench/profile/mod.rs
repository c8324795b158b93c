//! `bench profile`: programs that start cold from images that are laid out by a profile of them.
//!
//! The kernel mounts each image from a loop device, or as a file that lies in an ext4 on one, and that device counts what
//! is read. A third way is a device that is as slow as a phone's storage. A profile is recorded once, from an image
//! without compression, where the kernel reads nothing but what is asked for. Then each program starts from an
//! image without profile and from one with it; and from both once more, after what the profile names of that program
//! has been asked for, in the order in which it lies in the image.

mod peers;
mod replay;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anteros_trace::profile::{Profile, Range};
use rustix::mount::MountFlags;

use super::caches::drop_caches;
use super::contest::{Contender, Contest};
use super::corpora::corpus;
use super::device::{LoopDevice, Store};
use super::findings::Findings;
use super::goal::{Bound, Goal};
use super::images::{Bench, FIXED};
use super::launch::{LARGE_PROGRAMS, PROGRAMS, Program, bound, seconds};
use super::mounted::{Mounted, mount};
use super::options::Options;
use super::part;
use super::report::{Comparison, Side, Unit, Yardstick};
use super::throttle::{Speed, Throttle};
use crate::outcome::Outcome;
use crate::run::{run, words};
use replay::Plan;

/// The options of the images: none are those of the preset `balanced`.
const CONFIGURATIONS: [&[&str]; 3] = [&[], &["-Efragments"], &["-Eall-fragments", "-C256K"]];

/// Ten small programs, as one would start from a script at boot.
const BOOT: Program = (
    "ten small programs",
    &[
        "/bin/sh",
        "-ec",
        "ls /; date; uname -a; id; cat /etc/passwd; stat /; sort /etc/group; wc /etc/group; sed q /etc/group; grep root /etc/passwd",
    ],
);

/// The program that reads all of a large file, for which nothing can be laid out.
const READS_ALL: &str = "git hash-object";

const REPLAYED: &str = "laid out, replayed";
const LAID_OUT: &str = "laid out";
const UNGUIDED: &str = "unguided";
const EROFS_UTILS: &str = "erofs-utils";
const SQUASHFS: &str = "squashfs -sort";

/// The extension of the image of the latter.
const SQUASHFS_EXTENSION: &str = "squashfs";

const BY_UNGUIDED: &[Yardstick] = &[Yardstick {
    label: "of unguided",
    side: UNGUIDED,
}];

/// The ways to mount an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Device,
    File,
    Slow,
}

const WAYS: [(&str, Way); 3] = [
    ("device", Way::Device),
    ("file", Way::File),
    ("slow device", Way::Slow),
];

const BYTES: &str = "cold start: bytes read";
const REQUESTS: &str = "cold start: requests to read";
const TIME: &str = "cold start: wall time";
const PHONE: &str = "cold start: time of a phone's storage";

const METRICS: [(&str, Unit); 4] = [
    (BYTES, Unit::Bytes),
    (REQUESTS, Unit::Count),
    (TIME, Unit::Seconds),
    (PHONE, Unit::Seconds),
];

/// The share of the bytes, and of the requests, of a start without profile that a replayed one is to need.
const BYTES_SHARE_MAX: f64 = 0.5;
const REQUESTS_SHARE_MAX: f64 = 0.2;

/// An image as programs start from it.
struct Start<'a> {
    name: &'static str,
    place: &'a Place,
    command: &'a str,
    /// Tells what is asked for before.
    plan: Option<Plan>,
}

/// The place of an image.
enum Place {
    /// In memory, from where it goes to a device of its own.
    Device(PathBuf),
    File(Store),
    /// In memory, from where it goes to a device that is as slow as a phone's.
    Slow(PathBuf),
}

impl Place {
    fn new(bench: &Bench, way: Way, image: &Path, name: &str) -> Outcome<Self> {
        match way {
            Way::Device => return Ok(Self::Device(image.to_owned())),
            Way::Slow => return Ok(Self::Slow(image.to_owned())),
            Way::File => {}
        }
        let scratch = bench.path(name);
        fs::create_dir_all(&scratch)?;
        Ok(Self::File(Store::of(image, &scratch)?))
    }

    fn image(&self) -> &Path {
        match self {
            Self::Device(image) | Self::Slow(image) => image,
            Self::File(store) => store.image(),
        }
    }
}

impl Contender for Start<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn command(&self) -> String {
        self.command.to_owned()
    }
}

/// Runs the benchmark.
///
/// # Errors
/// When a program or a corpus cannot be had, a command fails, or the kernel does not tell what it reads.
pub(super) fn profile(options: &Options) -> Outcome<Findings> {
    let ways = part::chosen(&WAYS, &options.only)?;
    let bench = Bench::new(options)?;
    let (mut comparisons, mut notes) = (Vec::new(), Vec::new());
    for name in options.corpora_or(&["apps"]) {
        let of_corpus = of_corpus(&bench, &name, &ways, &mut notes)?;
        comparisons.extend(of_corpus);
    }
    let goals = goals(&comparisons);
    let findings = bench.finish(comparisons)?;
    Ok(Findings {
        notes,
        goals,
        ..findings
    })
}

/// The programs that start from a corpus.
fn programs_of(corpus: &str) -> Vec<&'static Program> {
    let programs = match corpus {
        "programs" => &LARGE_PROGRAMS,
        _ => &PROGRAMS,
    };
    let programs = programs.iter().filter(|(name, _)| *name != READS_ALL);
    programs.chain([&BOOT]).collect()
}

/// The options of images of a corpus: of a large one, the usual ones alone.
fn configurations_of(corpus: &str) -> &'static [&'static [&'static str]] {
    match corpus {
        "programs" => &CONFIGURATIONS[..1],
        _ => &CONFIGURATIONS,
    }
}

/// Compares starts from images of a corpus.
fn of_corpus(
    bench: &Bench,
    name: &str,
    ways: &[(&str, Way)],
    notes: &mut Vec<String>,
) -> Outcome<Vec<Comparison>> {
    let programs = programs_of(name);
    let corpus = corpus(name)?;
    let bare = bench.path("bare.erofs");
    build(bench, &["-znone"], None, &bare, &corpus)?;
    let mut rounds = Vec::new();
    for (name, program) in &programs {
        eprintln!("bench profile: recording {name}");
        let path = bench.path(&format!("profile-{}", rounds.len()));
        let profile = record(bench, &bare, program, &path)?;
        let bytes: u64 = profile.ranges.iter().map(|range| range.len).sum();
        let ranges = profile.ranges.len();
        notes.push(format!(
            "{name} reads {:.1} MB in {ranges} ranges",
            bytes as f64 / 1e6
        ));
        rounds.push((path, profile.ranges));
    }
    fs::remove_file(&bare)?;
    let path = bench.path("profile");
    let mut merge = bench.anteros("profile");
    merge.arg("merge").args(rounds.iter().map(|(path, _)| path));
    run(merge.arg("-o").arg(&path))?;
    let mut comparisons = Vec::new();
    let all = Profile::read(fs::File::open(&path)?)?.ranges;
    for configuration in configurations_of(name) {
        let subject = match configuration {
            [] => name.to_owned(),
            _ => format!("{name} {}", configuration.join(" ")),
        };
        let [unguided, laid_out] =
            ["unguided.erofs", "laid-out.erofs"].map(|name| bench.path(name));
        eprintln!("bench profile: building {subject}");
        let commands = [
            build(bench, configuration, None, &unguided, &corpus)?,
            build(bench, configuration, Some(&path), &laid_out, &corpus)?,
        ];
        let others = match configuration {
            [] => others(bench, &corpus, &all)?,
            _ => Vec::new(),
        };
        let mut built = vec![
            (LAID_OUT, &*laid_out, &*commands[1]),
            (UNGUIDED, &unguided, &commands[0]),
        ];
        built.extend(
            others
                .iter()
                .map(|(name, place, command)| (*name, place.image(), &**command)),
        );
        comparisons.push(sizes(&subject, &built)?);
        for &(way, of) in ways {
            let [unguided, laid_out] = [(&unguided, "plain"), (&laid_out, "swept")]
                .map(|(image, name)| Place::new(bench, of, image, name));
            let (unguided, laid_out) = (unguided?, laid_out?);
            for ((name, program), (_, ranges)) in programs.iter().zip(&rounds) {
                let subject = format!("{subject}, {way}: {name}");
                eprintln!("bench profile: {subject}");
                let plan =
                    |place: &Place| Plan::new(&bench.anteros, place.image(), ranges).map(Some);
                let start = |name, place, command, plan| Start {
                    name,
                    place,
                    command,
                    plan,
                };
                let mut starts = vec![
                    start(REPLAYED, &laid_out, &*commands[1], plan(&laid_out)?),
                    start(LAID_OUT, &laid_out, &commands[1], None),
                    start(
                        "unguided, replayed",
                        &unguided,
                        &commands[0],
                        plan(&unguided)?,
                    ),
                    start(UNGUIDED, &unguided, &commands[0], None),
                ];
                if of == Way::Device {
                    let others = others.iter();
                    starts.extend(
                        others.map(|(name, place, command)| start(name, place, command, None)),
                    );
                }
                let contest = Contest {
                    metrics: &METRICS.map(|(metric, unit)| (metric.to_owned(), unit)),
                    subject: &subject,
                    at: None,
                    yardsticks: BY_UNGUIDED,
                    runs: bench.runs(),
                };
                comparisons.extend(contest.hold(&starts, |start| turn(bench, start, program)));
            }
        }
    }
    Ok(comparisons)
}

/// Images of others: what they are called, their places, and the commands that made them.
fn others(
    bench: &Bench,
    corpus: &Path,
    ranges: &[Range],
) -> Outcome<Vec<(&'static str, Place, String)>> {
    let erofs = bench.path("peer.erofs");
    let squashfs = bench.path("peer").with_extension(SQUASHFS_EXTENSION);
    let commands = [
        peers::erofs(corpus, &erofs)?,
        peers::squashfs(bench, corpus, ranges, &squashfs)?,
    ];
    let [erofs_command, squashfs_command] = commands;
    Ok(vec![
        (EROFS_UTILS, Place::Device(erofs), erofs_command),
        (SQUASHFS, Place::Device(squashfs), squashfs_command),
    ])
}

/// Builds an image; tells the command.
fn build(
    bench: &Bench,
    options: &[&str],
    profile: Option<&Path>,
    image: &Path,
    corpus: &Path,
) -> Outcome<String> {
    let mut mkfs = bench.anteros("mkfs");
    mkfs.args(FIXED).arg("--quiet").args(options);
    if let Some(profile) = profile {
        mkfs.arg("--profile").arg(profile);
    }
    mkfs.arg(image).arg(corpus);
    run(&mut mkfs)?;
    Ok(words(&mkfs))
}

/// An image that the kernel has mounted.
struct Image {
    // Dropped in this order.
    _mounted: Mounted,
    /// A device of its own, if it has one.
    device: Option<LoopDevice>,
    _throttle: Option<Throttle>,
    directory: PathBuf,
}

impl Image {
    fn new(bench: &Bench, place: &Place) -> Outcome<Self> {
        let directory = bench.path("mount");
        fs::create_dir_all(&directory)?;
        let throttle = match place {
            Place::Slow(_) => Some(slowed(bench)?),
            Place::Device(_) | Place::File(_) => None,
        };
        let device = match (place, &throttle) {
            (Place::File(_), _) => None,
            (_, None) => Some(LoopDevice::attach(place.image(), false, false)?),
            (_, Some(slow)) => {
                let name = place.image().file_name().unwrap_or_default();
                Some(LoopDevice::attach(
                    &slow.directory().join(name),
                    true,
                    false,
                )?)
            }
        };
        let source = device.as_ref().map_or(place.image(), LoopDevice::node);
        let is_squashfs = place
            .image()
            .extension()
            .is_some_and(|e| e == SQUASHFS_EXTENSION);
        let kind = if is_squashfs { "squashfs" } else { "erofs" };
        let mounted = mount(source, &directory, kind, MountFlags::RDONLY, None)?;
        Ok(Self {
            _mounted: mounted,
            device,
            _throttle: throttle,
            directory,
        })
    }

    /// The device from which it is read, and what is mounted.
    fn read_from<'a>(&'a self, place: &'a Place) -> (&'a LoopDevice, &'a Path) {
        match (&self.device, place) {
            (Some(device), _) => (device, device.node()),
            (None, Place::File(store)) => (store.device(), store.image()),
            (None, Place::Device(_) | Place::Slow(_)) => {
                unreachable!("it has a device of its own")
            }
        }
    }
}

/// The directory of the images, where they are as slow to read as on a phone.
fn slowed(bench: &Bench) -> Outcome<Throttle> {
    let directory = bench.path("slow");
    let source = directory.parent().unwrap_or(&directory);
    Throttle::mount(source, &directory, Speed::PHONE)
}

/// Records one start of a program.
fn record(bench: &Bench, image: &Path, program: &[&str], path: &Path) -> Outcome<Profile> {
    let image = Image::new(bench, &Place::Device(image.to_owned()))?;
    let _bound = bound(&image.directory)?;
    let _scratch = scratch(&image.directory)?;
    let mut record = bench.anteros("profile");
    record
        .args(["record", "--cold", "--mount"])
        .arg(&image.directory);
    record.arg("-o").arg(path).args(["--", "chroot"]);
    record.arg(&image.directory).args(program);
    run(record
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::null()))?;
    Ok(Profile::read(fs::File::open(path)?)?)
}

/// Room in memory for what a program writes.
fn scratch(image: &Path) -> Outcome<Mounted> {
    let directory = image.join("tmp");
    mount(
        Path::new("tmpfs"),
        &directory,
        "tmpfs",
        MountFlags::empty(),
        None,
    )
}

/// Starts a program cold: bytes and requests that reach the device, and time.
fn turn(bench: &Bench, start: &Start<'_>, program: &[&str]) -> Outcome<Vec<f64>> {
    let image = Image::new(bench, start.place)?;
    let _scratch = scratch(&image.directory)?;
    let (device, mounted) = image.read_from(start.place);
    drop_caches()?;
    let before = device.traffic()?;
    let began = Instant::now();
    if let Some(plan) = &start.plan {
        plan.replay(&image.directory, mounted)?;
    }
    let asked = began.elapsed().as_secs_f64();
    let started = seconds(&image.directory, program, None)?;
    let after = device.traffic()?;
    Ok(vec![
        (after.bytes_read - before.bytes_read) as f64,
        (after.reads - before.reads) as f64,
        asked + started,
        after.phone_seconds_since(&before),
    ])
}

/// The sizes of images: names, places, commands; the first one ours.
fn sizes(subject: &str, images: &[(&str, &Path, &str)]) -> Outcome<Comparison> {
    let mut sides = Vec::new();
    for (name, image, command) in images {
        let bytes = fs::metadata(image)?.len();
        sides.push(Side {
            name: (*name).to_owned(),
            command: (*command).to_owned(),
            figures: Ok(vec![bytes as f64]),
        });
    }
    Ok(Comparison {
        metric: "size of the image".to_owned(),
        subject: subject.to_owned(),
        at: None,
        unit: Unit::Bytes,
        yardsticks: BY_UNGUIDED,
        sides,
    })
}

/// Goals, and what was found of them.
fn goals(comparisons: &[Comparison]) -> Vec<Goal> {
    let found = |metric: &str, side: &str| {
        let of_metric = comparisons
            .iter()
            .filter(|comparison| comparison.metric == metric);
        of_metric
            .filter_map(|comparison| {
                let share =
                    comparison.side(side)?.median()? / comparison.side(UNGUIDED)?.median()?;
                Some((comparison.subject.clone(), share))
            })
            .collect()
    };
    let goal = |what: &str, metric, side, most| Goal {
        what: format!("{what}, of unguided"),
        bound: Bound::AtMost(most),
        found: found(metric, side),
    };
    vec![
        goal(
            "bytes of a replayed start",
            BYTES,
            REPLAYED,
            BYTES_SHARE_MAX,
        ),
        goal(
            "requests of a replayed start",
            REQUESTS,
            REPLAYED,
            REQUESTS_SHARE_MAX,
        ),
        goal("time of a replayed start", TIME, REPLAYED, 1.0),
        goal(
            "bytes of a start from a laid-out image",
            BYTES,
            LAID_OUT,
            1.0,
        ),
        goal(
            "requests of a start from a laid-out image",
            REQUESTS,
            LAID_OUT,
            1.0,
        ),
        goal(
            "size of a laid-out image",
            "size of the image",
            LAID_OUT,
            1.01,
        ),
    ]
}
