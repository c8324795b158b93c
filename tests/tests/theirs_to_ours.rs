//! Theirs to ours: mkfs.erofs over its options, each alone and each pair of them, always on the same tree. What it
//! makes, and its own fsck.erofs accepts, our reader reads as that tree.
//!
//! Pairs that mkfs.erofs refuses, or that its fsck.erofs cannot read, judge nobody; they are counted and printed. Some
//! images that fsck.erofs accepts do not hold their tree; of those the kernel must see what we see, or fail where we do.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anteros_image::{Image, ImageFs, check};
use anteros_tests::combine::{combinations, in_parallel};
use anteros_tests::host::HostFs;
use anteros_tests::judge::{has_kernel, say};
use anteros_tests::manifest::{Column, difference, edit, is_fault, manifest, manifest_with_faults};
use anteros_tests::mount::{KernelMount, run};
use anteros_tests::peers::Peers;
use anteros_tests::trees::Tree;
use anteros_tests::{scratch, time_kept_by_48bit, try_open};
use tempfile::TempDir;

/// Options, of which two of the same group do not go together. `{}` stands for a directory of the image's own.
const ATOMS: &[(&str, &str)] = &[
    ("block", "-b512"),
    ("block", "-b1024"),
    ("block", "-b2048"),
    ("codec", "-zlz4"),
    ("codec", "-zlz4hc,level=12"),
    ("codec", "-zlzma,level=1,dictsize=65536"),
    ("codec", "-zdeflate,level=9"),
    ("codec", "-zlibdeflate,level=6"),
    ("codec", "-zzstd,level=3"),
    ("codec", "-zlz4hc:zstd:lzma:deflate"),
    ("cluster", "-C8192"),
    ("cluster", "-C65536"),
    ("cluster", "-C1048576"),
    ("index", "-Elegacy-compress"),
    ("tail", "-Eztailpacking"),
    ("tail", "-Efragments"),
    ("tail", "-Efragments=4096"),
    ("tail", "-Eall-fragments"),
    ("tail-dedupe", "-Efragments,^fragdedupe"),
    ("tail-dedupe", "-Eall-fragments,fragdedupe=full"),
    ("tail-dedupe", "-Efragments,fragdedupe=inode"),
    ("dedupe", "-Ededupe"),
    ("address", "-E48bit"),
    ("address", "-Edot-omitted"),
    ("extent", "--max-extent-bytes=8192"),
    ("extent", "-E48bit --max-extent-bytes=-32768"),
    ("inode", "-Eforce-inode-compact --ignore-mtime --all-root"),
    ("inode", "-Eforce-inode-extended"),
    ("chunk", "--chunksize=4096"),
    ("chunk", "--chunksize=65536 -Eforce-inode-blockmap"),
    ("chunk", "--chunksize=4096 -Eforce-chunk-indexes"),
    ("chunk", "--chunksize=4096 --blobdev={}/blob"),
    ("inline", "-E^inline_data"),
    ("checksum", "-Enosbcrc"),
    ("xattr", "-x-1"),
    ("xattr", "-x0"),
    (
        "xattr",
        "-x1 --xattr-prefix=user.org.example. --xattr-prefix=trusted.overlay.",
    ),
    ("filter", "-E^xattr-name-filter"),
    ("prefix", "--xattr-prefix=user.num -Eplain-xattr-prefixes"),
    ("root-xattr", "--root-xattr-isize=300"),
    ("metadata", "-m4096"),
    ("metadata", "-m4096:1 --MZ=i"),
    ("metadata", "--MZ=id"),
    ("directories", "--zD"),
    ("align", "--dsunit=4"),
    ("align", "--fsalignblks=8"),
    ("offset", "--offset=8192"),
    ("owner", "--all-root"),
    ("owner", "--uid-offset=7 --gid-offset=70000"),
    ("links", "--hard-dereference"),
    ("hints", "--compress-hints={}/hints"),
    ("source", "--tar=f"),
    ("source", "--tar=i"),
    ("source", "--incremental=data"),
    ("source", "rebuild"),
    ("source", "rebuild --clean=data"),
];

