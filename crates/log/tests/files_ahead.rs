//! Small files that whoever reads a tree is given before asking for them.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anteros_core::{Changes, FileSystem, FsError, Ino, OpenFile, Writable};
use anteros_log::{Log, Policy};
use support::*;

/// So long is each file: 13 of them fill the first window.
const BYTES: usize = 5000;
const FIRST_WINDOW: usize = 13;

const PATIENCE: Duration = Duration::from_secs(60);

/// A log with files, in the order of their listing. All of them are known, as those are whose attributes were listed.
struct Walk {
    log: Arc<Log>,
    files: Vec<(Ino, String)>,
}

impl Walk {
    fn new() -> Self {
        Self::of(&(0..40).map(|n| format!("file{n}")).collect::<Vec<_>>())
    }

    fn of(names: &[String]) -> Self {
        let device = device(64 * MIB);
        let tree = open_with(device.clone(), with(Policy::Record));
        for name in names {
            tree.put(name, &content(name)).unwrap();
        }
        tree.0.close().unwrap();
        drop(tree);
        let log = Arc::new(Log::open(device, with(Policy::Record)).unwrap());
        let files = listed(&log);
        assert_eq!(files.len(), names.len());
        Self { log, files }
    }

    /// Has files given to whoever hears by `store`, and lists them again.
    fn giving(&self, store: impl Fn(Ino, u64, &[u8]) -> bool + Send + 'static) {
        self.log.prefetch(store).unwrap();
        assert_eq!(listed(&self.log), self.files);
    }

    /// Reads the first files, as many as make a walk.
    fn go(&self) {
        for (ino, name) in &self.files[..3] {
            let mut found = vec![0; BYTES];
            assert_eq!(self.log.read(*ino, 0, &mut found).unwrap(), BYTES);
            assert!(found == content(name));
        }
    }

    /// The file that is given first, and the last one of those.
    fn ends(&self) -> [Ino; 2] {
        [3, 2 + FIRST_WINDOW].map(|at| self.files[at].0)
    }

    fn open(&self, ino: Ino, flags: u32) -> Result<OpenFile, FsError> {
        let handle = self.log.open(ino, flags)?;
        Ok(OpenFile { ino, handle })
    }

    /// Goes until the first file is being given, which goes on until the sender is gone.
    fn go_and_stop(&self) -> Sender<()> {
        let (there, is_there) = channel();
        let (go, may_go) = channel::<()>();
        self.giving(move |ino, _, _| there.send(ino).is_ok() && may_go.recv().is_ok());
        self.go();
        assert_eq!(is_there.recv_timeout(PATIENCE), Ok(self.ends()[0]));
        go
    }
}

fn content(name: &str) -> Vec<u8> {
    let seed = name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
    bytes(seed, BYTES)
}

/// Lists the root with attributes.
fn listed(log: &Log) -> Vec<(Ino, String)> {
    let mut names = Vec::new();
    log.readdir(log.root(), 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    let names = names.into_iter().filter(|name| !name.starts_with('.'));
    let ino = |name: &String| log.lookup_listed(log.root(), name.as_bytes()).unwrap().ino;
    names.map(|name| (ino(&name), name)).collect()
}

/// Sends what is given.
fn sends(sender: Sender<(Ino, Vec<u8>)>) -> impl Fn(Ino, u64, &[u8]) -> bool + Send + 'static {
    move |ino, offset, data| {
        assert_eq!(offset, 0);
        sender.send((ino, data.to_vec())).is_ok()
    }
}

/// Returns the files that are given until one comes, with that one.
fn until(given: &Receiver<(Ino, Vec<u8>)>, last: Ino) -> Vec<(Ino, Vec<u8>)> {
    let mut all = Vec::new();
    while all.last().is_none_or(|(ino, _)| *ino != last) {
        all.push(given.recv_timeout(PATIENCE).unwrap());
    }
    all
}

#[test]
fn whoever_walks_is_given_the_next_files_as_a_whole() {
    let walk = Walk::new();
    let (sender, given) = channel();
    walk.giving(sends(sender));
    walk.go();
    let found = until(&given, walk.ends()[1]);
    let expected: Vec<_> = walk.files[3..3 + FIRST_WINDOW]
        .iter()
        .map(|(ino, name)| (*ino, content(name)))
        .collect();
    assert!(found == expected, "{}", found.len());
    assert_eq!(
        walk.log.condition().pushed_bytes,
        (FIRST_WINDOW * BYTES) as u64
    );
}

