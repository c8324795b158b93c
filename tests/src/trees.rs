//! Source trees that hold one of everything, made from fixed seeds.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev};
use tempfile::TempDir;

use crate::judge::is_root;

/// A source tree that goes when its owner does.
pub struct Tree {
    dir: TempDir,
}

/// Pseudo-random numbers from a seed: SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait)] // it never ends
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below a limit, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A length up to a limit: short ones are as likely as long ones.
    pub fn length(&mut self, limit: u64) -> u64 {
        let bits = self.below(u64::from(limit.ilog2()) + 1);
        let length = (1 << bits) + self.below(1 << bits);
        length.min(limit)
    }
}

/// So many bytes that no compressor makes smaller.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// So many bytes of made-up words, that compress about as text does.
pub fn words(seed: u64, len: usize) -> Vec<u8> {
    const PARTS: [&str; 16] = [
        "ka", "lo", "mi", "ren", "tus", "va", "pel", "dor", "ishi", "quo", "zan", "eth", "or",
        "umb", "al", "fen",
    ];
    let mut random = Random(seed);
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        for _ in 0..=random.next() % 3 {
            text.extend_from_slice(PARTS[random.next() as usize % 16].as_bytes());
        }
        text.push(if random.next() % 9 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

/// Text, noise and zeros in turn, in pieces of many lengths.
pub fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(len + 65_536);
    while bytes.len() < len {
        let piece = random.next() as usize % 20_000;
        let seed = random.next();
        match seed % 4 {
            0 => bytes.extend(noise(seed, piece)),
            1 => bytes.resize(bytes.len() + piece, 0),
            _ => bytes.extend(words(seed, piece)),
        }
    }
    bytes.truncate(len);
    bytes
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    /// An empty tree below a directory.
    pub fn new_in(dir: &Path) -> Self {
        Self {
            dir: TempDir::new_in(dir).unwrap(),
        }
    }

    /// One of everything, in some 3 MB: what every judge sees. Without root, no foreign owners, no device nodes
    /// and no attributes but the user's.
    pub fn everything() -> Self {
        let tree = Self::new();
        tree.add_data();
        tree.add_equal_parts(40_000);
        tree.add_links();
        tree.add_names();
        tree.add_xattrs();
        tree.add_modes();
        if is_root() {
            tree.add_privileged();
        }
        tree.set_times();
        tree
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns where a name lies.
    pub fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path().join(name.as_ref())
    }

    /// Writes a file, and the directories above it.
    pub fn write(&self, name: impl AsRef<OsStr>, content: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn add_data(&self) {
        self.write("data/empty", b"");
        for size in [
            1, 2, 511, 512, 513, 1023, 1025, 4095, 4096, 4097, 8191, 8192, 12_289, 65_536, 65_537,
        ] {
            self.write(format!("data/words-{size}"), &words(size as u64, size));
        }
        for size in [100, 4096, 5000, 70_000] {
            self.write(format!("data/noise-{size}"), &noise(size as u64, size));
            self.write(format!("data/zeros-{size}"), &vec![0; size]);
        }
        self.write("data/ones", &[b'1'; 50_000]);
        self.write("data/text", &words(1, 300_000));
        self.write("data/same-text", &words(1, 300_000));
        self.write("data/most-of-text", &words(1, 300_000)[10_000..290_000]);
        self.write("data/mixed", &mixed(2, 500_000));
        self.write("data/compressible", &words(3, 5000).repeat(60));
        self.sparse(
            "data/sparse",
            200_000,
            &[(4096, 5000), (65_536, 10), (131_072, 4096)],
        );
        self.sparse("data/hole-in-front", 20_000, &[(16_384, 3616)]);
        self.sparse("data/hole-at-the-end", 100_000, &[(0, 5000)]);
        self.sparse("data/all-hole", 50_001, &[]);
    }

    /// A file of a size with so much text at these offsets, and holes elsewhere.
    pub fn sparse(&self, name: &str, size: u64, parts: &[(u64, usize)]) {
        self.write(name, b"");
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.at(name))
            .unwrap();
        file.set_len(size).unwrap();
        for &(offset, len) in parts {
            file.write_all_at(&words(offset, len), offset).unwrap();
        }
    }

    /// Files that have much in common: whole ones, ends, beginnings, and pieces in between; also by hard links and holes.
    pub fn add_copies(&self) {
        let text = words(1, 300_000);
        self.write("copies/text", &text);
        self.write("copies/text-again", &text);
        self.write("copies/most-of-text", &text[10_000..290_000]);
        self.write(
            "copies/text-and-more",
            &[&text[..], &words(2, 3000)].concat(),
        );
        for copy in 0..3 {
            self.write(format!("copies/small-{copy}"), &words(3, 2000));
            self.write(format!("copies/noise-{copy}"), &noise(4, 50_000));
            let own = mixed(copy, 70_000 + copy as usize);
            self.write(
                format!("copies/end-{copy}"),
                &[&own[..], &text[..90_000]].concat(),
            );
        }
        self.write("copies/many", &words(5, 20_000).repeat(10));
        fs::hard_link(self.at("copies/small-0"), self.at("copies/linked")).unwrap();
        self.sparse("copies/sparse", 900_000, &[(300_000, 20_000)]);
    }

    /// Adds files with equal parts of some `len` bytes at all kinds of places, but no equal files: with something inserted
    /// or left out, with headers as in an archive, as noise, behind each other, and twice in one file.
    pub fn add_equal_parts(&self, len: usize) {
        let (text, other, hiss) = (words(21, len), mixed(22, len), noise(23, len));
        let (cut, odd) = (len / 3, len / 2 + 5);
        let front = words(24, len / 2 + 777);
        let header = [&b"member"[..], &[0; 506]].concat();
        let parts: [(&str, &[&[u8]]); 9] = [
            ("text", &[&text]),
            (
                "text-with-insertion",
                &[&text[..cut], b"and what is new", &text[cut..]],
            ),
            ("text-with-gap", &[&text[..cut], &text[odd..]]),
            ("tar", &[&header, &text, &header, &other, &header, &hiss]),
            (
                "tar-of-others",
                &[&header, &other, &front, &header, &text[odd..], &header],
            ),
            ("hiss-at-a-block", &[&words(25, 65_536), &hiss]),
            ("hiss-aside", &[&hiss[..cut], &hiss[cut + 3..]]),
            ("twice", &[&front, &other[..cut], &front, b"!", &front]),
            ("front", &[&text[..odd], &hiss[..odd]]),
        ];
        for (name, parts) in parts {
            self.write(format!("parts/{name}"), &parts.concat());
        }
    }

    fn add_links(&self) {
        self.write("links/file", b"has three names\n");
        fs::hard_link(self.at("links/file"), self.at("links/second-name")).unwrap();
        fs::hard_link(self.at("links/file"), self.at("data/third-name")).unwrap();
        for (name, target) in [
            ("soft", "../data/text"),
            ("dangling", "nowhere"),
            ("root", "/"),
        ] {
            symlink(target, self.at("links").join(name)).unwrap();
        }
        for len in [60, 1000, 4094, 4095] {
            symlink("s".repeat(len), self.at(format!("links/long-{len}"))).unwrap();
        }
        rustix::fs::mknodat(
            CWD,
            self.at("links/fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o640),
            0,
        )
        .unwrap();
        rustix::fs::mknodat(
            CWD,
            self.at("links/socket"),
            FileType::Socket,
            Mode::from_raw_mode(0o700),
            0,
        )
        .unwrap();
    }

    fn add_names(&self) {
        let deep = format!("deep{}", "/further".repeat(40));
        self.write(format!("{deep}/bottom"), b"bottom\n");
        fs::create_dir_all(self.at("names/empty-directory")).unwrap();
        for name in [
            &[b'n'; 255][..],
            b"with blank",
            b"new\nline",
            b"na\xc3\xafve",
            b"na\xefve",
            b"...",
            b"%41",
        ] {
            self.write(Path::new("names").join(OsStr::from_bytes(name)), name);
        }
        for number in 0..700 {
            self.write(format!("many/{}{number:04}", "m".repeat(number % 7)), b"");
        }
    }

    fn add_xattrs(&self) {
        self.write("xattrs/one", b"one\n");
        self.xattr("xattrs/one", "user.comment", b"one attribute");
        self.xattr("xattrs/one", "user.empty", b"");
        for name in ["a", "b", "c", "d"] {
            self.write(format!("xattrs/shared-{name}"), name.as_bytes());
            self.xattr(
                &format!("xattrs/shared-{name}"),
                "user.shared",
                b"the same value for all of these files",
            );
        }
        self.write("xattrs/many", b"many\n");
        for number in 0..40 {
            self.xattr(
                "xattrs/many",
                &format!("user.number-{number}"),
                number.to_string().as_bytes(),
            );
        }
        self.write("xattrs/prefixed", b"prefixed\n");
        for name in ["first", "second", "third"] {
            self.xattr(
                "xattrs/prefixed",
                &format!("user.org.example.{name}"),
                name.as_bytes(),
            );
        }
        self.write("xattrs/binary", b"binary\n");
        self.xattr("xattrs/binary", "user.binary", &[0, 255, 1, 2, 128, 0]);
        self.xattr("xattrs", "user.directory", b"on a directory");
    }

    /// Sets an attribute; not of what a symbolic link refers to.
    pub fn xattr(&self, name: &str, key: &str, value: &[u8]) {
        rustix::fs::lsetxattr(self.at(name), key, value, XattrFlags::empty()).unwrap();
    }

    fn add_modes(&self) {
        // Others than root cannot read what nobody may.
        let unreadable = is_root().then_some(0o000);
        let modes = [0o644, 0o755, 0o2755, 0o4755, 0o6711, 0o777];
        for mode in modes.into_iter().chain(unreadable) {
            let name = format!("modes/{mode:04o}");
            self.write(&name, name.as_bytes());
            fs::set_permissions(self.at(&name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(self.at("modes/sticky")).unwrap();
        fs::set_permissions(self.at("modes/sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
    }

    fn add_privileged(&self) {
        for (name, kind, major, minor) in [
            ("null", FileType::CharacterDevice, 1, 3),
            ("disk", FileType::BlockDevice, 7, 200),
            ("large", FileType::CharacterDevice, 300, 70_000),
        ] {
            fs::create_dir_all(self.at("nodes")).unwrap();
            let path = self.at("nodes").join(name);
            rustix::fs::mknodat(
                CWD,
                path,
                kind,
                Mode::from_raw_mode(0o660),
                makedev(major, minor),
            )
            .unwrap();
        }
        for (name, uid, gid) in [
            ("user", 1000, 100),
            ("large", 70_000, 80_000),
            ("largest", u32::MAX - 1, u32::MAX - 1),
        ] {
            let name = format!("owners/{name}");
            self.write(&name, name.as_bytes());
            std::os::unix::fs::chown(self.at(&name), Some(uid), Some(gid)).unwrap();
        }
        self.xattr(
            "xattrs/one",
            "security.selinux",
            b"system_u:object_r:bin_t:s0\0",
        );
        self.xattr(
            "xattrs/one",
            "trusted.overlay.redirect",
            b"/some/where/else",
        );
        self.xattr("links/soft", "trusted.link", b"on a link");
        self.write("xattrs/capable", b"capable\n");
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        self.xattr("xattrs/capable", "security.capability", &capability);
        self.write("xattrs/acl", b"acl\n");
        self.xattr("xattrs/acl", "system.posix_acl_access", &acl());
        fs::create_dir(self.at("xattrs/acl-default")).unwrap();
        self.xattr("xattrs/acl-default", "system.posix_acl_default", &acl());
    }

    /// Gives a file an attribute of 60,000 bytes, if the file system of the tree can keep it.
    pub fn add_large_xattr(&self) {
        self.write("xattrs/large", b"large\n");
        let set = |len| {
            let value = words(9, len);
            rustix::fs::lsetxattr(
                self.at("xattrs/large"),
                "user.large",
                &value,
                XattrFlags::empty(),
            )
        };
        // ext4 keeps what fits a block, unless it was made with `ea_inode`.
        set(60_000).or_else(|_| set(3500)).unwrap();
    }

    /// The same time for everything, so that the tree is the same each time; and some that are hard to keep.
    fn set_times(&self) {
        const BUILT: i64 = 1_700_000_000;
        for name in ["old", "nanoseconds", "later", "latest", "before-1970"] {
            self.write(format!("times/{name}"), name.as_bytes());
        }
        set_times_below(self.path(), BUILT);
        for (name, secs, nanos) in [
            ("old", 1, 0),
            ("nanoseconds", BUILT - 1, 123_456_789),
            ("later", 4_102_444_800, 0),
            ("latest", 10_000_000_000, 999_999_999),
            ("before-1970", -86_400, 0),
        ] {
            set_time(&self.at(format!("times/{name}")), secs, nanos);
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

fn set_times_below(path: &Path, secs: i64) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            set_times_below(&entry.unwrap().path(), secs);
        }
    }
    set_time(path, secs, 0);
}

/// Sets when a file was changed and read; of a symbolic link itself.
pub fn set_time(path: &Path, tv_sec: i64, tv_nsec: i64) {
    let time = Timespec {
        tv_sec,
        tv_nsec: tv_nsec as _,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// An access control list: `user::rw-,user:1000:rw-,group::r--,group:100:r--,mask::rw-,other::r--` as `linux/posix_acl_xattr.h` lays it out.
pub fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 6] = [
        (0x01, 6, u32::MAX),
        (0x02, 6, 1000),
        (0x04, 4, u32::MAX),
        (0x08, 4, 100),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
