use std::collections::BTreeMap;
use std::io::Read;

use super::*;
use crate::record::{Ending, Item, read};
use crate::{Access, Operation};

/// Inodes with their serial numbers and paths.
#[derive(Clone, Default)]
struct Tree(Arc<Mutex<BTreeMap<u64, (u64, &'static str)>>>);

impl Tree {
    fn put(&self, ino: u64, serial: u64, path: &'static str) {
        self.0.lock().unwrap().insert(ino, (serial, path));
    }
}

impl Names for Tree {
    fn serial(&mut self, ino: u64) -> Option<u64> {
        self.0.lock().unwrap().get(&ino).map(|(serial, _)| *serial)
    }

    fn path(&mut self, ino: u64) -> Option<Vec<u8>> {
        let tree = self.0.lock().unwrap();
        tree.get(&ino).map(|(_, path)| path.as_bytes().to_vec())
    }

    fn process(&mut self, pid: u32) -> Option<Vec<u8>> {
        (pid == 5).then(|| b"five".to_vec())
    }
}

fn write(ino: u64, at_ms: u64) -> Access {
    Access {
        at: Duration::from_millis(at_ms),
        took: Duration::from_micros(1),
        operation: Operation::Write,
        file: ino,
        pid: 5,
        offset: 0,
        len: 10,
        modes: 0,
        error: 0,
    }
}

fn recorder(tree: &Tree) -> (Recorder, File) {
    let file = tempfile::tempfile().unwrap();
    let begun = SystemTime::UNIX_EPOCH;
    let fail = |error| panic!("{error}");
    let recorder = Recorder::start(file.try_clone().unwrap(), begun, tree.clone(), fail);
    (recorder.unwrap(), file)
}

/// Returns what a record tells, a line for each item, and how it ends.
fn told(file: &File) -> (Vec<String>, Ending) {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut items = Vec::new();
    let read = read(&bytes[..], &mut |item| {
        items.push(match item {
            Item::Access(access) => format!("access {}", access.file),
            Item::File { number, ino, path } => {
                format!("file {number} {ino} {}", path.escape_ascii())
            }
            Item::Process { pid, name } => format!("process {pid} {}", name.escape_ascii()),
            item => format!("{item:?}"),
        });
    });
    (items, read.unwrap().1)
}

#[test]
fn files_are_named_before_they_are_used_and_again_when_they_are_renamed() {
    let tree = Tree::default();
    tree.put(7, 0, "/old");
    let (recorder, file) = recorder(&tree);
    recorder.note(write(7, 0));
    recorder.note(write(9, 1));
    assert!(recorder.flush());
    let first = [
        "file 0 7 /old",
        "process 5 five",
        "access 0",
        "file 1 9 ",
        "access 1",
    ];
    assert_eq!(
        told(&file),
        (first.map(str::to_owned).to_vec(), Ending::Open)
    );
    tree.put(7, 0, "/new");
    recorder.note(write(7, 1500));
    assert!(recorder.flush());
    tree.put(7, 0, "/newer");
    recorder.finish(Duration::from_secs(2));
    let (items, ending) = told(&file);
    let later = ["file 0 7 /new", "access 0", "file 0 7 /newer", "End(2s)"];
    assert_eq!(items[5..], later);
    assert_eq!(ending, Ending::Closed);
    let counts = recorder.counts();
    assert_eq!((counts.recorded, counts.dropped), (3, 0));
    assert_eq!(counts.bytes, file.metadata().unwrap().len());
}

#[test]
fn an_inode_that_is_given_out_again_is_another_file() {
    let tree = Tree::default();
    let (recorder, file) = recorder(&tree);
    for (serial, path, at) in [(0, "/a", 0), (1, "/b", 1), (2, "/b", 2), (2, "/b", 3)] {
        tree.put(7, serial, path);
        recorder.note(write(7, at));
        assert!(recorder.flush());
    }
    recorder.finish(Duration::ZERO);
    let (items, _) = told(&file);
    let named = items.iter().filter(|item| !item.starts_with("process"));
    let wanted = [
        "file 0 7 /a",
        "access 0",
        "file 1 7 /b",
        "access 1",
        "access 1",
        "access 1",
        "End(0ns)",
    ];
    assert_eq!(named.collect::<Vec<_>>(), wanted);
}

#[test]
fn what_comes_too_fast_is_dropped_and_counted() {
    /// Keeps the thread busy until it may go on.
    struct Slow(Arc<Mutex<()>>);
    impl Names for Slow {
        fn serial(&mut self, _: u64) -> Option<u64> {
            let _wait = self.0.lock();
            None
        }
        fn path(&mut self, _: u64) -> Option<Vec<u8>> {
            None
        }
        fn process(&mut self, _: u32) -> Option<Vec<u8>> {
            None
        }
    }
    let gate = Arc::new(Mutex::new(()));
    let mut file = tempfile::tempfile().unwrap();
    let held = gate.lock().unwrap();
    let recorder = Recorder::start(
        file.try_clone().unwrap(),
        SystemTime::UNIX_EPOCH,
        Slow(gate.clone()),
        |_| {},
    )
    .unwrap();
    let all = 2 * WAITING_MAX as u64;
    for at in 0..all {
        recorder.note(write(1, at / 100));
    }
    let dropped = recorder.counts().dropped;
    // The thread holds one in its hands, or none yet.
    assert!(dropped == all / 2 || dropped == all / 2 - 1, "{dropped}");
    drop(held);
    recorder.finish(Duration::ZERO);
    let counts = recorder.counts();
    assert_eq!((counts.recorded, counts.dropped), (all - dropped, dropped));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let (mut accesses, mut told) = (0, 0);
    read(&bytes[..], &mut |item| match item {
        Item::Access(_) => accesses += 1,
        Item::Dropped(count) => told += count,
        _ => {}
    })
    .unwrap();
    assert_eq!((accesses, told), (all - dropped, dropped));
}

#[test]
fn a_record_that_cannot_be_begun_is_an_error() {
    let file = File::options().write(true).open("/dev/full").unwrap();
    let begun = SystemTime::UNIX_EPOCH;
    assert!(Recorder::start(file, begun, Tree::default(), |_| {}).is_err());
}
