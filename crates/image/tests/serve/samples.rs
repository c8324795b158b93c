//! Images with what their files hold, read in the plain way.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use anteros_core::{Device, FileKind, FileSystem, Ino};
use anteros_format::inode::Inode;
use anteros_image::{Error, Extent, Image, ImageFs, OpenOptions, Reader, Strategy};
use anteros_tests::large;
use anteros_tests::trees::Random;

use crate::common::{FIXTURES, Fixture};

pub const STRATEGIES: [Strategy; 5] = [
    Strategy::Auto,
    Strategy::Vmap,
    Strategy::Buffer,
    Strategy::Rolling,
    Strategy::InPlace,
];

/// An image and its files.
pub struct Sample {
    pub name: String,
    pub fixture: Fixture,
    pub files: Vec<File>,
}

/// A file with all its bytes.
pub struct File {
    pub path: String,
    pub ino: Ino,
    pub content: Vec<u8>,
}

/// The fixtures.
pub fn small() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let fixtures = FIXTURES.map(|name| Sample::new(name.into(), Fixture::read(name)));
        fixtures.into()
    })
}

/// Those with long extents.
pub fn large() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let images = large::all().into_iter();
        images
            .map(|(name, bytes)| Sample::new(name, fixture(bytes)))
            .collect()
    })
}

/// Those whose files are all packed in long extents.
pub fn packed() -> [Sample; 3] {
    large::packed().map(|(name, image)| Sample::new(name.into(), fixture(image)))
}

/// Text in many short extents that decode slowly; `None` without the peers.
pub fn slow() -> Option<Sample> {
    let codec = large::THEIR_CODECS[0];
    let image = large::theirs(large::tree().path(), codec, 16 << 10)?;
    Some(Sample::new(codec.into(), fixture(image)))
}

fn fixture(bytes: Vec<u8>) -> Fixture {
    Fixture {
        bytes,
        extra: None,
        extra_count: 0,
    }
}

impl Sample {
    fn new(name: String, fixture: Fixture) -> Self {
        let fs = ImageFs::new(Arc::new(fixture.open().unwrap()));
        let mut files = Vec::new();
        find_files(&fs, fs.root(), "", &mut files);
        Self {
            name,
            fixture,
            files,
        }
    }

    pub fn open(&self, options: OpenOptions) -> ImageFs {
        ImageFs::new(Arc::new(self.fixture.open_with(options).unwrap()))
    }

    /// Opens it on another device.
    pub fn open_on(&self, device: Arc<dyn Device>, options: OpenOptions) -> Arc<ImageFs> {
        let image = Image::open(device, Vec::new(), options).unwrap();
        Arc::new(ImageFs::new(Arc::new(image)))
    }

    pub fn file(&self, path: &str) -> &File {
        self.files.iter().find(|file| file.path == path).unwrap()
    }

    pub fn extents(&self, path: &str) -> Vec<Extent> {
        self.fixture.extents(path)
    }

    pub fn any_file(&self, random: &mut Random) -> &File {
        &self.files[random.below(self.files.len() as u64) as usize]
    }
}

/// The sample of a name.
pub fn named(name: &str) -> &'static Sample {
    small().iter().find(|sample| sample.name == name).unwrap()
}

impl File {
    /// Reads through the file system, and compares.
    #[track_caller]
    pub fn compare(&self, fs: &ImageFs, offset: u64, len: usize, what: &str) {
        let found = read(fs, self.ino, offset, len);
        let found = found.unwrap_or_else(|error| panic!("{what}: {}: {error}", self.path));
        assert!(
            found == self.at(offset, len),
            "{what}: {}: {len} bytes at {offset}",
            self.path
        );
    }

    /// Returns what a read gives.
    pub fn at(&self, offset: u64, len: usize) -> &[u8] {
        let start = self.content.len().min(offset as usize);
        &self.content[start..self.content.len().min(start + len)]
    }

    /// A range of any kind: of any length up to 1 MiB, mostly inside the file, often of whole pages.
    pub fn any_range(&self, random: &mut Random) -> (u64, usize) {
        let offset = random.below(self.content.len() as u64 + 100);
        let len = random.length(1 << 20);
        match random.below(2) {
            0 => (offset, len as usize),
            _ => (offset / 4096 * 4096, len.next_multiple_of(4096) as usize),
        }
    }
}

/// Lets a test that may hang fail instead: threads that wait for each other cannot be ended.
pub fn without_hanging(name: &str, test: impl FnOnce()) {
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let name = name.to_owned();
    std::thread::spawn(move || {
        let limit = std::time::Duration::from_secs(120);
        if ended.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            anteros_tests::judge::say(format_args!("{name} hangs"));
            std::process::exit(1);
        }
    });
    test();
    drop(done);
}

pub fn read(fs: &ImageFs, ino: Ino, offset: u64, len: usize) -> anteros_core::FsResult<Vec<u8>> {
    let mut buf = vec![0x5a; len];
    let count = fs.read(ino, offset, &mut buf)?;
    buf.truncate(count);
    Ok(buf)
}

fn find_files(fs: &ImageFs, dir: Ino, path: &str, files: &mut Vec<File>) {
    let mut entries = Vec::new();
    let visit = &mut |entry: anteros_core::DirEntry<'_>| {
        entries.push((entry.name.to_vec(), entry.kind, entry.ino));
        ControlFlow::Continue(())
    };
    fs.readdir(dir, 0, visit).unwrap();
    for (name, kind, ino) in entries {
        let Ok(name) = String::from_utf8(name) else {
            continue;
        };
        let path = format!("{path}/{name}");
        if kind == FileKind::Directory && name != "." && name != ".." {
            find_files(fs, ino, &path, files);
        } else if kind == FileKind::Regular && files.iter().all(|file| file.ino != ino) {
            let inode = fs.image().find(path.as_bytes()).unwrap();
            let content = plainly(fs.image(), &inode);
            files.extend((!content.is_empty()).then_some(File { path, ino, content }));
        }
    }
}

/// All of a file, extent by extent.
fn plainly(image: &Image, inode: &Inode) -> Vec<u8> {
    let map = image.map(inode).unwrap();
    let mut content = vec![0; inode.size as usize];
    let mut reader = Reader::new(image);
    for extent in image.extents(inode, &map) {
        let copy = |offset: u64, piece: &[u8]| {
            content[offset as usize..][..piece.len()].copy_from_slice(piece);
            Ok::<_, Error>(())
        };
        reader.read_extent(inode, &extent.unwrap(), copy).unwrap();
    }
    content
}
