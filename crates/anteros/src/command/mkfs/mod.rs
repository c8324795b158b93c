//! `anteros mkfs`

mod append;
mod compressor;
mod hints;
mod images;
mod lists;
mod metadata;
mod oci;
mod options;
mod preset;
mod report;
mod source;
mod stream;
mod target;
mod verity;
mod vmdk;

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_build::{Error, IdRange, Observer, Progress, Summary, build, build_stream};
use anteros_core::{FsError, parse_size};
use clap::{Args as _, FromArgMatches};
use indicatif::ProgressBar;

use self::compressor::Compressors;
use self::metadata::Metadata;
pub use self::options::Content;
use self::options::{Extended, Uuid};
use self::source::Tar;
pub use self::target::Target;
use self::verity::VerityArgs;
use crate::args::WorkerArgs;
use crate::command::verify;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};

/// Build an image of a directory, a tar archive, or several of them one over another
///
/// Files are compressed by lz4hc in clusters of 64K, unless -z and -C say otherwise; -znone leaves them as they are. The
/// short options are those of mkfs.erofs and mean the same; called by that name, the defaults are that one's as well: no
/// compression without -z, clusters of a block without -C. The same source gives the same bytes, whatever the number of
/// workers, the order of directories and, unless times are dropped, the time of day. Of a repeated option the last one
/// counts.
#[derive(Debug, clap::Args)]
#[command(next_line_help = true)]
pub struct Args {
    /// The image to write; an existing image is replaced once the new one is complete, which gets its owner and its
    /// permissions. `-` is standard output; for that, for pipes and for character devices the image is kept in $TMPDIR, or
    /// else in /var/tmp, until it is complete
    image: PathBuf,

    /// The directory to pack, or the archive of tar or cpio, also one compressed by gzip, bzip2, xz or zstd; `-` is one on standard input.
    /// The content of an archive that is compressed, or no regular file, is kept in $TMPDIR, or else beside the image,
    /// until that is complete. Several sources are layers, the lowest first: names of upper ones take the place of those of
    /// lower ones, directories are merged, and whiteouts of AUFS (in archives) and of overlayfs remove what is below them.
    /// `oci:PATH` stands for the layers of the image in an OCI image layout, a directory or an archive of one, `oci:PATH:REF` for
    /// those of the image of that name.
    /// `mtree:FILE` and `composefs-dump:FILE` are manifests, which list files with their properties. Another image, or a log
    /// that is not mounted, is made anew
    #[arg(required_unless_present = "tar", value_name = "SOURCE")]
    sources: Vec<PathBuf>,

    /// Below this directory lies the content of the files that a manifest lists. Nothing outside of it is opened, and no
    /// symbolic link is followed
    #[arg(long, value_name = "DIR")]
    content_root: Option<PathBuf>,

    /// Say that all sources are tar archives (`--tar=f`), without a source one on standard input. `--tar=i` makes an index of an
    /// archive in a file that is not compressed: an image without the content of files, which stays in the archive, its extra
    /// device (`mount -o device=ARCHIVE`, `--device ARCHIVE`). `--tar=headers` takes what has the headers of an archive without
    /// any content behind them: files are zeros
    #[arg(long, value_name = "f|i|headers", require_equals = true)]
    tar: Option<Tar>,

    /// Treatment of the content of files. `refer`: that of images which are sources stays there; they become extra devices of
    /// the image, in their order (`mount -o device=FILE`, `--device FILE`), and must not be compressed. `reserve`: the
    /// image has room for it, uncompressed, and it is not read. `zero`: it is not read either, and files are zeros
    #[arg(long, value_enum, value_name = "WHICH", hide_possible_values = true)]
    pub content: Option<Content>,

    /// Append the sources to the image, as layers over it: files that are the same name take the place of its own, directories
    /// are merged. Data that is there stays where it is, and so does what no name leads to any more; all inodes are written
    /// anew behind it. The superblock is written last, so that until then the image is as it was. Files are compressed only
    /// by -z, in a way that the image knows
    #[arg(long)]
    pub append: bool,

