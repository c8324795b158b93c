//! Tests that the same tree gives the same image, whatever source it comes from.
//!
//! Invariant B9 of `docs/design/building.md`.

mod common;
#[path = "common/tree.rs"]
mod tree;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anteros_build::{
    Appended, Archive, Base, Compression, Content, Effort, Input, Layer, Manifest, ManifestFormat,
    Options, Placed, PlacedPart, Places, Record, SourceDevice, Taken,
};
use anteros_core::{
    Attr, DirEntry, FileKind, FileSystem, FsError, FsResult, Ino, Rdev, Seek, StatFs, Timestamp,
};
use tempfile::TempDir;

use common::{build, missing_judge};
use tree::tree;

/// A directory with a tree in it, and images of it.
struct Shop {
    dir: TempDir,
}

impl Shop {
    fn new() -> Self {
        let shop = Self {
            dir: TempDir::new().unwrap(),
        };
        fs::create_dir(shop.source()).unwrap();
        tree(&shop.source());
        shop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// The bytes of an image.
    fn image<'a>(&self, source: impl Into<Input<'a>>, options: &Options) -> Vec<u8> {
        let image = self.path("image");
        build(&image, source, options).unwrap();
        let bytes = fs::read(&image).unwrap();
        fs::remove_file(image).unwrap();
        bytes
    }

    /// Makes sure that a source gives the image of the tree, by several options.
    fn check<'a>(&self, source: impl Fn() -> Input<'a>, change: impl Fn(&mut Options)) {
        for mut options in option_sets() {
            change(&mut options);
            let expected = self.image(&self.source(), &options);
            let found = self.image(source(), &options);
            assert!(found == expected, "{options:?}");
        }
    }

    /// Output of a judge in the tree; `None` if it is missing.
    fn judge(&self, program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.source());
        let Ok(output) = command.output() else {
            missing_judge(program);
            return None;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {text}");
        Some(output.stdout)
    }
}

fn option_sets() -> [Options; 3] {
    let packed = Options {
        compression: Some(Compression {
            pcluster_bytes: 65536,
            ..Compression::new(Effort::Fast)
        }),
        inline_tails: true,
        dedupe: true,
        workers: 3,
        ..Options::default()
    };
    let filtered = Options {
        exclude: vec![anteros_build::Exclude::pattern("same$").unwrap()],
        force_uid: Some(7),
        clamp_time: Some(1_700_000_000),
        ..packed.clone()
    };
    [Options::default(), packed, filtered]
}

#[test]
fn a_manifest_of_bsdtar_gives_the_image_of_its_tree() {
    let shop = Shop::new();
    let keywords =
        "mtree:!all,use-set,type,mode,uid,gid,size,time,link,device,nlink,inode,resdevice,sha256";
    // Of a file with an access list, bsdtar would tell the owning group's permissions by that.
    let arguments = [
        "-c",
        "--no-acls",
        "--format=mtree",
        "--options",
        keywords,
        ".",
    ];
    let Some(text) = shop.judge("bsdtar", &arguments) else {
        return;
    };
    let manifest = || Manifest::from_reader(ManifestFormat::Mtree, "mtree", &text[..]);
    shop.check(
        || manifest().content_root(shop.source()).into(),
        |options| options.xattr_share_above = None,
    );
}

#[test]
fn a_manifest_of_mtree_gives_the_image_of_its_tree() {
    let shop = Shop::new();
    let made = "mtree -c -K sha256,sha512,device -R flags -p .";
    for style in ["", "| mtree -C -K device,sha256", "| mtree -D -K device"] {
        let line = format!("{made} {style}");
        if missing("mtree") {
            return;
        }
        let Some(text) = shop.judge("sh", &["-euc", &line]) else {
            return;
        };
        let manifest = || Manifest::from_reader(ManifestFormat::Mtree, "mtree", &text[..]);
        shop.check(
            || manifest().content_root(shop.source()).into(),
            |options| {
                options.xattr_share_above = None;
                options.hard_dereference = true; // it does not tell which names are one file's
            },
        );
    }
}

#[test]
fn a_dump_gives_the_image_of_its_tree() {
    let shop = Shop::new();
    let mut text = String::new();
    dump(&shop.source(), b"", &mut Vec::new(), &mut text);
    let manifest = || Manifest::from_reader(ManifestFormat::ComposefsDump, "dump", text.as_bytes());
    shop.check(|| manifest().content_root(shop.source()).into(), |_| ());
    // As a layer, it takes the place of another one.
    let lower = shop.path("lower");
    fs::create_dir(&lower).unwrap();
    let layers = || {
        let manifest = manifest().content_root(shop.source());
        vec![Layer::Directory(&lower), Layer::Manifest(manifest)].into()
    };
    shop.check(layers, |_| ());
}

