//! Media of which one block cannot be read, as each command and each reader of a mount meets them: the block is named,
//! all else is read, the exit status is right, and once the block can be read again so is all.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use anteros_core::{Device, FileKind};
use anteros_image::{Image, OpenOptions};
use anteros_tests::faulty::{Call, Faulty, When};
use anteros_tests::judge;
use anteros_tests::medium::Medium;
use anteros_tests::mount::FuseMount;
use rustix::io::Errno;

use crate::foreground::Foreground;
use crate::{Run, Workshop};

const BLOCK: u64 = 4096;
const EIO: i32 = 5;

/// A block of one of the files that an image lies in.
#[derive(Debug, Clone)]
struct Bad {
    file: &'static str,
    at: u64,
}

impl Bad {
    fn range(&self) -> Range<u64> {
        self.at..self.at + BLOCK
    }
}

/// An image on a medium of its own, with what is in it.
struct Patient {
    shop: Workshop,
    medium: Arc<Medium>,
    mount: FuseMount,
    /// By name, the image first.
    files: Vec<(&'static str, Vec<u8>)>,
    /// The content of each regular file, by path.
    contents: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Those that a mount keeps from whoever runs the tests.
    closed: BTreeSet<Vec<u8>>,
    /// The directory with all of it, extracted.
    source: PathBuf,
}

impl Patient {
    fn new(fixture: &str) -> Self {
        let path = anteros_tests::fixtures_dir().join(fixture);
        let mut files = vec![("image", fs::read(path.with_extension("erofs")).unwrap())];
        files.extend(
            fs::read(path.with_extension("blob"))
                .ok()
                .map(|blob| ("blob", blob)),
        );
        let medium = Medium::new(files.clone());
        let mut patient = Self {
            shop: Workshop::new(),
            mount: FuseMount::new(medium.clone()),
            medium,
            files,
            contents: BTreeMap::new(),
            closed: BTreeSet::new(),
            source: PathBuf::new(),
        };
        patient.source = patient.shop.path("whole");
        fs::create_dir(patient.shop.path("mnt")).unwrap();
        let whole = patient.run("extract --quiet", "whole");
        assert!(matches!(whole.status, Some(0 | 6)), "{whole:?}");
        let image = patient.image(None).unwrap();
        walk(&image, &mut |path, inode, image| {
            if inode.kind == FileKind::Regular {
                let map = image.map(inode).unwrap();
                let mut bytes = vec![0; inode.size as usize];
                image.read(inode, &map, 0, &mut bytes).unwrap();
                patient.contents.insert(path.to_vec(), bytes);
                if inode.perm & 0o444 == 0 && !judge::is_root() {
                    patient.closed.insert(path.to_vec());
                }
            }
        });
        for path in &patient.closed {
            let path = path.escape_ascii();
            judge::say(format_args!(
                "NOT READ through mounts (only root can): {path}"
            ));
        }
        patient
    }

    fn blocks(&self) -> Vec<Bad> {
        let blocks = self.files.iter().flat_map(|(file, bytes)| {
            let starts = (0..bytes.len() as u64).step_by(BLOCK as usize);
            starts.map(|at| Bad { file, at })
        });
        blocks.collect()
    }

    /// The image as our reader opens it, with a block that cannot be read.
    fn image(&self, bad: Option<&Bad>) -> anteros_image::Result<Image> {
        let devices = self.files.iter().map(|(name, bytes)| -> Arc<dyn Device> {
            let device = Faulty::new(bytes.clone());
            if let Some(bad) = bad.filter(|bad| bad.file == *name) {
                device.inject(Call::Read, When::Touching(bad.range()), Errno::IO);
            }
            Arc::new(device)
        });
        let mut devices: Vec<_> = devices.collect();
        let first = devices.remove(0);
        Image::open(first, devices, OpenOptions::default())
    }

    fn at(&self, file: &str) -> String {
        self.mount.path().join(file).display().to_string()
    }

    /// The image and its extra devices, as arguments.
    fn arguments(&self) -> String {
        let devices = self.files[1..].iter();
        let devices = devices.map(|(name, _)| format!("--device {} ", self.at(name)));
        devices.collect::<String>() + &self.at("image")
    }