    /// An extra device of an image that is a source; repeat it for each, in the order of sources. With `--content=refer`, those
    /// that stay behind need not be told
    #[arg(long = "device", value_name = "FILE")]
    source_devices: Vec<PathBuf>,

    /// Of an OCI image for several platforms, take this one; linux/amd64 unless told
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<oci::Platform>,

    /// Make the whiteouts of AUFS, which layers of containers have (`.wh.NAME`, `.wh..wh..opq`), those of overlayfs, in the
    /// image of a single archive
    #[arg(long)]
    aufs: bool,

    /// Leave whiteouts and attributes of overlayfs (`trusted.overlay.*`) out of the image of an archive or of an image; of several
    /// sources they are left out unless `=0` tells otherwise
    #[arg(long, value_name = "0|1", require_equals = true, num_args = 0..=1, default_missing_value = "1", value_parser = ["0", "1"])]
    ovlfs_strip: Option<String>,

    /// Make the image as small as the kernel can read it: -zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking
    /// --order=kind --compress-directories. It takes Linux 6.1, and some time and memory to read at random. What is told by other options counts more
    #[arg(long, overrides_with_all = ["balanced", "fast"])]
    small: bool,

    /// Small, and quick to read: -zlz4hc,9 -C64K, the default
    #[arg(long, overrides_with_all = ["small", "fast"])]
    balanced: bool,

    /// Build as quickly as possible: -zlz4 -C64K
    #[arg(long, overrides_with_all = ["small", "balanced"])]
    fast: bool,

    /// Make an image for a machine: that its Linux mounts (`kernel=5.15`), whose decoders take no more there than
    /// `memory=64M` on all CPUs (`cpus=4`, the default), in clusters of at most 16K for `reads=random`, of at least 128K
    /// for `reads=sequential`. Presets keep within that; other options that do not are refused
    #[arg(long = "for", value_name = "KEY=VALUE[,KEY=VALUE]")]
    target: Option<Target>,

