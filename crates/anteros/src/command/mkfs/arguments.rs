//! The arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anteros_build::IdRange;
use anteros_core::parse_size;
use clap::{Args as _, FromArgMatches};

use super::compressor::Compressors;
use super::metadata::Metadata;
use super::target::Target;
use super::values::{Content, Extended, Tar, Uuid};
use super::verity::VerityArgs;
use super::{oci, values};
use crate::args::WorkerArgs;

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
    pub(super) image: PathBuf,

    /// The directory to pack, or the archive of tar or cpio, also one compressed by gzip, bzip2, xz or zstd; `-` is one on standard input.
    /// The content of an archive that is compressed, or no regular file, is kept in $TMPDIR, or else beside the image,
    /// until that is complete. Several sources are layers, the lowest first: names of upper ones take the place of those of
    /// lower ones, directories are merged, and whiteouts of AUFS (in archives) and of overlayfs remove what is below them.
    /// `oci:PATH` stands for the layers of the image in an OCI image layout, a directory or an archive of one, `oci:PATH:REF` for
    /// those of the image of that name.
    /// `mtree:FILE` and `composefs-dump:FILE` are manifests, which list files with their properties. Another image, or a log
    /// that is not mounted, is made anew
    #[arg(required_unless_present = "tar", value_name = "SOURCE")]
    pub(super) sources: Vec<PathBuf>,

    /// Below this directory lies the content of the files that a manifest lists. Nothing outside of it is opened, and no
    /// symbolic link is followed
    #[arg(long, value_name = "DIR")]
    pub(super) content_root: Option<PathBuf>,

    /// Say that all sources are tar archives (`--tar=f`), without a source one on standard input. `--tar=i` makes an index of an
    /// archive in a file that is not compressed: an image without the content of files, which stays in the archive, its extra
    /// device (`mount -o device=ARCHIVE`, `--device ARCHIVE`). `--tar=headers` takes what has the headers of an archive without
    /// any content behind them: files are zeros
    #[arg(long, value_name = "f|i|headers", require_equals = true)]
    pub(super) tar: Option<Tar>,

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

    /// Leave what IMAGE, an older one, has as well where it lies there: files, inodes and directories that are as they were.
    /// New content fills the room of what is gone. So updates by blocks or chunks move little. The new image is complete by
    /// itself, has the form of the older one, and is built anew if more than 2 % of it would be empty otherwise. -z and -C
    /// tell how new content is compressed
    #[arg(long = "base", value_name = "IMAGE", conflicts_with_all = ["append", "offset", "verify"])]
    pub(super) older: Option<PathBuf>,

    /// An extra device of an image that is a source; repeat it for each, in the order of sources. With `--content=refer`, those
    /// that stay behind need not be told
    #[arg(long = "device", value_name = "FILE")]
    pub(super) source_devices: Vec<PathBuf>,

    /// Of an OCI image for several platforms, take this one; linux/amd64 unless told
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub(super) platform: Option<oci::Platform>,

    /// Make the whiteouts of AUFS, which layers of containers have (`.wh.NAME`, `.wh..wh..opq`), those of overlayfs, in the
    /// image of a single archive
    #[arg(long)]
    pub(super) aufs: bool,

    /// Leave whiteouts and attributes of overlayfs (`trusted.overlay.*`) out of the image of an archive or of an image; of several
    /// sources they are left out unless `=0` tells otherwise
    #[arg(long, value_name = "0|1", require_equals = true, num_args = 0..=1, default_missing_value = "1", value_parser = ["0", "1"])]
    pub(super) ovlfs_strip: Option<String>,

    /// Make the image as small as the kernel can read it: -zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking
    /// --order=kind --compress-directories. It takes Linux 6.1, and some time and memory to read at random. What is told by other options counts more
    #[arg(long, overrides_with_all = ["balanced", "fast"])]
    pub(super) small: bool,

    /// Small, and quick to read: -zlz4hc,9 -C64K, the default
    #[arg(long, overrides_with_all = ["small", "fast"])]
    pub(super) balanced: bool,

    /// Build as quickly as possible: -zlz4 -C64K
    #[arg(long, overrides_with_all = ["small", "balanced"])]
    pub(super) fast: bool,

    /// Make an image for a machine: that its Linux mounts (`kernel=5.15`), whose decoders take no more there than
    /// `memory=64M` on all CPUs (`cpus=4`, the default), in clusters of at most 16K for `reads=random`, of at least 128K
    /// for `reads=sequential`. Presets keep within that; other options that do not are refused
    #[arg(long = "for", value_name = "KEY=VALUE[,KEY=VALUE]")]
    pub(super) target: Option<Target>,

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
    pub(super) compressor: Option<Compressors>,

    /// Largest compressed cluster: whole blocks, up to 1M; larger is smaller on disk and slower to
    /// read at random. 64K by default; called as mkfs.erofs one block
    #[arg(short = 'C', long = "cluster", value_name = "BYTES", value_parser = parse_size)]
    pub(super) cluster: Option<u64>,

    /// Compress some files in another way: each line of FILE has the size of their clusters, 0 for files that stay as they
    /// are; the place of their codec in -z, from 0 on, which may be left out; and a regular expression that is found in
    /// their paths. The first line that fits counts. Files of another codec than the first are not packed together
    #[arg(long, value_name = "FILE")]
    pub(super) compress_hints: Option<PathBuf>,

    /// Compress metadata (inodes, attributes, indexes, and what lies behind inodes) in clusters of so many bytes, by the codec
    /// of files, or by that at a place in -z from 0 on, or by another (`-m4096:zstd,9`), also where files are not
    /// compressed. Metadata is what many small files take most of; it takes Linux 6.17, and each look at an inode is a
    /// cluster to decode. What does not shrink is stored as it is
    #[arg(short = 'm', long = "metadata", value_name = "BYTES[:ALGORITHM]")]
    pub(super) metadata: Option<Metadata>,

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
        value_parser = values::switch
    )]
    pub(super) compress_directories: Option<bool>,

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
    pub(super) _metadata_zone: Option<String>,

    /// Block size; Linux mounts what does not exceed its page size
    #[arg(short = 'b', long = "block-size", value_name = "BYTES", value_parser = values::block_bits)]
    pub(super) block_bits: Option<u8>,

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
    pub(super) extended: Vec<Extended>,

    /// Most input that one cluster may take (the paper's sliding window)
    #[arg(long, alias = "max-extent-bytes", value_name = "BYTES", default_value = "8M", value_parser = parse_size)]
    pub(super) window: u64,

    /// Leave a file uncompressed unless that much of it is saved
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) min_gain: u8,

    /// Store a cluster as it is, or by the second codec of -z if there is one, where that takes at most PERCENT more room: it
    /// is quicker to read (`-zlzma,9:lz4hc,12 --quick 5`)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) quick: Option<u8>,

    /// Do so with what the profile reads, and nothing else: 100 stores all of that as it is
    #[arg(long, value_name = "PERCENT", requires = "profile", conflicts_with = "quick", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) hot_quick: Option<u8>,

    /// Largest cluster of what the profile reads (K, M), that of -C unless told: of a small one little is decoded that is not
    /// wanted, while all else may lie in large ones
    #[arg(long, value_name = "BYTES", requires = "profile", value_parser = parse_size)]
    pub(super) hot_cluster: Option<u64>,

    /// The order in which files are stored. By path: what lies in a directory lies together. By stream: as a pipe tells them, if
    /// files are not compressed (`-znone -E^inline_data`), so that they are written but once. By group: so do neighbouring
    /// directories of some 16 MiB together, and in them files of the same name, such as translations and licences. By name:
    /// all files of the same name. By kind: programs, other data, translations, texts and compressed files, each kind by
    /// extension and then by name. Large clusters get smaller by name or kind, above all those of packed files. The default
    /// is by group where files are packed, and by path elsewhere
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(super) order: Option<values::Order>,

    /// Store the files in a list first, in its order. FILE has one path on each line, relative to the source; a directory
    /// stands for all files in it. The other files follow
    #[arg(long, value_name = "FILE")]
    pub(super) order_list: Option<PathBuf>,

    /// Store what is known to be read together, in front of all other content and in the order of first access, so that a start
    /// reads little, in one sweep. FILE is an access profile, as `mount --profile` takes it. Large compressed files are cut for
    /// that, which makes the image larger by 1 % at most. Ranges that are not there are told
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,

    /// Treatment of holes: keep them in uncompressed chunks, compress them like zeros, or (auto)
    /// keep those of files that are at least seven eighths hole, or of all if files are not compressed. Auto is the
    /// default, but compress with -Elegacy-compress: chunks need Linux 5.15
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(super) holes: Option<values::Holes>,

    /// Store files uncompressed in chunks of so many bytes, a power of two
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(super) chunksize: Option<u64>,

    /// Begin the content of each file at a multiple of so many blocks, so that huge pages can map it (`--dsunit=512` for 2M)
    #[arg(long, value_name = "BLOCKS", default_value = "1", value_parser = values::count)]
    pub(super) dsunit: u32,

    /// Make the image a multiple of so many blocks long, rounded up to a power of two
    #[arg(long, value_name = "BLOCKS", default_value = "1", value_parser = values::count)]
    pub(super) fsalignblks: u32,

    /// Leave at least so many bytes for the attributes of the root, as is needed to add some later
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = values::count)]
    pub(super) root_xattr_isize: u32,

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
    pub(super) xattr_inode_digest: Option<OsString>,

    /// With --chunksize: store the chunks in FILE, equal ones once, and not in the image, of which FILE is the extra device
    /// (`mount -o device=FILE`, `--device FILE`). Files of a block or less stay in the image
    #[arg(long, value_name = "FILE", requires = "chunksize")]
    pub(super) blobdev: Option<PathBuf>,

    /// Give every file this time, in seconds since 1970
    #[arg(
        short = 'T',
        long = "time",
        value_name = "SECONDS",
        allow_hyphen_values = true,
        value_parser = values::seconds
    )]
    pub(super) time: Option<i64>,

    /// With -T: for every file, which is the default
    #[arg(long, overrides_with = "mkfs_time")]
    pub(super) all_time: bool,

    /// With -T: for the image, not for files, which keep their times
    #[arg(long, overrides_with = "all_time")]
    pub(super) mkfs_time: bool,

    /// Drop the times of files where keeping them takes a larger inode: they get the image's, which is that of -T, of
    /// SOURCE_DATE_EPOCH, or of the build
    #[arg(long, overrides_with = "preserve_mtime")]
    pub(super) ignore_mtime: bool,

    /// Keep the times of files, which is the default
    #[arg(long, overrides_with = "ignore_mtime")]
    pub(super) preserve_mtime: bool,

    /// A UUID, `clear` for none, or `random`; by default it is derived from the content
    #[arg(short = 'U', long = "uuid", value_name = "UUID")]
    pub(super) uuid: Option<Uuid>,

    /// Volume label of at most 15 bytes
    #[arg(short = 'L', long = "label", value_name = "LABEL", default_value = "")]
    pub(super) label: String,

    /// Store an extended attribute once if more than COUNT inodes have it; negative: store none
    #[arg(
        short = 'x',
        long = "xattr-share",
        value_name = "COUNT",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    pub(super) xattr_share: i64,

    /// Write the beginning of many attributes' names, such as `trusted.overlay.`, once for the image, and not in each of them;
    /// may be repeated; Linux 6.4. In images with fragments, these prefixes lie among them, unless -Eplain-xattr-prefixes tells
    #[arg(long, value_name = "PREFIX")]
    pub(super) xattr_prefix: Vec<OsString>,

    /// Make root the owner of everything
    #[arg(long)]
    pub(super) all_root: bool,

    /// Give everything this owner
    #[arg(long, value_name = "UID")]
    pub(super) force_uid: Option<u32>,

    /// Give everything this group
    #[arg(long, value_name = "GID")]
    pub(super) force_gid: Option<u32>,

    /// Change owners: those from FROM on become those from TO on, COUNT of them; may be repeated. An owner that is in no range
    /// is an error, but where all are forced
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = values::id_range)]
    pub(super) uid_map: Vec<IdRange>,

    /// Change groups in the same way
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = values::id_range)]
    pub(super) gid_map: Vec<IdRange>,

    /// Add to every owner
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(super) uid_offset: u32,

    /// Add to every group
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(super) gid_offset: u32,

    /// Take owners, permissions and capabilities from Android's list of a system's files: each line of FILE has a path, owner,
    /// group and octal permissions, and may have `capabilities=NUMBER`. Each file must be in it
    #[arg(long, value_name = "FILE")]
    pub(super) fs_config_file: Option<PathBuf>,

    /// Label files as a policy of SELinux does: FILE is the text of its file_contexts, with what FILE.homedirs and FILE.local
    /// add to it. Labels that files have in the source are left out
    #[arg(long, value_name = "FILE")]
    pub(super) file_contexts: Option<PathBuf>,

    /// The directory on which the image will be mounted: by the paths below it, lists know its files
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(super) mount_point: OsString,

    /// Write a line for each file with the ranges of blocks that it lies in, as Android's update tools read it
    #[arg(long, value_name = "FILE")]
    pub(super) block_list_file: Option<PathBuf>,

    /// For mkfs.erofs' sake: where Android's build puts its products
    #[arg(long, hide = true, value_name = "PATH")]
    pub(super) _product_out: Option<PathBuf>,

    /// Leave out this path, relative to the source; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) exclude_path: Vec<OsString>,

    /// Leave out paths that match this regular expression; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub(super) exclude_regex: Vec<String>,

    /// Store a file once for each of its names
    #[arg(long)]
    pub(super) hard_dereference: bool,

    /// Byte of the file at which the image begins; what is before it stays
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    pub(super) offset: u64,

    /// Write the image in Android's sparse form, for `fastboot` and `simg2img`. It is kept in $TMPDIR, or else beside that
    /// file, until it is complete
    #[arg(long, conflicts_with = "verify")]
    pub(super) android_sparse: bool,

    /// Write a descriptor of VMDK, by which virtual machines take the image for a disk
    #[arg(long, value_name = "FILE", conflicts_with = "android_sparse")]
    pub(super) vmdk_desc: Option<PathBuf>,

    #[command(flatten)]
    pub(super) verity: VerityArgs,

    #[command(flatten)]
    pub(super) workers: WorkerArgs,

    /// Most memory of the tree, of encoders and of file content in flight; fewer workers compress where their encoders
    /// take more
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub(super) memory: u64,

    /// Overwrite what holds something else than an image
    #[arg(long)]
    pub(super) force: bool,

    /// Read the finished image back and compare it with the source, a single directory
    #[arg(long)]
    pub(super) verify: bool,

    /// Print nothing but errors and warnings
    #[arg(long, visible_alias = "silent", conflicts_with = "json")]
    pub(super) quiet: bool,

    /// Print the summary as a JSON object
    #[arg(long)]
    pub(super) json: bool,

    /// For mkfs.erofs' sake: how much that one prints
    #[arg(short = 'd', hide = true, value_name = "LEVEL")]
    pub(super) _debug: Option<u8>,

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
}