    fn run(&self, command: &str, rest: &str) -> Run {
        self.shop
            .run(&format!("{command} {} {rest}", self.arguments()))
    }
}

/// Visits each path that can be reached.
fn walk(image: &Image, visit: &mut dyn FnMut(&[u8], &anteros_format::inode::Inode, &Image)) {
    let root = image.root().into_iter().map(|root| (Vec::new(), root));
    let mut pending: Vec<_> = root.collect();
    while let Some((path, dir)) = pending.pop() {
        for entry in image.read_dir(&dir).unwrap_or_default() {
            if matches!(&*entry.name, b"." | b"..") {
                continue;
            }
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [&path, slash, &entry.name].concat();
            let Ok(inode) = image.inode(entry.nid) else {
                continue;
            };
            visit(&path, &inode, image);
            if inode.kind == FileKind::Directory {
                pending.push((path, inode));
            }
        }
    }
}

/// Returns the ranges of each regular file that our reader can read.
fn readable(image: &Image) -> BTreeMap<Vec<u8>, Vec<Range<u64>>> {
    let mut found = BTreeMap::new();
    walk(image, &mut |path, inode, image| {
        if inode.kind != FileKind::Regular {
            return;
        }
        let mut ranges = Vec::new();
        if let Ok(map) = image.map(inode) {
            for extent in image.extents(inode, &map).map_while(Result::ok) {
                let mut buf = vec![0; extent.len as usize];
                if image.read(inode, &map, extent.offset, &mut buf).is_ok() {
                    ranges.push(extent.offset..extent.offset + extent.len);
                }
            }
        }
        found.insert(path.to_vec(), ranges);
    });
    found
}

/// Tells whether a range lies in others, which are in order.
fn covered(ranges: &[Range<u64>], wanted: Range<u64>) -> bool {
    let mut from = wanted.start;
    for range in ranges {
        if range.start <= from && from < range.end {
            from = range.end;
        }
    }
    from >= wanted.end
}

/// Judges a run: it names the block, and its exit status is one of those that are right.
#[track_caller]
fn judge_run(what: &str, bad: &Bad, place: &str, run: &Run, statuses: &[i32], is_lost: bool) {
    let said = format!("{}{}", run.out, run.err);
    let name = format!("{place}, block at byte {:#x}: ", bad.at);
    let status = run.status.unwrap_or(-1);
    assert!(!said.contains("panicked"), "{what}, {bad:?}: {said}");
    // Whoever is not root has some of any image left out.
    let is_part = matches!((what, status), ("extract", 6) | ("verify", 1)) && !judge::is_root();
    let is_good = status == 0 || is_part;
    assert!(
        is_good && !is_lost || statuses.contains(&status) && said.contains(&name),
        "{what}, {bad:?}, lost: {is_lost}: {run:?}"
    );
}

/// Reads a file page by page through a mount: what can be read is right, and only what lies on the block cannot.
fn read_pages(path: &Path, content: &[u8], good: Option<&[Range<u64>]>, place: &str) -> usize {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => {
            assert!(good.is_none(), "{place}: {}: {error}", path.display());
            assert_eq!(error.raw_os_error(), Some(EIO), "{place}");
            return 1;
        }
    };
    let mut lost = 0;
    for (start, page) in (0..)
        .step_by(BLOCK as usize)
        .zip(content.chunks(BLOCK as usize))
    {
        let mut buf = vec![0; page.len()];
        let range = start..start + page.len() as u64;
        match file.read_exact_at(&mut buf, start) {
            Ok(()) => assert!(buf == page, "{place}: {} at {start}", path.display()),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(EIO), "{place}");
                let is_good = good.is_some_and(|good| covered(good, range));
                assert!(!is_good, "{place}: {} at {start}", path.display());
                lost += 1;
            }
        }
    }
    lost
}

fn below(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(path))
}

/// Reads all through a mount while a block cannot be read, and again when it can.
fn read_mounted(patient: &Patient, bad: &Bad, good: &BTreeMap<Vec<u8>, Vec<Range<u64>>>) {
    let place = format!("mount, {bad:?}");
    let command = format!("mount --fuse --foreground {} mnt", patient.arguments());
    let daemon = Foreground::start(&patient.shop, &command);
    let is_served = daemon.is_served;
    let mnt = patient.shop.path("mnt");
    let mut lost = 0;
    let contents = || {
        let all = patient.contents.iter();
        all.filter(|(path, _)| !patient.closed.contains(*path))
    };
    if is_served {
        for (path, content) in contents() {
            let good = good.get(path).map(Vec::as_slice);
            lost += read_pages(&below(&mnt, path), content, good, &place);
        }
        patient.medium.heal();
        for (path, content) in contents() {
            let healed = format!("{place}, healed");
            let all = 0..u64::MAX;
            let left = read_pages(
                &below(&mnt, path),
                content,
                Some(slice::from_ref(&all)),
                &healed,
            );
            assert_eq!(left, 0, "{healed}");
        }
    }
    let (status, said) = daemon.end();
    let wanted = if is_served { Some(0) } else { Some(5) };
    let name = format!("{}, block at byte {:#x}: ", patient.at(bad.file), bad.at);
    let is_told = said.contains(&name) || is_served && lost == 0;
    assert!(
        is_told && status == wanted,
        "{place}, lost {lost}, {status:?}: {said}"
    );
}