/// Appends the lines of a directory, as composefs-dump(5) tells of them. `known` has files that have several names.
fn dump(root: &Path, path: &[u8], known: &mut Vec<(u64, Vec<u8>)>, text: &mut String) {
    let host = root.join(OsStr::from_bytes(path));
    let found = fs::symlink_metadata(&host).unwrap();
    let same = known.iter().find(|(ino, _)| *ino == found.ino());
    let kind = found.file_type();
    let (mark, payload) = match same {
        Some((_, first)) => ("@", [b"/", &first[..]].concat()),
        None if kind.is_symlink() => (
            "",
            fs::read_link(&host).unwrap().as_os_str().as_bytes().into(),
        ),
        None if kind.is_file() => ("", path.to_vec()),
        None => ("", Vec::new()),
    };
    if found.nlink() > 1 && !kind.is_dir() && same.is_none() {
        known.push((found.ino(), path.to_vec()));
    }
    let rdev = match kind.is_char_device() || kind.is_block_device() {
        true => found.rdev(),
        false => 0,
    };
    let xattrs = if mark.is_empty() {
        xattrs(&host)
    } else {
        String::new()
    };
    let name = escaped(&[b"/", path].concat());
    line(&name, mark, &found, rdev, &escaped(&payload), &xattrs, text);
    if kind.is_dir() {
        for entry in fs::read_dir(&host).unwrap() {
            let name = entry.unwrap().file_name();
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            dump(root, &[path, slash, name.as_bytes()].concat(), known, text);
        }
    }
}

fn line(
    name: &str,
    mark: &str,
    found: &Metadata,
    rdev: u64,
    payload: &str,
    xattrs: &str,
    text: &mut String,
) {
    let (size, mode, nlink) = (found.size(), found.mode(), found.nlink());
    let (uid, gid) = (found.uid(), found.gid());
    let (secs, nanos) = (found.mtime(), found.mtime_nsec());
    let payload = if payload.is_empty() { "-" } else { payload };
    writeln!(
        text,
        "{name} {size} {mark}{mode:o} {nlink} {uid} {gid} {rdev} {secs}.{nanos} {payload} - -{xattrs}"
    )
    .unwrap();
}

fn xattrs(path: &Path) -> String {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut text = String::new();
    for name in names[..len].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
        let (name, value) = (escaped(name), escaped(&value[..len]));
        write!(text, " {name}={value}").unwrap();
    }
    text
}

/// Bytes of a field, all those that are special escaped.
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'/' | b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => (*byte as char).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(escape).collect()
}

#[test]
fn an_archive_of_cpio_gives_the_image_of_its_tree() {
    let shop = Shop::new();
    let path = shop.path("cpio");
    for format in ["newc", "crc"] {
        let make = format!(
            "find . -print0 | cpio -o -0 --quiet -H {format} -O {}",
            path.display()
        );
        if missing("cpio") || shop.judge("sh", &["-euc", &make]).is_none() {
            return;
        }
        // It knows neither attributes nor parts of seconds, nor holes.
        let change = |options: &mut Options| {
            options.xattr_share_above = None;
            options.fixed_time = Some(1_700_000_000);
            options.holes = anteros_build::Holes::Ignore;
        };
        shop.check(|| Archive::open(&path).unwrap().into(), change);
        let file = || File::open(&path).unwrap();
        shop.check(|| Archive::from_reader("cpio", file()).into(), change);
    }
}

fn missing(program: &str) -> bool {
    let is_missing = Command::new(program).arg("--version").output().is_err();
    if is_missing {
        missing_judge(program);
    }
    is_missing
}

/// A file system that answers what it likes: the root is inode 1, files have content of `a`s.
struct Odd {
    /// Entries of each directory: parent, name, inode.
    entries: Vec<(u64, &'static [u8], u64)>,
    attr: fn(u64) -> Attr,
    /// Bytes that a read gives at most, and where files end.
    step: usize,
    end: u64,
}

fn attr(ino: u64, kind: FileKind) -> Attr {
    Attr {
        ino: Ino(ino),
        kind,
        perm: 0o644,
        nlink: 1,
        uid: 1,
        gid: 2,
        rdev: Rdev::default(),
        size: 10_000,
        blocks: 0,
        block_size: 4096,
        atime: Timestamp::default(),
        mtime: Timestamp { secs: 5, nanos: 6 },
        ctime: Timestamp::default(),
    }
}

/// Directories are 1 to 9, files 10 to 19, symbolic links 20 to 29.
fn usual(ino: u64) -> Attr {
    attr(
        ino,
        match ino {
            0..10 => FileKind::Directory,
            10..20 => FileKind::Regular,
            _ => FileKind::Symlink,
        },
    )
}

impl FileSystem for Odd {
    fn root(&self) -> Ino {
        Ino(1)
    }