    /// Compress with lz4; lz4hc, the default, levels 1 to 12, 9 unless told (`lz4hc,12`); lzma, 0 to 9 and 100 to 109 for
    /// the thorough ones, 6; deflate, 1 to 12, 6; zstd, 1 to 22, 3; or none. liblz4 and liblz4hc have the levels of lz4 and
    /// lz4hc, and the bytes that liblz4 writes. `,dictsize=BYTES` is how far lzma (4K to 8M, four clusters) and zstd (1K to 1M,
    /// eight clusters) look back; who reads the image needs that much memory. Behind colons there may be further ones, for
    /// --compress-hints; the first is that of all other files
    #[arg(
        short = 'z',
        long = "compress",
        value_name = "ALGORITHM[,LEVEL][,dictsize=BYTES][:...]"
    )]
    compressor: Option<Compressors>,

    /// Largest compressed cluster: whole blocks, up to 1M; larger is smaller on disk and slower to
    /// read at random. 64K by default; called as mkfs.erofs one block
    #[arg(short = 'C', long = "cluster", value_name = "BYTES", value_parser = parse_size)]
    cluster: Option<u64>,

    /// Compress some files in another way: each line of FILE has the size of their clusters, 0 for files that stay as they
    /// are; the place of their codec in -z, from 0 on, which may be left out; and a regular expression that is found in
    /// their paths. The first line that fits counts. Files of another codec than the first are not packed together
    #[arg(long, value_name = "FILE")]
    compress_hints: Option<PathBuf>,

    /// Compress metadata (inodes, attributes, indexes, and what lies behind inodes) in clusters of so many bytes, by the codec
    /// of files, or by that at a place in -z from 0 on, or by another (`-m4096:zstd,9`), also where files are not
    /// compressed. Metadata is what many small files take most of; it takes Linux 6.17, and each look at an inode is a
    /// cluster to decode. What does not shrink is stored as it is
    #[arg(short = 'm', long = "metadata", value_name = "BYTES[:ALGORITHM]")]
    metadata: Option<Metadata>,

    /// Compress directories: they are packed together, behind the files that are packed; the smallest stay behind their
    /// inodes, where they take no more room. It takes Linux 6.1, and a look into a directory is a cluster to decode. `=0`
    /// leaves them as they are
    #[arg(
        long,
        alias = "zD",
        value_name = "0|1",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = options::switch
    )]
    compress_directories: Option<bool>,

    /// For mkfs.erofs' sake: inodes and directories always lie in one zone, behind file content
    #[arg(
        long = "MZ",
        hide = true,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "id",
        value_parser = ["0", "i", "id"]
    )]
    _metadata_zone: Option<String>,

    /// Block size; Linux mounts what does not exceed its page size
    #[arg(short = 'b', long = "block-size", value_name = "BYTES", value_parser = options::block_bits)]
    block_bits: Option<u8>,

    /// Extended options, separated by commas: legacy-compress, ztailpacking (the end of a
    /// compressed file lies behind its inode where it fits there), fragments (files that fit into one cluster, and the
    /// ends of larger ones, are packed together and compressed as one, equal ones once), all-fragments (so are all files),
    /// both with the cluster size of what is packed if it is another (`fragments=256K`), fragdedupe, dedupe (files with the same content are stored once, and so are parts of compressed files from some
    /// clusters on; fragments mean it as well, unless ^dedupe is told), ^inline_data, 48bit (compressed files take bytes, not whole blocks, and times to the second no larger inode; Linux 6.15), dot-omitted (directories without `.`, with 48bit), force-inode-compact,
    /// force-inode-extended, force-inode-blockmap, force-chunk-indexes, nosbcrc, ^xattr-name-filter, plain-xattr-prefixes (see --xattr-prefix; Linux 6.17)
    #[arg(
        short = 'E',
        long = "extended",
        value_name = "OPTION",
        value_delimiter = ','
    )]
    extended: Vec<Extended>,

    /// Most input that one cluster may take (the paper's sliding window)
    #[arg(long, alias = "max-extent-bytes", value_name = "BYTES", default_value = "8M", value_parser = parse_size)]
    window: u64,

    /// Leave a file uncompressed unless that much of it is saved
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    min_gain: u8,

    /// Store a cluster as it is, or by the second codec of -z if there is one, where that takes at most PERCENT more room: it
    /// is quicker to read (`-zlzma,9:lz4hc,12 --quick 5`)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    quick: Option<u8>,

    /// The order in which files are stored. By path: what lies in a directory lies together. By stream: as a pipe tells them, if
    /// files are not compressed (`-znone -E^inline_data`), so that they are written but once. By group: so do neighbouring
    /// directories of some 16 MiB together, and in them files of the same name, such as translations and licences. By name:
    /// all files of the same name. By kind: programs, other data, translations, texts and compressed files, each kind by
    /// extension and then by name. Large clusters get smaller by name or kind, above all those of packed files. The default
    /// is by group where files are packed, and by path elsewhere
    #[arg(long, value_enum, value_name = "WHICH")]
    order: Option<options::Order>,

    /// Store the files in a list first, in its order. FILE has one path on each line, relative to the source; a directory
    /// stands for all files in it. The other files follow
    #[arg(long, value_name = "FILE")]
    order_list: Option<PathBuf>,

    /// What becomes of holes: keep them in uncompressed chunks, compress them like zeros, or (auto)
    /// keep those of files that are at least seven eighths hole, or of all if files are not compressed. Auto is the
    /// default, but compress with -Elegacy-compress: chunks need Linux 5.15
    #[arg(long, value_enum, value_name = "WHICH")]
    holes: Option<options::Holes>,

    /// Store files uncompressed in chunks of so many bytes, a power of two
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    chunksize: Option<u64>,

    /// Begin the content of each file at a multiple of so many blocks, so that huge pages can map it (`--dsunit=512` for 2M)
    #[arg(long, value_name = "BLOCKS", default_value = "1", value_parser = options::count)]
    dsunit: u32,

    /// Make the image a multiple of so many blocks long, rounded up to a power of two
    #[arg(long, value_name = "BLOCKS", default_value = "1", value_parser = options::count)]
    fsalignblks: u32,

    /// Leave at least so many bytes for the attributes of the root, as is needed to add some later
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = options::count)]
    root_xattr_isize: u32,

    /// Give each file an attribute with the SHA-256 of its content, by which kernels that know it may share its pages with
    /// files of other images; a NAME such as `user.digest` lets users read it. It takes Linux 6.4, and one more look at all
    /// files
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "erofs.fingerprint.v1"
    )]
    xattr_inode_digest: Option<OsString>,

    /// With --chunksize: store the chunks in FILE, equal ones once, and not in the image, of which FILE is the extra device
    /// (`mount -o device=FILE`, `--device FILE`). Files of a block or less stay in the image
    #[arg(long, value_name = "FILE", requires = "chunksize")]
    blobdev: Option<PathBuf>,

    /// Give every file this time, in seconds since 1970
    #[arg(
        short = 'T',
        long = "time",
        value_name = "SECONDS",
        allow_hyphen_values = true,
        value_parser = options::seconds
    )]
    time: Option<i64>,

    /// With -T: for every file, which is the default
    #[arg(long, overrides_with = "mkfs_time")]
    all_time: bool,

    /// With -T: for the image, not for files, which keep their times
    #[arg(long, overrides_with = "all_time")]
    mkfs_time: bool,

    /// Drop the times of files where keeping them takes a larger inode: they get the image's, which is that of -T, of
    /// SOURCE_DATE_EPOCH, or of the build
    #[arg(long, overrides_with = "preserve_mtime")]
    ignore_mtime: bool,

    /// Keep the times of files, which is the default
    #[arg(long, overrides_with = "ignore_mtime")]
    preserve_mtime: bool,

    /// A UUID, `clear` for none, or `random`; by default it is derived from the content
    #[arg(short = 'U', long = "uuid", value_name = "UUID")]
    uuid: Option<Uuid>,

    /// Volume label of at most 15 bytes
    #[arg(short = 'L', long = "label", value_name = "LABEL", default_value = "")]
    label: String,

    /// Store an extended attribute once if more than COUNT inodes have it; negative: store none
    #[arg(
        short = 'x',
        long = "xattr-share",
        value_name = "COUNT",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    xattr_share: i64,

    /// Write the beginning of many attributes' names, such as `trusted.overlay.`, once for the image, and not in each of them;
    /// may be repeated; Linux 6.4. In images with fragments, these prefixes lie among them, unless -Eplain-xattr-prefixes tells
    #[arg(long, value_name = "PREFIX")]
    xattr_prefix: Vec<OsString>,

    /// Make root the owner of everything
    #[arg(long)]
    all_root: bool,

    /// Give everything this owner
    #[arg(long, value_name = "UID")]
    force_uid: Option<u32>,

    /// Give everything this group
    #[arg(long, value_name = "GID")]
    force_gid: Option<u32>,

    /// Change owners: those from FROM on become those from TO on, COUNT of them; may be repeated. An owner that is in no range
    /// is an error, but where all are forced
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = options::id_range)]
    uid_map: Vec<IdRange>,

    /// Change groups in the same way
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = options::id_range)]
    gid_map: Vec<IdRange>,

    /// Add to every owner
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    uid_offset: u32,

    /// Add to every group
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    gid_offset: u32,

    /// Take owners, permissions and capabilities from Android's list of a system's files: each line of FILE has a path, owner,
    /// group and octal permissions, and may have `capabilities=NUMBER`. Each file must be in it
    #[arg(long, value_name = "FILE")]
    fs_config_file: Option<PathBuf>,

    /// Label files as a policy of SELinux does: FILE is the text of its file_contexts, with what FILE.homedirs and FILE.local
    /// add to it. Labels that files have in the source are left out
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,

    /// The directory on which the image will be mounted: by the paths below it, lists know its files
    #[arg(long, value_name = "PATH", default_value = "/")]
    mount_point: OsString,

    /// Write a line for each file with the ranges of blocks that it lies in, as Android's update tools read it
    #[arg(long, value_name = "FILE")]
    block_list_file: Option<PathBuf>,

    /// For mkfs.erofs' sake: where Android's build puts its products
    #[arg(long, hide = true, value_name = "PATH")]
    _product_out: Option<PathBuf>,

    /// Leave out this path, relative to the source; may be repeated
    #[arg(long, value_name = "PATH")]
    exclude_path: Vec<OsString>,

    /// Leave out paths that match this regular expression; may be repeated
    #[arg(long, value_name = "REGEX")]
    exclude_regex: Vec<String>,

    /// Store a file once for each of its names
    #[arg(long)]
    hard_dereference: bool,

    /// Byte of the file at which the image begins; what is before it stays
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    offset: u64,

    /// Write the image in Android's sparse form, for `fastboot` and `simg2img`. It is kept in $TMPDIR, or else beside that
    /// file, until it is complete
    #[arg(long, conflicts_with = "verify")]
    android_sparse: bool,

    /// Write a descriptor of VMDK, by which virtual machines take the image for a disk
    #[arg(long, value_name = "FILE", conflicts_with = "android_sparse")]
    vmdk_desc: Option<PathBuf>,

    #[command(flatten)]
    verity: VerityArgs,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Most memory of the tree, of encoders and of file content in flight; fewer workers compress where their encoders
    /// take more
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    memory: u64,

    /// Overwrite what holds something else than an image
    #[arg(long)]
    force: bool,

    /// Read the finished image back and compare it with the source, a single directory
    #[arg(long)]
    verify: bool,

    /// Print nothing but errors and warnings
    #[arg(long, visible_alias = "silent", conflicts_with = "json")]
    quiet: bool,

    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,

    /// For mkfs.erofs' sake: how much that one prints
    #[arg(short = 'd', hide = true, value_name = "LEVEL")]
    _debug: Option<u8>,

    /// Tells whether the program was called by the name of mkfs.erofs, the defaults of which then hold.
    #[arg(skip)]
    pub is_peer: bool,
}