/// Each command on an image of which a block cannot be read.
fn try_commands(patient: &Patient, bad: &Bad) {
    let scratch = || patient.medium.scratch(bad.file, bad.range());
    scratch();
    let place = patient.at(bad.file);
    let good = patient
        .image(Some(bad))
        .map(|image| readable(&image))
        .unwrap_or_default();
    let is_whole = |path: &Vec<u8>| {
        let len = patient.contents[path].len() as u64;
        good.get(path).is_some_and(|good| covered(good, 0..len))
    };
    let whole: Vec<_> = patient
        .contents
        .keys()
        .filter(|path| is_whole(path))
        .collect();
    let is_lost = whole.len() < patient.contents.len();
    let judge = |what: &str, run: &Run, statuses: &[i32], is_lost| {
        judge_run(what, bad, &place, run, statuses, is_lost);
    };

    judge("check", &patient.run("check", ""), &[5], is_lost);
    judge(
        "check --json",
        &patient.run("check --json", ""),
        &[5],
        is_lost,
    );
    let listed = patient.run("ls -lR", "");
    judge("ls", &listed, &[5, 6], good.len() < patient.contents.len());
    let simple = |path: &&Vec<u8>| path.iter().all(u8::is_ascii_graphic);
    for path in good.keys().filter(simple) {
        let path = String::from_utf8_lossy(path);
        assert!(
            listed.out.contains(&*path),
            "ls, {bad:?}: {path}: {listed:?}"
        );
    }
    judge("dump", &patient.run("dump -S -s", ""), &[5], false);
    judge(
        "dump --path",
        &patient.run("dump -e", "--path /"),
        &[5],
        false,
    );

    let paths: Vec<_> = patient.contents.keys().filter(simple).collect();
    let names: Vec<_> = paths
        .iter()
        .map(|path| String::from_utf8_lossy(path))
        .collect();
    let printed = patient.run_raw(&names.join(" "));
    judge(
        "cat",
        &printed.0,
        &[5, 6],
        paths.iter().any(|path| !whole.contains(path)),
    );
    let sum = |paths: &[&Vec<u8>]| {
        paths
            .iter()
            .map(|path| patient.contents[*path].len())
            .sum::<usize>()
    };
    let wanted: Vec<_> = paths
        .into_iter()
        .filter(|path| whole.contains(path))
        .collect();
    assert!(printed.1.len() >= sum(&wanted), "cat, {bad:?}");

    let out = patient.shop.path("out");
    let extracted = patient.run("extract --quiet --keep-going", "out");
    let statuses: &[i32] = if good.is_empty() { &[5, 6] } else { &[6] };
    judge("extract", &extracted, statuses, is_lost);
    for path in whole {
        let found = judge::read_extracted(&below(&out, path));
        let found = found.unwrap_or_else(|e| panic!("{bad:?}: {e}: {extracted:?}"));
        assert!(found == patient.contents[path], "extract, {bad:?}");
    }
    let _ = fs::remove_dir_all(&out);
    let source = patient.source.display().to_string();
    let verified = patient.run("verify --quiet", &source);
    judge("verify", &verified, &[1, 5], is_lost);
    read_mounted(patient, bad, &good);
    patient.medium.heal();
}

impl Patient {
    /// Prints files, which may hold what is no text.
    fn run_raw(&self, names: &str) -> (Run, Vec<u8>) {
        let mut command = self
            .shop
            .command(&format!("cat {} {names}", self.arguments()));
        let output = command.output().unwrap();
        let run = Run {
            status: output.status.code(),
            out: String::new(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        (run, output.stdout)
    }
}

#[test]
fn each_command_names_the_block_of_an_image_that_it_cannot_read() {
    if !judge::has_fuse() {
        return;
    }
    let patient = Patient::new("lz4hc-64k");
    let blocks = patient.blocks();
    // The superblock, metadata, data of some kinds.
    for index in [0, 2, 5, blocks.len() - 2] {
        try_commands(&patient, &blocks[index]);
    }
}

#[test]
#[ignore = "a campaign: all commands and a mount for each block of each fixture, a quarter of an hour"]
fn each_command_names_each_block_of_each_image() {
    if !judge::has_fuse() {
        return;
    }
    for (path, _) in anteros_tests::fixtures() {
        let patient = Patient::new(path.file_stem().unwrap().to_str().unwrap());
        for bad in patient.blocks() {
            try_commands(&patient, &bad);
        }
        judge::say(format_args!(
            "{}: each of {} blocks",
            path.display(),
            patient.blocks().len()
        ));
    }
}