    fn lookup(&self, _: Ino, _: &[u8]) -> FsResult<Attr> {
        Err(FsError::Unsupported)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok((self.attr)(ino.0))
    }

    fn readdir(
        &self,
        ino: Ino,
        _: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        for &(parent, name, child) in &self.entries {
            let kind = FileKind::Fifo; // what attributes say counts
            let (ino_of_child, next) = (Ino(child), 1);
            if parent == ino.0 {
                let _ = visit(DirEntry {
                    ino: ino_of_child,
                    kind,
                    next,
                    name,
                });
            }
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match ino.0 {
            20 => Ok(b"target".to_vec()),
            21 => Ok(Vec::new()),
            22 => Ok(b"a\0b".to_vec()),
            _ => Err(FsError::Corrupt("a rule is broken".into())),
        }
    }

    fn read(&self, _: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let len = buf
            .len()
            .min(self.step)
            .min(self.end.saturating_sub(offset) as usize);
        buf[..len].fill(b'a');
        Ok(len)
    }

    fn seek(&self, _: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        match what {
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(self.end),
        }
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::Unsupported)
    }

    fn listxattr(&self, _: Ino) -> FsResult<Vec<Vec<u8>>> {
        Err(FsError::Unsupported)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Err(FsError::Unsupported)
    }
}

#[test]
fn answers_of_a_file_system_are_checked() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let odd = |entries: &[(u64, &'static [u8], u64)]| Odd {
        entries: entries.to_vec(),
        attr: usual,
        step: 4000,
        end: 10_000,
    };
    let made = |odd: Odd| {
        let input = Input::One(Layer::FileSystem(Arc::new(odd), "odd".into()));
        build(&image, input, &Options::default()).map_err(|e| e.to_string())
    };
    let sane: &[(u64, &[u8], u64)] = &[(1, b".", 1), (1, b"..", 1), (1, b"d", 2), (2, b"f", 10)];
    let summary = made(odd(&[sane, &[(2, b"l", 20)]].concat())).unwrap();
    let counts = (summary.files, summary.directories, summary.symlinks);
    assert_eq!((counts, summary.input_bytes), ((1, 2, 1), 10_000));
    fs::remove_file(&image).unwrap();
    for (more, said) in [
        (
            (2, &b"up"[..], 1),
            "odd/d/up: a directory that has another name as well",
        ),
        (
            (1, b"d2", 2),
            "odd/d2: a directory that has another name as well",
        ),
        ((1, b"d", 3), "odd/d: the directory has this name twice"),
        ((1, b"a/b", 11), "`a/b` is no name of a file"),
        ((1, b"a\0b", 11), "`a\\x00b` is no name of a file"),
        ((1, b"", 11), "`` is no name of a file"),
        ((1, &[b'x'; 256], 11), "is no name of a file"),
        ((1, b"l", 21), "odd/l: a target of 0 bytes"),
        ((1, b"l", 22), "odd/l: a target of 3 bytes"),
        (
            (1, b"l", 23),
            "odd/l: cannot read the link: a rule is broken",
        ),
    ] {
        let found = made(odd(&[sane, &[more]].concat())).unwrap_err();
        assert!(found.contains(said), "{found}, and not {said}");
        assert!(!image.exists());
    }
    let with = |attr: fn(u64) -> Attr| made(Odd { attr, ..odd(sane) }).unwrap_err();
    let huge = with(|ino| Attr {
        size: u64::MAX,
        ..usual(ino)
    });
    assert!(
        huge.contains("18446744073709551615 bytes with their holes"),
        "{huge}"
    );
    let device = with(|ino| Attr {
        kind: if ino == 1 {
            FileKind::Directory
        } else {
            FileKind::CharDevice
        },
        rdev: Rdev {
            major: 4096,
            minor: 0,
        },
        ..usual(ino)
    });
    assert!(device.contains("device 4096:0"), "{device}");
    let root = with(|ino| attr(ino, FileKind::Regular));
    assert!(root.contains("its root is no directory"), "{root}");
    // A file that ends before its size has changed.
    let short = Odd {
        end: 9999,
        ..odd(sane)
    };
    let found = made(short).unwrap_err();
    assert!(found.contains("odd/d/f: it changed"), "{found}");
}

/// Says that content lies somewhere.
struct Told(Placed);

impl Places for Told {
    fn devices(&self) -> Vec<SourceDevice> {
        vec![SourceDevice {
            bytes: 40_960,
            tag: vec![b'x'; 100],
            ..SourceDevice::default()
        }]
    }

