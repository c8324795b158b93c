//! Images that we build, and all their judges.
//!
//! The tree that went in must come out of the kernel's mount, of what `fsck.erofs` extracts, and of our own reader;
//! and our own check must find nothing to say.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{InodeForm, Options, Summary};
use anteros_image::{CheckOptions, Image, ImageFs, check};
use tempfile::TempDir;

use crate::host::HostFs;
use crate::judge::{has_kernel, is_root};
use crate::manifest::{Column, difference, edit, holes, manifest};
use crate::mount::{KernelMount, run};
use crate::peers::Peers;
use crate::{scratch, try_open};

/// The largest blocks that the kernel and `fsck.erofs` read, as bits: a page of 4 KiB.
const JUDGED_BLOCK_BITS_MAX: u8 = 12;

/// More than that is not extracted: fsck.erofs 1.9.4 writes holes as zeros.
const EXTRACTED_BYTES_MAX: u64 = 1 << 30;

/// The judges that there are, and a place for their work.
pub struct Judges {
    peers: Option<Peers>,
    has_kernel: bool,
    scratch: PathBuf,
}

/// An image that we have built, as long as the value lives.
pub struct Built {
    dir: TempDir,
    image: PathBuf,
    /// Holds what the builder said of it.
    pub summary: Summary,
    offset: u64,
}

/// Holds what went in: a directory, and its manifest.
pub struct Source {
    /// The directory.
    pub path: PathBuf,
    /// As [`manifest`] has it.
    pub manifest: String,
}

impl Source {
    /// Describes a directory.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            manifest: manifest(&HostFs::new(path)).unwrap(),
        }
    }
}

impl Judges {
    /// Finds the judges, and says which are missing.
    pub fn find() -> Self {
        Self {
            peers: Peers::find(),
            has_kernel: has_kernel(),
            scratch: scratch(),
        }
    }

    /// Builds an image, and has it judged by all.
    ///
    /// # Errors
    ///
    /// What the builder says, or how the judges differ, each by name.
    pub fn judge(&self, source: &Source, options: &Options) -> Result<Summary, String> {
        let built = self.build(&source.path, options)?;
        let expected = expected(&source.manifest, options);
        built.reads_as(&expected)?;
        built.has_no_fault()?;
        if options.block_bits <= JUDGED_BLOCK_BITS_MAX {
            self.compare(&built, &expected)?;
        }
        Ok(built.summary)
    }

    /// The kernel and `fsck.erofs` accept the image, and what they show is the tree with this manifest.
    ///
    /// # Errors
    ///
    /// What they say, or how the trees differ.
    pub fn compare(&self, built: &Built, expected: &str) -> Result<(), String> {
        self.kernel(built, expected)?;
        self.fsck(built, expected)
    }

    /// Builds an image.
    ///
    /// # Errors
    ///
    /// What the builder says, or that the image has not the size it says.
    pub fn build(&self, source: &Path, options: &Options) -> Result<Built, String> {
        let dir = TempDir::new_in(&self.scratch).unwrap();
        let image = dir.path().join("image");
        let never = AtomicBool::new(false);
        let summary = anteros_build::build(&image, source, options, &(), &never);
        let summary = summary.map_err(|error| format!("build: {error}"))?;
        let bytes = std::fs::metadata(&image).unwrap().len();
        // A hash tree follows.
        if summary.verity.is_none() && bytes != options.offset + summary.image_bytes {
            let said = summary.image_bytes;
            return Err(format!("build: the image has {bytes} bytes, not {said}"));
        }
        Ok(Built {
            dir,
            image,
            summary,
            offset: options.offset,
        })
    }

    /// Mounts an image, if the kernel can be a judge.
    ///
    /// # Errors
    ///
    /// What `mount` says.
    pub fn mount(&self, built: &Built) -> Result<Option<KernelMount>, String> {
        let mount = || KernelMount::at_offset(&built.image, built.offset, &[]);
        let mount = self.has_kernel.then(mount).transpose();
        mount.map_err(|error| format!("kernel: {error}"))
    }

    /// The kernel shows the tree, and holes where our reader does.
    fn kernel(&self, built: &Built, expected: &str) -> Result<(), String> {
        let Some(mount) = self.mount(built)? else {
            return Ok(());
        };
        let kernel = HostFs::new(mount.path());
        let found = manifest(&kernel).map_err(|error| format!("kernel: {error}"))?;
        same("kernel", &found, expected)?;
        let [ours, theirs] = [holes(&built.fs()?), holes(&kernel)];
        same("holes as in the kernel", &ours.unwrap(), &theirs.unwrap())
    }

    /// `fsck.erofs` accepts the image, and what it extracts is the tree.
    fn fsck(&self, built: &Built, expected: &str) -> Result<(), String> {
        let Some(peers) = &self.peers else {
            return Ok(());
        };
        let extracted = built.dir.path().join("extracted");
        let mut command = peers.command("fsck.erofs");
        command.arg("-d1");
        command.arg(format!("--offset={}", built.offset));
        // What somebody else than root extracts belongs to him.
        let mut extracts = is_root() && built.summary.input_bytes <= EXTRACTED_BYTES_MAX;
        let superblock = built.open()?.superblock().clone();
        if superblock.metabox.is_some() && superblock.incompat.names().contains(&"ztailpacking") {
            // As with `without_content`, but it says so and fails.
            extracts = false;
        } else if extracts {
            command.args(["--xattrs", "--preserve-perms"]);
            command.arg(format!("--extract={}", extracted.display()));
        } else {
            command.arg("--extract");
        }
        run(command.arg(&built.image)).map_err(|error| format!("fsck.erofs: {error}"))?;
        if !extracts {
            return Ok(());
        }
        let found = manifest(&HostFs::new(&extracted)).unwrap();
        let expected = as_fsck_extracts(expected);
        match superblock.metabox {
            Some(_) => same(
                "fsck.erofs",
                &without_content(&found),
                &without_content(&expected),
            ),
            None => same("fsck.erofs", &found, &expected),
        }
    }
}