impl Args {
    /// The arguments that pack a directory with some options, which are separated by spaces.
    pub fn of(source: &Path, options: &str, target: Option<Target>) -> Self {
        let command = clap::Command::new("mkfs").no_binary_name(true);
        let options = options.split_whitespace().map(OsString::from);
        let places = ["--".into(), "image".into(), source.into()];
        let matches = Self::augment_args(command).get_matches_from(options.chain(places));
        let args = Self::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
        Self { target, ..args }
    }

    pub fn run(self) -> Outcome {
        let base = self.base()?;
        let options = self.options(base.as_deref())?;
        let mut stream = self.stream()?;
        let cancel = interrupt::flag()?;
        let input = self.input(base, &cancel)?;
        let before = Before::of(&self.image, &options);
        let observer = Watch::new(self.quiet || self.json);
        let start = std::time::Instant::now();
        let summary = match &mut stream {
            None => build(&self.image, input, &options, &observer, &cancel)
                .map_err(|e| failure(&self.image, before, &e)),
            Some(stream) => build_stream(&mut stream.file, input, &options, &observer, &cancel)
                .map_err(|e| stream.failure(e)),
        };
        observer.bar.finish_and_clear();
        let summary = summary?;
        let seconds = start.elapsed().as_secs_f64();
        self.describe(&summary)?;
        let is_silent = stream.is_some_and(|stream| stream.is_stdout());
        if !self.quiet && !self.json && !is_silent {
            report::print(&self.image, &summary, seconds)?;
        }
        let quiet = self.quiet || self.json;
        let source = self.sources.first().filter(|_| self.verify);
        let compare =
            |source: &PathBuf| verify::built(&self.image, source, &options, quiet, &cancel);
        let compared = source.map(compare).transpose()?;
        if self.json {
            let compared = compared.as_ref().map(verify::Report::new);
            let report = report::Report::new(&self.image, &summary, seconds, compared);
            output::json(&report)?;
        } else if let (Some(source), Some(compared)) = (source, &compared) {
            let name = self.image.display().to_string();
            verify::print(&name, source, compared, self.quiet)?;
        }
        Ok(compared.as_ref().map_or(Verdict::Good, verify::verdict))
    }
}