    fn place(&self, _: Ino) -> FsResult<Placed> {
        Ok(self.0.clone())
    }
}

#[test]
fn places_of_content_are_checked() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let made = |placed: Placed, memory_bytes| {
        let odd = Odd {
            entries: vec![(1, b".", 1), (1, b"..", 1), (1, b"f", 10)],
            attr: usual,
            step: 4000,
            end: 10_000,
        };
        let layer = Layer::Placed(Arc::new(odd), Arc::new(Told(placed)), "odd".into());
        let options = Options {
            content: Content::Refer,
            memory_bytes,
            ..Options::default()
        };
        build(&image, Input::One(layer), &options).map_err(|e| e.to_string())
    };
    let on = |device, place| Placed::On {
        device,
        parts: vec![PlacedPart {
            start: 0,
            bytes: 10_000,
            place,
        }],
    };
    let elsewhere = made(on(0, 8192), 1 << 20).unwrap();
    assert_eq!((elsewhere.chunked_files, elsewhere.flat_files), (1, 0));
    assert_eq!(elsewhere.device_bytes, 40_960);
    // What begins inside of a block, or on no device that there is, is stored.
    for placed in [on(0, 1000), on(1, 0), Placed::Apart] {
        let stored = made(placed, 1 << 20).unwrap();
        assert_eq!((stored.chunked_files, stored.inline_files), (0, 1));
    }
    for (placed, memory, said) in [
        (
            on(0, 32_768),
            1 << 20,
            "10000 bytes of it are to lie at 32768 of a device of 40960",
        ),
        (on(0, u64::MAX - 5), 1 << 20, "of a device of 40960"),
        (Placed::Encoded, 1 << 20, "odd/f: it is compressed"),
        (on(0, 0), 10, "more memory than --memory allows"),
    ] {
        let error = made(placed, memory).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

/// An image whose inodes are told to be such.
struct Inodes(Record, Vec<u8>);

impl Base for Inodes {
    fn record(&self, _: Ino) -> FsResult<Record> {
        Ok(self.0)
    }

    fn read(&self, _: u64, buf: &mut [u8]) -> FsResult<()> {
        let len = buf.len().min(self.1.len());
        buf[..len].copy_from_slice(&self.1[..len]);
        Ok(())
    }

    fn taken(&self, _: Ino) -> FsResult<Taken> {
        Ok(Taken::default())
    }
}

/// Whatever is told of the inodes of an image, nothing is appended that has no place, and the file stays as it was.
#[test]
fn inodes_that_stay_are_checked() {
    let dir = TempDir::new().unwrap();
    let [image, source] = ["image", "source"].map(|name| dir.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("new"), "new").unwrap();
    build(&image, &source, &Options::default()).unwrap();
    let before = fs::read(&image).unwrap();
    let appended = |record: Record, bytes: &[u8], superblock: &[u8]| {
        let odd = Odd {
            entries: vec![(1, b".", 1), (1, b"..", 1), (1, b"f", 10)],
            attr: usual,
            step: 4000,
            end: 10_000,
        };
        let base = Arc::new(Inodes(record, bytes.to_vec()));
        let layers = vec![
            Layer::Base(Arc::new(odd), base, "odd".into()),
            Layer::Directory(&source),
        ];
        let options = Options {
            append: Some(Appended {
                superblock: superblock.to_vec(),
                cfgs: Default::default(),
                end: before.len() as u64,
                packed: None,
            }),
            ..Options::default()
        };
        let built = build(&image, Input::Layers(layers), &options);
        let now = fs::read(&image).unwrap();
        fs::write(&image, &before).unwrap();
        match built {
            Ok(_) => Ok(now),
            Err(error) => Err((error.to_string(), now)),
        }
    };
    let record = |bytes| Record {
        address: 0,
        bytes,
        is_inline: false,
    };
    let superblock = &before[1024..4096];
    let made = appended(record(64), &[1; 64], superblock).unwrap();
    assert!(made.len() > before.len() && made[1152..].starts_with(&before[1152..]));
    let other = [superblock, &[0; 8][..]].concat();
    for (record, bytes, superblock, said) in [
        (record(1), &[0][..], superblock, "no place for 1 links"),
        (record(16), &[1; 16], superblock, "no place for 1 links"),
        (record(40), &[1; 40], superblock, "no place for 1 links"),
        (record(u64::MAX), &[], superblock, "268435456 are the most"),
        (
            record(64),
            &[1; 64],
            &superblock[..100],
            "the image to append to",
        ),
        (
            record(64),
            &[1; 64],
            &other,
            "another image is there meanwhile",
        ),
    ] {
        let (error, now) = appended(record, bytes, superblock).unwrap_err();
        assert!(error.contains(said), "{error}");
        assert!(now == before, "{error}");
    }
}