#[test]
fn a_file_that_somebody_writes_to_is_not_given() {
    let walk = Walk::new();
    let (sender, given) = channel();
    walk.giving(sends(sender));
    let [first, last] = walk.ends();
    let writer = walk.open(first, 2).unwrap();
    walk.go();
    let found = until(&given, last);
    assert_eq!(found.len(), FIRST_WINDOW - 1);
    assert!(found.iter().all(|(ino, _)| *ino != first));
    walk.log.release(writer);
}

/// Whoever gives may wait for somebody else's request, for which the thread would be missing that serves this one.
#[test]
fn who_would_change_a_file_that_is_being_given_is_refused_for_now() {
    let walk = Walk::new();
    let go = walk.go_and_stop();
    let first = walk.ends()[0];
    let shorter = Changes {
        size: Some(1),
        ..Changes::default()
    };
    let cut = |ino| Writable::change(&*walk.log, ino, None, &shorter).map(|attr| attr.size);
    assert!(is(walk.open(first, 1), FsError::Later));
    assert!(is(cut(first), FsError::Later));
    walk.log.release(walk.open(first, 0).unwrap());
    let other = walk.files[30].0;
    walk.log.release(walk.open(other, 1).unwrap());
    assert_eq!(cut(other).unwrap(), 1);
    drop(go);
    let file = open_at_last(&walk.log, first);
    assert_eq!(cut(first).unwrap(), 1);
    walk.log.release(file);
}

/// Content that is given under the number would else be found in the new file.
#[test]
fn the_number_of_a_file_that_is_being_given_goes_to_no_other() {
    let walk = Walk::new();
    let go = walk.go_and_stop();
    let (first, name) = &walk.files[3];
    let inodes = walk.log.condition().inodes;
    walk.log.unlink(walk.log.root(), name.as_bytes()).unwrap();
    // Once for each listing.
    walk.log.forget(*first, 2);
    assert_eq!(walk.log.condition().inodes, inodes, "it is kept");
    drop(go);
    while walk.log.condition().inodes == inodes {
        std::thread::yield_now();
    }
    assert!(is(walk.log.getattr(*first), FsError::NotFound));
}

#[test]
fn programs_are_left_to_whoever_reads_them_where_that_is_recorded() {
    let name = |n| format!("lib{n}{}", if n % 2 == 0 { ".so" } else { ".txt" });
    let walk = Walk::of(&(0..40).map(name).collect::<Vec<_>>());
    walk.log.remember_launches().unwrap();
    let (sender, given) = channel();
    walk.giving(sends(sender));
    walk.go();
    let texts = walk.files[3..3 + FIRST_WINDOW].iter();
    let texts: Vec<_> = texts.filter(|(_, name)| name.ends_with(".txt")).collect();
    assert!(texts.len() < FIRST_WINDOW);
    let found = until(&given, texts[texts.len() - 1].0);
    let found: Vec<_> = found.iter().map(|(ino, _)| *ino).collect();
    assert_eq!(found, texts.iter().map(|(ino, _)| *ino).collect::<Vec<_>>());
}

#[test]
fn who_opens_a_file_that_was_given_has_read_it() {
    let walk = Walk::new();
    let (sender, given) = channel();
    walk.giving(sends(sender));
    walk.go();
    let [first, last] = walk.ends();
    until(&given, last);
    let attr = || walk.log.getattr(first).unwrap();
    assert!(attr().atime <= attr().mtime);
    walk.log.release(walk.open(first, 0).unwrap());
    assert!(attr().atime > attr().mtime);
    let other = walk.files[30].0;
    walk.log.release(walk.open(other, 0).unwrap());
    let attr = walk.log.getattr(other).unwrap();
    assert!(attr.atime <= attr.mtime, "it will be asked for");
}

#[test]
fn what_is_listed_is_known_until_it_is_forgotten() {
    let walk = Walk::new();
    let (ino, name) = &walk.files[7];
    walk.log.unlink(walk.log.root(), name.as_bytes()).unwrap();
    assert_eq!(walk.log.getattr(*ino).unwrap().nlink, 0);
    walk.log.forget(*ino, 1);
    assert!(is(walk.log.getattr(*ino), FsError::NotFound));
}

#[test]
fn a_listing_takes_no_more_memory_than_there_is() {
    let device = device(64 * MIB);
    let tree = open_with(device, options_with(64 << 10));
    let names: Vec<_> = (0..1000).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| tree.create(name).unwrap());
    let root = tree.0.root();
    let is_listed = |name: &String| tree.0.lookup_listed(root, name.as_bytes()).is_some();
    let listed = names.iter().filter(|name| is_listed(name)).count();
    assert!((100..900).contains(&listed), "{listed}");
    assert!(tree.0.lookup(root, b"file999").is_ok());
}