/// Groups that mean something for compressed files only: they come with a codec.
const NEED_CODEC: &[&str] = &[
    "cluster",
    "index",
    "tail",
    "tail-dedupe",
    "dedupe",
    "extent",
    "metadata",
    "directories",
    "hints",
];

/// States what a pattern of a hint refers to, and its pcluster.
const HINTS: &str = "4096 ^data/mixed\n32768 ^data/text$\n0 ^data/same-text\n";

/// States what goes into the first image where it takes two to make one, and into the second: the tops of the tree.
const FIRST: [&str; 4] = ["data", "links", "names", "times"];
const SECOND: [&str; 6] = ["deep", "many", "modes", "nodes", "owners", "xattrs"];

/// Everything that images are made from, and where.
struct Workshop {
    peers: Peers,
    tree: Tree,
    tar: PathBuf,
    expected: String,
    dir: TempDir,
    has_kernel: bool,
}

/// Tells what became of a combination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Read,
    Refused,
    NotAcceptedByFsck,
    /// Not the tree, as the kernel says too.
    Spoiled,
    /// Not the tree, and there is no kernel to tell whose fault it is.
    Unclear,
    Wrong(String),
}

#[test]
fn what_mkfs_makes_reads_as_its_tree() {
    let Some(peers) = Peers::find() else { return };
    let workshop = Workshop::new(peers);
    let combinations = options();
    let start = Instant::now();
    let verdicts = in_parallel(&combinations, |options| workshop.judge(options));
    let mut counts = BTreeMap::<_, Vec<&str>>::new();
    for (options, verdict) in combinations.iter().zip(&verdicts) {
        counts.entry(verdict).or_default().push(options);
    }
    let count = |verdict| counts.get(&verdict).map_or(0, Vec::len);
    let read = count(Verdict::Read);
    say(format_args!(
        "theirs to ours: {read} images of {} combinations read as their tree in {} s; mkfs.erofs refused {}, \
         fsck.erofs did not accept {}, {} hold something else, as the kernel says too, or {} without it",
        combinations.len(),
        start.elapsed().as_secs(),
        count(Verdict::Refused),
        count(Verdict::NotAcceptedByFsck),
        count(Verdict::Spoiled),
        count(Verdict::Unclear),
    ));
    if std::env::var_os("ANTEROS_VERBOSE").is_some() {
        say(format_args!("{counts:#?}"));
    }
    let wrong = counts
        .iter()
        .filter(|(verdict, _)| matches!(verdict, Verdict::Wrong(_)));
    let wrong: Vec<_> = wrong
        .map(|(verdict, options)| format!("{options:?}: {verdict:?}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(read >= 150, "only {read} images were judged");
}

/// States what makes tails: compressed into the inode's block, into the packed inode, or into a block that they do not
/// fill.
const TAILS: [&str; 6] = [
    "-zlz4 -Eztailpacking",
    "-zlz4hc -Eztailpacking,legacy-compress",
    "-zlz4 -b512 -Eztailpacking",
    "-zlz4hc -C16384 -Eztailpacking",
    "-zlz4 -Efragments",
    "-zzstd,level=3 -Eztailpacking",
];

/// Files of a text that hardly shrinks, of all lengths from 20,000 bytes over two blocks in steps of 37.
fn tails(dir: &Path) {
    let mut state = 1_u64;
    let mut text = |len: usize| -> Vec<u8> {
        let mut letter = || {
            state = (state * 1_103_515_245 + 12_345) % (1 << 31);
            33 + (state >> 16) as u8 % 64
        };
        (0..len).map(|_| letter()).collect()
    };
    for len in (20_000..20_000 + 2 * 4096).step_by(37) {
        std::fs::write(dir.join(len.to_string()), text(len)).unwrap();
    }
}

#[test]
fn tails_of_every_length_are_clean() {
    let Some(peers) = Peers::find() else { return };
    let dir = TempDir::new_in(scratch()).unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    tails(&source);
    for options in TAILS {
        let image = dir.path().join("image");
        let mut command = peers.command("mkfs.erofs");
        command.args(["--quiet", "-d1"]).args(options.split(' '));
        run(command.arg(&image).arg(&source)).unwrap();
        let image = try_open(&image, 0, &[]).unwrap();
        let report = check(&image, &Default::default(), &(), &AtomicBool::new(false));
        assert!(report.is_clean(), "{options}: {:#?}", report.findings);
        assert!(report.inodes > 200, "{options}");
    }
}

/// The options of all combinations.
fn options() -> Vec<String> {
    let all = combinations(ATOMS, |(group, _)| group);
    let options = all.iter().map(|atoms| {
        let (groups, options): (Vec<_>, Vec<_>) = atoms.iter().copied().copied().unzip();
        with_codec(&groups, &options.join(" "))
    });
    options.collect()
}

fn with_codec(groups: &[&str], options: &str) -> String {
    let needed = groups.iter().any(|group| NEED_CODEC.contains(group));
    let given = groups.contains(&"codec");
    // Metadata may have a codec of its own, the second one.
    let codec = if options.contains(":1") {
        "-zlz4hc:zstd"
    } else {
        "-zlz4hc"
    };
    if needed && !given {
        format!("{codec} {options}")
    } else {
        options.to_owned()
    }
}

impl Workshop {
    fn new(peers: Peers) -> Self {
        let tree = Tree::everything();
        let dir = TempDir::new_in(scratch()).unwrap();
        let tar = dir.path().join("tree.tar");
        let mut command = Command::new("tar");
        command.args([
            "--format=posix",
            "--xattrs",
            "--xattrs-include=*",
            "--sort=name",
            "-cf",
        ]);
        run(command.arg(&tar).arg("-C").arg(tree.path()).arg(".")).unwrap();
        let expected = manifest(&HostFs::new(tree.path())).unwrap();
        Self {
            peers,
            tree,
            tar,
            expected,
            dir,
            has_kernel: has_kernel(),
        }
    }

    /// Makes an image with these options, and reads it.
    fn judge(&self, options: &str) -> Verdict {
        let dir = TempDir::new_in(self.dir.path()).unwrap();
        std::fs::write(dir.path().join("hints"), HINTS).unwrap();
        let place = options.replace("{}", dir.path().to_str().unwrap());
        let words: Vec<_> = place.split_whitespace().collect();
        let image = dir.path().join("image");
        let Some(extra) = self.make(&image, &words) else {
            return Verdict::Refused;
        };
        if !self.fsck(&image, &extra, &words) {
            return Verdict::NotAcceptedByFsck;
        }
        let expected = self.expected(&words);
        let read = || read(&image, &extra, &words, &expected);
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(None)) => Verdict::Read,
            Ok(Ok(Some(_)) | Err(_)) if !self.has_kernel => Verdict::Unclear,
            Ok(Ok(Some(difference)) | Err(difference)) => {
                arbitrate(&image, &extra, &words, &expected, difference)
            }
            Err(_) => Verdict::Wrong("panic".into()),
        }
    }

    /// Makes the image, and names its extra devices; `None` if mkfs.erofs will not.
    fn make(&self, image: &Path, words: &[&str]) -> Option<Vec<PathBuf>> {
        let tree = self.tree.path();
        let plain: Vec<_> = words.iter().copied().filter(|w| !is_source(w)).collect();
        if words.contains(&"--incremental=data") {
            self.mkfs(image, &plain, &[&without(&SECOND)], tree)?;
            self.mkfs(
                image,
                &plain,
                &[&["--incremental=data".into()], &without(&FIRST)],
                tree,
            )?;
        } else if words.contains(&"rebuild") {
            let (first, second) = (image.with_extension("1"), image.with_extension("2"));
            self.mkfs(
                &first,
                &plain,
                &[&["-E^inline_data".into()], &without(&SECOND)],
                tree,
            )?;
            self.mkfs(
                &second,
                &plain,
                &[&["-E^inline_data".into()], &without(&FIRST)],
                tree,
            )?;
            let clean = words.contains(&"--clean=data");
            let mut command = self.peers.command("mkfs.erofs");
            command
                .args(["--quiet", "-d1"])
                .args(plain)
                .args(clean.then_some("--clean=data"));
            run(command.arg(image).arg(&first).arg(&second)).ok()?;
            return Some(if clean {
                Vec::new()
            } else {
                vec![first, second]
            });
        } else if let Some(tar) = words.iter().find(|word| word.starts_with("--tar")) {
            self.mkfs(image, &plain, &[&[(*tar).into()]], &self.tar)?;
            if *tar == "--tar=i" {
                return Some(vec![self.tar.clone()]);
            }
        } else {
            self.mkfs(image, &plain, &[], tree)?;
        }
        let blob = image.with_file_name("blob");
        Some(blob.exists().then_some(blob).into_iter().collect())
    }

    fn mkfs(
        &self,
        image: &Path,
        options: &[&str],
        more: &[&[String]],
        source: &Path,
    ) -> Option<()> {
        let mut command = self.peers.command("mkfs.erofs");
        command.args(["--quiet", "-d1", "-T1700000000", "--mkfs-time"]);
        command
            .args(options)
            .args(more.concat())
            .arg(image)
            .arg(source);
        bounded(&mut command).then_some(())
    }

    fn fsck(&self, image: &Path, extra: &[PathBuf], words: &[&str]) -> bool {
        let mut command = self.peers.command("fsck.erofs");
        command.args(["-d1", "--extract"]);
        command.args(words.iter().filter(|word| word.starts_with("--offset")));
        for device in extra {
            command.arg(format!("--device={}", device.display()));
        }
        bounded(command.arg(image))
    }

    /// The manifest of the tree, as the options would have it.
    fn expected(&self, words: &[&str]) -> String {
        let has = |word: &str| words.contains(&word);
        let starts = |start: &str| words.iter().any(|word| word.starts_with(start));
        let from_archive = starts("--tar");
        edit(&self.expected, |columns| {
            // Archives and images come with attributes and links, which these options leave alone.
            if has("-x-1") && !from_archive {
                columns[Column::Xattrs as usize] = "-".into();
            }
            if has("--hard-dereference") && !from_archive && columns[Column::Kind as usize] == "f" {
                columns[Column::Nlink as usize] = "1".into();
            }
            for (column, offset) in [(Column::Uid, 7), (Column::Gid, 70_000)] {
                let id: u32 = columns[column as usize].parse().unwrap();
                if has("--all-root") {
                    columns[column as usize] = "0".into();
                } else if starts("--uid-offset") {
                    columns[column as usize] = id.wrapping_add(offset).to_string();
                }
            }
            // A tar archive keeps no sockets.
            !(from_archive && columns[Column::Kind as usize] == "s")
        })
    }
}

