//! `fsck.erofs`: checks an image, and extracts it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anteros_format::Nid;
use anteros_image::statistics;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use super::arguments::{number, parsed, with_status_1};
use crate::args::ImageArgs;
use crate::command::{check, extract};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

pub const FSCK: &str = "fsck.erofs";

/// States what the program prints under this name for `-V`.
const VERSION: &str = concat!(
    "fsck.erofs (anteros) ",
    env!("CARGO_PKG_VERSION"),
    "\navailable decompressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n"
);

/// From this level on it is said that all is well.
const INFO: u8 = 3;

/// Check an image, and with --extract=DIRECTORY write its files there
///
/// Without --extract, file data is not read. Exits with 0 if nothing is wrong, else with 1.
#[derive(Debug, clap::Parser)]
#[command(name = FSCK, disable_version_flag = true, args_override_self = true, max_term_width = 100)]
struct Args {
    /// The image: a file or a block device
    #[arg(required_unless_present = "version")]
    image: Option<PathBuf>,

    /// Print the version and the algorithms
    #[arg(short = 'V', long, exclusive = true)]
    version: bool,

    /// Level of messages: from 3 on also that nothing is wrong
    #[arg(short = 'd', value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=9))]
    level: u8,

    /// Print the share that the data of all files takes of its size
    #[arg(short = 'p')]
    ratio: bool,

    /// An extra device of a multi-device image; repeat it for each, in order
    #[arg(long = "device", value_name = "FILE")]
    devices: Vec<PathBuf>,

    /// Read and decode all files, and write them into a directory if one is told
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    extract: Option<OsString>,

    /// Byte of the file at which the image begins
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = number)]
    offset: u64,

    /// Extract only this path of the image and what is below it; all of the image is checked
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,

    /// Extract only the inode with this number and what is below it, unless a path is told
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    nid: Option<u64>,

    /// Do not refuse an image whose superblock checksum is wrong
    #[arg(long)]
    no_sbcrc: bool,

    /// Set extended attributes
    #[arg(long, overrides_with = "no_xattrs")]
    xattrs: bool,

    /// Set no extended attributes, which is the default
    #[arg(long, overrides_with = "xattrs")]
    no_xattrs: bool,

    /// Let files be extracted to /
    #[arg(long)]
    force: bool,

    /// Replace what exists
    #[arg(long)]
    overwrite: bool,

    /// Keep owners and permissions, the default of root
    #[arg(long)]
    preserve: bool,

    /// Keep neither, the default of others
    #[arg(long)]
    no_preserve: bool,

    /// Keep owners
    #[arg(long)]
    preserve_owner: bool,

    /// Let whoever extracts own everything
    #[arg(long)]
    no_preserve_owner: bool,

    /// Keep permissions as they are
    #[arg(long)]
    preserve_perms: bool,

    /// Take from permissions what the umask does
    #[arg(long)]
    no_preserve_perms: bool,

    /// For the sake of fsck of other file systems
    #[arg(short = 'a', short_aliases = ['A', 'y'], hide = true)]
    _automatic: bool,

    /// Read all files, and compare each with the digest that the image has of it
    #[arg(long)]
    xattr_inode_digest: bool,
}

/// Does what fsck.erofs is asked for. Whatever is wrong gives the exit status 1.
pub fn run(args: &[OsString]) -> Outcome {
    with_status_1(Args::command(), args, |matches| {
        parsed::<Args>(matches).run(matches)
    })
}

impl Args {
    fn run(self, matches: &ArgMatches) -> Outcome {
        if self.version {
            output::text(VERSION)?;
            return Ok(Verdict::Good);
        }
        let target = self.extract.as_deref().map(Path::new);
        let target = target.filter(|target| !target.as_os_str().is_empty());
        // What is extracted is decoded then.
        let reads_data = self.xattr_inode_digest || self.extract.is_some() && target.is_none();
        let path = self.path_wanted()?;
        let checked = check::Args::quiet(self.image(), reads_data)
            .with_digests(self.xattr_inode_digest)
            .run()?;
        if checked != Verdict::Good {
            return Ok(checked);
        }
        if let Some(target) = target {
            let extracted = self.extract(matches, target, path)?.run()?;
            if extracted != Verdict::Good {
                return Ok(extracted);
            }
        }
        if self.level >= INFO {
            eprintln!("<I> erofs: No errors found");
        }
        if self.ratio {
            self.print_ratio()?;
        }
        Ok(Verdict::Good)
    }

    fn image(&self) -> ImageArgs {
        ImageArgs {
            devices: self.devices.clone(),
            offset: self.offset,
            no_checksum: self.no_sbcrc,
            ..ImageArgs::usual(self.image.as_deref().unwrap_or(Path::new("")))
        }
    }

    /// The path in the image that is asked for; of an inode, one that it has.
    fn path_wanted(&self) -> Result<OsString, Failure> {
        let Some(nid) = self.nid.filter(|_| self.path.is_none()) else {
            return Ok(self.path.clone().unwrap_or_else(|| "/".into()));
        };
        let image = self.image().open()?;
        let inode = image.inode(Nid(nid));
        inode.map_err(|error| Failure::image(image.name(), &error))?;
        let path = image.path_of(Nid(nid)).ok_or_else(|| {
            let message = format!("{}: inode {nid} has no name", image.name());
            Failure::new(Kind::Usage, message).hint("--path tells what to extract by its path")
        })?;
        Ok(OsString::from_vec(path.as_bytes().to_vec()))
    }

    fn extract(
        &self,
        matches: &ArgMatches,
        target: &Path,
        path: OsString,
    ) -> Result<extract::Args, Failure> {
        let is_root = std::fs::canonicalize(target).is_ok_and(|path| path == Path::new("/"));
        if is_root && !self.force {
            let message = format!("{FSCK}: {} is the root of this system", target.display());
            return Err(
                Failure::new(Kind::Usage, message).hint("--force extracts there all the same")
            );
        }
        let is_superuser = rustix::process::geteuid().is_root();
        let keeps = |what: &str| last_of(matches, what).unwrap_or(is_superuser);
        let mut args = extract::Args::quiet(self.image(), target);
        args.path = path;
        args.overwrite = self.overwrite;
        args.no_owners = !keeps("owner");
        args.no_xattrs = !self.xattrs;
        args.umask = match keeps("perms") {
            true => 0,
            false => umask(),
        };
        Ok(args)
    }

    fn print_ratio(&self) -> Outcome {
        let image = self.image().open()?;
        let statistics =
            statistics(&image).map_err(|error| Failure::image(image.name(), &error))?;
        let (stored, bytes) = (statistics.file_bytes_stored, statistics.file_bytes);
        let percent = 100.0 * stored as f64 / bytes.max(1) as f64;
        output::text(&format!("Compression ratio: {percent:.2}(%)\n"))?;
        Ok(Verdict::Good)
    }
}

/// Tells whether owners, or permissions, are to be kept: what is said last counts.
fn last_of(matches: &ArgMatches, what: &str) -> Option<bool> {
    let options = [
        ("preserve".to_owned(), true),
        ("no_preserve".to_owned(), false),
        (format!("preserve_{what}"), true),
        (format!("no_preserve_{what}"), false),
    ];
    let given = options
        .into_iter()
        .filter(|(option, _)| matches.value_source(option) == Some(ValueSource::CommandLine));
    let last = given.max_by_key(|(option, _)| matches.index_of(option));
    last.map(|(_, keeps)| keeps)
}

/// The umask of this process.
fn umask() -> u16 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode() as u16
}