impl Args {
    /// Writes the descriptor of a disk, if one is wanted. A device whose path is not told goes by its tag; an archive has none.
    fn describe(&self, summary: &Summary) -> Result<(), Failure> {
        let part = |path, start, bytes| vmdk::Part { path, start, bytes };
        let image = part(self.image.clone(), self.offset, summary.image_bytes);
        let devices = summary.devices.iter().map(|device| {
            let tag = device.tag.split(|byte| *byte == 0).next();
            let tag = tag.filter(|tag| !tag.is_empty());
            let tag = tag.map(|tag| PathBuf::from(OsStr::from_bytes(tag)));
            let path = device.path.clone().or(tag);
            let path = path.or_else(|| self.sources.first().cloned());
            part(path.unwrap_or_default(), 0, device.bytes)
        });
        let parts: Vec<_> = [image].into_iter().chain(devices).collect();
        let descriptor = self.vmdk_desc.as_deref();
        descriptor.map_or(Ok(()), |path| vmdk::write(path, &summary.uuid, &parts))
    }
}

/// Shows progress, and warns.
struct Watch {
    bar: ProgressBar,
    shown: Cell<u64>,
}

impl Watch {
    fn new(quiet: bool) -> Self {
        Self {
            bar: output::progress(quiet, "packing"),
            shown: Cell::new(0),
        }
    }
}

