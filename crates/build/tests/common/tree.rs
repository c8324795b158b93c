//! A tree with one of everything.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, mknodat};

use crate::common::{Random, is_root};

/// A tree with all that an archive can hold. Attributes and devices need root.
pub fn tree(dir: &Path) {
    let mut random = Random::new(7);
    for n in 0..40 {
        let parent = dir.join(format!("{}/{}", n % 3, n % 7));
        fs::create_dir_all(&parent).unwrap();
        let len = random.below(if n % 8 == 0 { 400_000 } else { 9000 }) as usize;
        fs::write(parent.join(format!("file-{n}")), random.mixture(len)).unwrap();
    }
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("0/same"), random.text(30_000)).unwrap();
    fs::copy(dir.join("0/same"), dir.join("2/same")).unwrap();
    // Links to a file that is listed before them, and after.
    fs::hard_link(dir.join("0/same"), dir.join("1/link")).unwrap();
    fs::hard_link(dir.join("2/same"), dir.join("0/0/link")).unwrap();
    symlink("0/same", dir.join("symlink")).unwrap();
    symlink("x".repeat(300), dir.join("long-symlink")).unwrap();
    let long = dir.join("d".repeat(120)).join("e".repeat(200));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("f".repeat(255)), "deep").unwrap();
    fs::write(dir.join("0.txt"), "sorts between 0 and what lies in it").unwrap();
    sparse(&dir.join("sparse"), 3 << 20, &[0, 1 << 20]);
    sparse(
        &dir.join("mostly-hole"),
        40 << 20,
        &[5 << 20, (40 << 20) - 100],
    );
    sparse(&dir.join("all-hole"), 1 << 20, &[]);
    let many: Vec<u64> = (0..100).map(|n| n * 16384).collect();
    sparse(&dir.join("comb"), 100 * 16384, &many);
    let perm = |name: &str, mode| {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    perm("0", 0o1777);
    perm("empty", 0o4755);
    let fifo = dir.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o640), 0).unwrap();
    if is_root() {
        add_what_root_may(dir);
    }
    for name in ["0/same", "1", "sparse", "symlink"] {
        let time = Timespec {
            tv_sec: 1_700_000_000,
            tv_nsec: 123_456_789,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(CWD, dir.join(name), &times, flags).unwrap();
    }
}

fn add_what_root_may(dir: &Path) {
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, (1, 3)),
        ("disk", FileType::BlockDevice, (259, 70_000)),
    ] {
        let device = rustix::fs::makedev(device.0, device.1);
        mknodat(CWD, dir.join(name), kind, Mode::from(0o660), device).unwrap();
    }
    std::os::unix::fs::lchown(dir.join("empty"), Some(1000), Some(100_000)).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| {
        let path = dir.join(name);
        rustix::fs::lsetxattr(path, key, value, XattrFlags::empty()).unwrap();
    };
    set("0/same", "user.binary", &[0, 1, b'\n', b'=', 255]);
    set("0/same", "trusted.a=%3D", b"");
    set("0.txt", "user.long", &[b'v'; 3000]);
    set("1", "security.other", b"x");
    set("symlink", "trusted.link", b"x");
    set("0", "security.selinux", b"system_u:object_r:etc_t:s0\0");
    let entry = |tag: u16, perm: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &perm.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let acl = [
        vec![2, 0, 0, 0],
        entry(1, 6, u32::MAX),
        entry(2, 5, 0),
        entry(2, 7, 70_000),
        entry(4, 4, u32::MAX),
        entry(8, 6, 70_001),
        entry(16, 7, u32::MAX),
        entry(32, 4, u32::MAX),
    ];
    set("0.txt", "system.posix_acl_access", &acl.concat());
    set("2", "system.posix_acl_default", &acl.concat());
    let plain = [&acl[0][..], &acl[1], &acl[4], &acl[7]].concat();
    set("1", "system.posix_acl_default", &plain);
}

/// A file with 1000 bytes at some places, as far as it reaches, and holes.
fn sparse(path: &Path, len: u64, data: &[u64]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for &at in data {
        let end = (at + 1000).min(len);
        let text = Random::new(at).text((end - at) as usize);
        file.write_all_at(&text, at).unwrap();
    }
}