fn is_source(word: &str) -> bool {
    ["--tar", "--incremental", "--clean", "rebuild"]
        .iter()
        .any(|source| word.starts_with(source))
}

fn without(tops: &[&str]) -> Vec<String> {
    tops.iter()
        .map(|top| format!("--exclude-path={top}"))
        .collect()
}

/// Returns whether a program ends well within half a minute: some combinations send mkfs.erofs round in circles.
fn bounded(command: &mut Command) -> bool {
    let null = std::process::Stdio::null;
    let mut child = command
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns who is to blame that the image does not hold its tree.
///
/// mkfs.erofs, if the kernel sees what we see, and where we see a fault does not see the tree either: it may fail there
/// as well, or show a file that has lost something.
fn arbitrate(
    image: &Path,
    extra: &[PathBuf],
    words: &[&str],
    expected: &str,
    difference: String,
) -> Verdict {
    let mount = match KernelMount::at_offset(image, offset(words), extra) {
        Ok(mount) => mount,
        Err(error) if finds_no_image(&error) => return Verdict::Spoiled,
        Err(error) => return Verdict::Wrong(format!("{error}; {difference}")),
    };
    let theirs = manifest_with_faults(&HostFs::new(mount.path()));
    let ours = open(image, extra, words).map(|image| {
        let is_48bit = image.superblock().has_48bit();
        (
            manifest_with_faults(&ImageFs::new(Arc::new(image))),
            is_48bit,
        )
    });
    let agrees = match (ours, theirs) {
        (Ok((Ok(ours), is_48bit)), Ok(theirs)) => {
            let tree = with_times_kept(expected, &theirs, words, is_48bit);
            agree(&ours, &theirs, &tree)
        }
        // We refuse the image as a whole; the kernel may do so later.
        (Err(_), Ok(theirs)) => theirs.lines().any(is_fault),
        (Err(_) | Ok((Err(_), _)), Err(_)) => true,
        (Ok(_), _) => false,
    };
    match agrees {
        true => Verdict::Spoiled,
        false => Verdict::Wrong(difference),
    }
}

/// Returns whether two manifests are the same, but for faults in `ours` where `theirs` is not as the tree.
fn agree(ours: &str, theirs: &str, tree: &str) -> bool {
    let tree: HashSet<_> = tree.lines().collect();
    ours.lines().count() == theirs.lines().count()
        && ours.lines().zip(theirs.lines()).all(|(ours, theirs)| {
            let path = |line: &str| line.split('\t').next().map(str::to_owned);
            let both_fail = is_fault(ours) && path(ours) == path(theirs) && !tree.contains(theirs);
            ours == theirs || both_fail
        })
}

/// Returns whether `mount` failed because of the image: `EINVAL` or `EUCLEAN`.
fn finds_no_image(error: &std::io::Error) -> bool {
    let text = error.to_string();
    text.contains("bad superblock") || text.contains("Structure needs cleaning")
}

fn offset(words: &[&str]) -> u64 {
    let offset = words.iter().find_map(|word| word.strip_prefix("--offset="));
    offset.map_or(0, |offset| offset.parse().unwrap())
}

fn open(image: &Path, extra: &[PathBuf], words: &[&str]) -> anteros_image::Result<Image> {
    try_open(image, offset(words), extra)
}

/// Reads an image, and says how it differs from what it should be.
fn read(
    image: &Path,
    extra: &[PathBuf],
    words: &[&str],
    expected: &str,
) -> Result<Option<String>, String> {
    let image = open(image, extra, words).map_err(|e| e.to_string())?;
    let report = check(&image, &Default::default(), &(), &AtomicBool::new(false));
    if !report.is_clean() {
        return Err(format!("a check finds {:?}", report.findings));
    }
    let is_48bit = image.superblock().has_48bit();
    let found = manifest(&ImageFs::new(Arc::new(image))).map_err(|e| e.to_string())?;
    let expected = with_times_kept(expected, &found, words, is_48bit);
    // What images are rebuilt into has a root of its own.
    if words.contains(&"rebuild") {
        let below = |manifest: &str| manifest.split_once('\n').unwrap().1.to_owned();
        return Ok(difference(&below(&found), &below(&expected)));
    }
    Ok(difference(&found, &expected))
}

/// The manifest `expected` with the times of `found`, where that is all the options let an inode keep.
fn with_times_kept(expected: &str, found: &str, words: &[&str], is_48bit: bool) -> String {
    let times = found.lines().map(|line| {
        line.split('\t')
            .nth(Column::Mtime as usize)
            .unwrap_or_default()
    });
    let times = std::cell::RefCell::new(times);
    edit(expected, |columns| {
        let time = &mut columns[Column::Mtime as usize];
        let found = times.borrow_mut().next().unwrap_or_default();
        let in_48bit = is_48bit && found == time_kept_by_48bit(time);
        if in_48bit || words.contains(&"--ignore-mtime") && found == "1700000000.000000000" {
            *time = found.into();
        }
        true
    })
}