impl Observer for Watch {
    fn scanned(&self, progress: &Progress) {
        self.bar.set_length(progress.bytes);
    }

    fn progressed(&self, progress: &Progress) {
        self.bar
            .inc(progress.bytes_done - self.shown.replace(progress.bytes_done));
    }

    fn warn(&self, path: &Path, text: &str) {
        self.bar
            .suspend(|| output::complain("warning", format_args!("{}: {text}", path.display())));
    }
}

/// The target before the image is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// A file that stays until the new one is complete.
    File,
    /// A target that is written in place.
    Place,
}

impl Before {
    fn of(image: &Path, options: &anteros_build::Options) -> Self {
        match std::fs::metadata(image).map(|found| found.is_file()) {
            Err(_) => Self::Nothing,
            Ok(true) if options.offset == 0 => Self::File,
            Ok(_) => Self::Place,
        }
    }

    /// Says what is left after a build that came to no end.
    const fn left(self) -> &'static str {
        match self {
            Self::Nothing => "there is no image",
            Self::File => "the file that was there before is as it was",
            Self::Place => "no image is left where it was being written",
        }
    }
}

/// The failure that an error of the builder is.
pub fn failure(image: &Path, before: Before, error: &Error) -> Failure {
    let kind = match error {
        Error::Option(_) | Error::Occupied { .. } | Error::ImageInsideSource { .. } => Kind::Usage,
        Error::Archive { .. } | Error::Manifest { .. } => Kind::Corrupt,
        Error::Unstorable { .. } | Error::TooLarge { .. } => Kind::Unsupported,
        Error::FileSystem { cause, .. } => match cause {
            FsError::Corrupt(_) => Kind::Corrupt,
            FsError::Unsupported => Kind::Unsupported,
            _ => Kind::System,
        },
        Error::Source { cause, .. } if cause.kind() == io::ErrorKind::Unsupported => {
            Kind::Unsupported
        }
        Error::Cancelled => {
            let message = format!("{}: interrupted; {}", image.display(), before.left());
            return Failure::new(Kind::Interrupted, message);
        }
        _ => Kind::System,
    };
    let failure = Failure::new(kind, error);
    match error {
        Error::Changed { .. } => failure.hint("pack a snapshot, or a tree that nobody writes to"),
        Error::Occupied { .. } => failure.hint("--force overwrites it"),
        Error::Archive { .. } => failure.hint("`tar -tvf`, or `cpio -tv`, lists what an archive holds"),
        Error::Manifest { reason, .. } if reason.contains("name the directory") => {
            failure.hint("--content-root DIR names it")
        }
        Error::FileSystem {
            cause: FsError::Corrupt(_),
            ..
        } => failure.hint("`anteros check` lists every fault of an image, `anteros log check` of a log"),
        Error::Spool { .. } | Error::SpoolImage { .. } => failure.hint("TMPDIR names another directory"),
        Error::Image { cause, .. } if cause.kind() == io::ErrorKind::StorageFull => {
            failure.hint(match before {
                Before::File => {
                    "the new image needs its place beside the old one, which is as it was, until it is complete"
                }
                _ => before.left(),
            })
        }
        _ => failure,
    }
}
