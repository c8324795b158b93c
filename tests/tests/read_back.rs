//! Packed images are read back by other mounts: through FUSE in the smallest memory that our daemon has, by two readers at
//! once, some of them verified by a hash tree, and by `erofsfuse`. Where fragments, tails, shared extents and cluster sizes meet is where errors hide; the
//! kernel and `fsck.erofs` judge the same in `ours.rs`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteros_build::{
    Codec, Compression, Effort, Fragments, HashAlgorithm, HashTree, Options, Quick, Setting, Verity,
};
use anteros_core::{Device, FileDevice};
use anteros_image::{Image, ImageFs, OpenOptions};
use anteros_tests::built::{Built, Judges, Source, same};
use anteros_tests::host::HostFs;
use anteros_tests::judge::has_fuse;
use anteros_tests::manifest::{Column, edit, manifest};
use anteros_tests::mount::{FuseMount, run};
use anteros_tests::peers::Peers;
use anteros_tests::trees::{Tree, words};
use anteros_verity::{CACHE_BYTES, Verified};
use tempfile::TempDir;

/// The least memory that caches are given.
const MEMORY_BYTES: usize = 4 << 20;

/// Settings that an image is packed with: the codec; fragments, of all files, and then metadata as well, or not; clusters of
/// files and of what is packed.
type Form = (Codec, Option<bool>, u32, u32);

const FORMS: [Form; 9] = [
    (LZ4, None, 4096, 4096),
    (LZ4, Some(false), 4096, 64 << 10),
    (LZ4, Some(false), 64 << 10, 64 << 10),
    (LZ4, Some(true), 4096, 4096),
    (LZ4, Some(true), 64 << 10, 1 << 20),
    (ZSTD, None, 64 << 10, 64 << 10),
    (ZSTD, Some(true), 128 << 10, 128 << 10),
    (LZMA, Some(true), 1 << 20, 1 << 20),
    (Codec::Deflate { level: 9 }, Some(false), 32 << 10, 64 << 10),
];

const LZ4: Codec = Codec::Lz4(Effort::Fast);
const ZSTD: Codec = Codec::Zstd {
    level: 3,
    window_log: 20,
};
const LZMA: Codec = Codec::Lzma {
    level: 1,
    extreme: false,
    dict_bytes: 4 << 20,
};

const SHA256: HashTree = HashTree {
    algorithm: HashAlgorithm::Sha256,
    salt: None,
    parity_roots: None,
};

fn tree() -> Tree {
    let tree = Tree::new();
    tree.add_copies();
    tree.add_equal_parts(300_000);
    for n in 0..200 {
        tree.write(format!("many/{}/{n}", n % 7), &words(n, n as usize * 37));
    }
    tree
}

/// A codec of another algorithm, which has many of the clusters.
fn quick(codec: Codec) -> Quick {
    let other = match codec {
        Codec::Lz4(_) => Codec::Deflate { level: 1 },
        _ => LZ4,
    };
    Quick {
        of_hot: false,
        codec: Some(other),
        percent: 40,
    }
}

fn options((codec, all, pcluster_bytes, packed): Form, wide: bool, is_mixed: bool) -> Options {
    let packs_metadata = wide && all == Some(true);
    let mut compression = Compression::new(codec);
    compression.pcluster_bytes = pcluster_bytes;
    compression.quick = is_mixed.then(|| quick(codec));
    compression.segment_bytes = 256 << 10;
    Options {
        compression: Some(compression),
        inline_tails: true,
        dedupe: true,
        wide,
        hash_tree: is_mixed.then_some(SHA256),
        metabox: packs_metadata.then_some(Setting {
            codec,
            pcluster_bytes: packed.min(64 << 10),
            quick: None,
        }),
        fragments: all.map(|all| Fragments {
            all,
            pcluster_bytes: Some(packed),
        }),
        sync: false,
        ..Options::default()
    }
}

/// Builds all forms, each with encoded extents and with a second codec as well, and has each looked at.
fn each(
    options: impl Fn(Form, bool, bool) -> Options,
    look: impl Fn(&Built, &str) -> Result<(), String>,
) {
    let tree = tree();
    let source = Source::new(tree.path());
    let judges = Judges::find();
    for form in FORMS {
        for (wide, is_mixed) in [(false, false), (false, true), (true, false), (true, true)] {
            let built = judges.build(tree.path(), &options(form, wide, is_mixed));
            if let Err(error) = look(&built.unwrap(), &source.manifest) {
                panic!("{form:?}, wide: {wide}, mixed: {is_mixed}: {error}");
            }
        }
    }
}

/// The image as a device, which verifies what it reads where there is a hash tree; and the memory that is left for caches.
fn device(built: &Built) -> (Arc<dyn Device>, usize) {
    let device = FileDevice::open(built.path()).unwrap();
    match &built.summary.verity {
        Some(Verity { root, start, .. }) => {
            let verified = Verified::open(device, *start, *root).unwrap();
            (Arc::new(verified), MEMORY_BYTES - CACHE_BYTES)
        }
        None => (Arc::new(device), MEMORY_BYTES),
    }
}

#[test]
fn two_readers_at_once_in_little_memory() {
    if !has_fuse() {
        return;
    }
    each(options, |built, expected| {
        let (device, cache_bytes) = device(built);
        let options = OpenOptions {
            cache_bytes,
            ..OpenOptions::default()
        };
        let image = Image::open(device, Vec::new(), options).unwrap();
        let mount = FuseMount::new(Arc::new(ImageFs::new(Arc::new(image))));
        let read = || manifest(&HostFs::new(mount.path())).unwrap();
        std::thread::scope(|scope| {
            let readers = [scope.spawn(read), scope.spawn(read)];
            let mut found = readers.into_iter().map(|reader| reader.join().unwrap());
            found.try_for_each(|found| same("our mount", &found, expected))
        })
    });
}

#[test]
fn erofsfuse_reads_it() {
    let Some(peers) = Peers::find().filter(|_| has_fuse()) else {
        return;
    };
    // It does not find what lies behind inodes of a metabox, as `built.rs` says.
    let options = |form, wide, is_mixed| Options {
        metabox: None,
        ..options(form, wide, is_mixed)
    };
    each(options, |built, expected| {
        let mount = TheirMount::new(&peers, built.path());
        let found = manifest(&HostFs::new(mount.dir.path())).unwrap();
        // It tells whole seconds.
        let whole = |manifest: &str| {
            edit(manifest, |columns| {
                let time = &mut columns[Column::Mtime as usize];
                time.truncate(time.find('.').unwrap_or(time.len()));
                true
            })
        };
        same("erofsfuse", &whole(&found), &whole(expected))
    });
}

/// An image that `erofsfuse` has mounted.
struct TheirMount {
    dir: TempDir,
    child: Child,
}

impl TheirMount {
    fn new(peers: &Peers, image: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = peers.command("erofsfuse");
        command.arg("-f").arg(image).arg(dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let mount = Self { dir, child };
        let device = |path: &Path| rustix::fs::stat(path).unwrap().st_dev;
        let parent = mount.dir.path().parent().unwrap();
        let start = Instant::now();
        while device(mount.dir.path()) == device(parent) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it does not mount"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        mount
    }
}

impl Drop for TheirMount {
    fn drop(&mut self) {
        let unmounted = run(Command::new("umount").arg("--lazy").arg(self.dir.path()));
        if unmounted.is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