impl Built {
    /// Path of the image.
    pub fn path(&self) -> &Path {
        &self.image
    }

    /// The image, opened by our reader.
    ///
    /// # Errors
    ///
    /// Why it does not open.
    pub fn open(&self) -> Result<Image, String> {
        let image = try_open(&self.image, self.offset, &[]);
        image.map_err(|error| format!("our reader: {error}"))
    }

    /// The image as our reader sees it.
    ///
    /// # Errors
    ///
    /// Why it does not open.
    pub fn fs(&self) -> Result<ImageFs, String> {
        Ok(ImageFs::new(Arc::new(self.open()?)))
    }

    fn reads_as(&self, expected: &str) -> Result<(), String> {
        let found = manifest(&self.fs()?).map_err(|error| format!("our reader: {error}"))?;
        same("our reader", &found, expected)
    }

    /// Our own check finds nothing, not even something worth a note.
    ///
    /// # Errors
    ///
    /// What it finds.
    pub fn has_no_fault(&self) -> Result<(), String> {
        let never = AtomicBool::new(false);
        let report = check(&self.open()?, &CheckOptions::default(), &(), &never);
        match report.findings.is_empty() && report.is_clean() {
            true => Ok(()),
            false => Err(format!("our check: {:#?}", report.findings)),
        }
    }
}

/// Says how the trees differ that a judge found and expected.
///
/// # Errors
///
/// The difference.
pub fn same(judge: &str, found: &str, expected: &str) -> Result<(), String> {
    match difference(found, expected) {
        None => Ok(()),
        Some(difference) => Err(format!("{judge}: {difference}")),
    }
}

/// The manifest of a tree as the options would have it. Exclusions are matched against escaped paths.
fn expected(source: &str, options: &Options) -> String {
    let kept = edit(source, |columns| {
        let path = &columns[Column::Path as usize].as_bytes()[1..];
        if path != b"" && options.exclude.iter().any(|e| e.matches(path)) {
            return false;
        }
        if options.xattr_share_above.is_none() {
            columns[Column::Xattrs as usize] = "-".into();
        }
        if options.hard_dereference && columns[Column::Kind as usize] != "d" {
            columns[Column::Nlink as usize] = "1".into();
        }
        for (column, forced, offset) in [
            (Column::Uid, options.force_uid, options.uid_offset),
            (Column::Gid, options.force_gid, options.gid_offset),
        ] {
            let id = &mut columns[column as usize];
            *id = (forced.unwrap_or_else(|| id.parse().unwrap()) + offset).to_string();
        }
        let time = &mut columns[Column::Mtime as usize];
        if let Some(secs) = options.fixed_time {
            *time = format!("{secs}.000000000");
        } else if let Some(limit) = options.clamp_time.filter(|limit| (*limit, 0) < parts(time)) {
            *time = format!("{limit}.000000000");
        }
        true
    });
    without_times(&kept, options)
}

/// Seconds and nanoseconds of a manifest's time.
fn parts(time: &str) -> (i64, u32) {
    let (secs, nanos) = time.split_once('.').unwrap();
    (secs.parse().unwrap(), nanos.parse().unwrap())
}

/// Gives all inodes the most common time, if the options leave them no place for their own. In a wide image there is one
/// for whole seconds that lie no further apart than those of the tree of everything.
fn without_times(kept: &str, options: &Options) -> String {
    let is_auto = options.inode_form == InodeForm::Auto;
    let is_compact = options.inode_form == InodeForm::Compact;
    if !(is_compact || is_auto && options.ignore_mtime) {
        return kept.to_owned();
    }
    let mut counts = HashMap::<_, u32>::new();
    for line in kept.lines() {
        *counts
            .entry(line.split('\t').nth(Column::Mtime as usize))
            .or_default() += 1;
    }
    let (epoch, _) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
    let is_wide = options.wide || options.dot_omitted || options.metabox.is_some();
    let has_place = |time: &str| is_wide && parts(time).1 == parts(epoch.unwrap()).1;
    edit(kept, |columns| {
        let fits = |column| columns[column as usize].parse::<u16>().is_ok();
        let is_compact = is_compact || fits(Column::Uid) && fits(Column::Gid);
        if is_compact && !has_place(&columns[Column::Mtime as usize]) {
            columns[Column::Mtime as usize] = epoch.unwrap().into();
        }
        true
    })
}

/// fsck.erofs and erofsfuse 1.9.4 look for chunk tables, inline data and inline tails of a metabox elsewhere, also in images of
/// mkfs.erofs.
fn without_content(manifest: &str) -> String {
    edit(manifest, |columns| {
        columns[Column::Content as usize] = "-".into();
        true
    })
}

/// fsck.erofs 1.9.4 sets no attribute with an empty value, nor any behind it, and loses `security.capability`, which
/// it sets before the owner.
fn as_fsck_extracts(manifest: &str) -> String {
    edit(manifest, |columns| {
        let xattrs = &mut columns[Column::Xattrs as usize];
        let kept = xattrs.split(',');
        let kept = kept.filter(|x| !x.ends_with('=') && !x.starts_with("security.capability="));
        let kept: Vec<_> = kept.collect();
        *xattrs = if kept.is_empty() {
            "-".into()
        } else {
            kept.join(",")
        };
        true
    })
}
