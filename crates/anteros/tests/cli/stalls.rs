//! One who has to wait for what others do with a file of a mirrored directory, and those who have not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anteros_tests::judge;
use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS};
use crate::{Signal, io_uring, kill, run};

/// More than there are workers.
const HELD: usize = 20;

/// Nobody waits so long, unless for a lease: that is taken away after 45 seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes write leases (`F_SETLEASE`, `F_WRLCK`) of files, and keeps them whoever asks.
const HOLDER: &str = r#"
    $SIG{IO} = 'IGNORE';
    for (@ARGV) {
        open my $file, '+<', $_ or die "$_: $!";
        fcntl $file, 1024, 1 or die "$_: $!";
        push @files, $file;
    }
    $| = 1;
    print "held\n";
    <STDIN>;
"#;

/// A process that has leases.
struct Holder {
    process: Child,
    /// It goes when this is closed.
    _stdin: Option<ChildStdin>,
}

impl Holder {
    fn of(paths: &[PathBuf]) -> Self {
        let mut perl = Command::new("perl");
        perl.args(["-e", HOLDER]).args(paths);
        perl.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = perl.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        let stdin = process.stdin.take();
        Self {
            process,
            _stdin: stdin,
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn can_hold() -> bool {
    judge::has_fuse() && judge::has_program("perl")
}

/// Returns whether requests may come over rings, where less can wait.
fn has_rings() -> bool {
    io_uring::setting() == Some(true)
}

/// Does something that nobody should have to wait for.
fn soon<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    thread::spawn(move || sender.send(act()));
    let done = done.recv_timeout(PATIENCE);
    done.unwrap_or_else(|_| panic!("{what}: others have to wait"))
}

fn open(path: PathBuf) -> JoinHandle<io::Result<File>> {
    thread::spawn(move || OpenOptions::new().read(true).write(true).open(path))
}

/// Does what people do with other files.
fn work(root: &Path) {
    let path = root.join("new");
    fs::write(&path, "content").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(3).unwrap();
    fs::rename(&path, root.join("other")).unwrap();
    assert_eq!(fs::metadata(root.join("other")).unwrap().len(), 3);
    fs::remove_file(root.join("other")).unwrap();
    assert_eq!(fs::read(root.join("free")).unwrap(), b"free");
    assert!(fs::read_dir(root).unwrap().count() > HELD);
}

/// A source with files of which some are held, whose names end with a number.
fn source(dir: &Path) -> Vec<PathBuf> {
    fs::write(dir.join("free"), "free").unwrap();
    let held = (0..HELD).map(|n| dir.join(format!("held.{n}")));
    let held: Vec<_> = held.collect();
    for path in &held {
        fs::write(path, "held").unwrap();
    }
    held
}

#[test]
fn only_who_opens_what_is_leased_waits() {
    if !can_hold() {
        return;
    }
    for way in WAYS {
        let dir = TempDir::new().unwrap();
        let held = source(dir.path());
        let mirror = Mirror::new(dir.path(), way, "");
        let holder = Holder::of(&held);
        let name = |path: &PathBuf| mirror.path(path.file_name().unwrap().to_str().unwrap());
        let openers: Vec<_> = held.iter().map(|path| open(name(path))).collect();
        let cut = Command::new("perl")
            .args(["-e", "truncate $ARGV[0], 1 or die $!"])
            .arg(name(&held[0]))
            .spawn();
        let mut cut = cut.unwrap();
        for _ in 0..3 {
            let root = mirror.root().to_owned();
            soon(way.name, move || work(&root));
        }
        // Who does not want to wait does not.
        let path = name(&held[1]);
        let hasty = soon(way.name, move || {
            let mut options = OpenOptions::new();
            let flags = OFlags::NONBLOCK.bits() as i32;
            options.read(true).custom_flags(flags).open(path)
        });
        assert_eq!(
            hasty.unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "{way}"
        );
        drop(holder);
        let opened = openers.into_iter().map(|opener| opener.join().unwrap());
        let refused = opened.filter_map(Result::err).collect::<Vec<_>>();
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        assert!(
            refused.is_empty() || has_rings() && refused.iter().all(is_busy),
            "{way}: {refused:?}"
        );
        let cut = cut.wait().unwrap().success();
        assert!(cut || has_rings(), "{way}");
        if cut {
            assert_eq!(fs::metadata(&held[0]).unwrap().len(), 1, "{way}");
        }
        mirror.unmount();
    }
}

/// The kernel keeps a directory locked while something is made in it.
#[test]
fn nobody_waits_for_a_directory_in_which_a_leased_file_turns_up() {
    if !can_hold() {
        return;
    }
    for way in WAYS {
        let dir = TempDir::new().unwrap();
        source(dir.path());
        let mirror = Mirror::new(dir.path(), way, "--timeout 3600");
        let late = "late";
        assert!(!mirror.path(late).exists());
        let behind = dir.path().join(late);
        fs::write(&behind, "").unwrap();
        let holder = Holder::of(&[behind]);
        let path = mirror.path(late);
        let opener = thread::spawn(move || {
            let mut options = OpenOptions::new();
            options.create(true).append(true).open(path)
        });
        for _ in 0..3 {
            let root = mirror.root().to_owned();
            soon(way.name, move || work(&root));
        }
        drop(holder);
        opener.join().unwrap().unwrap();
        mirror.unmount();
    }
}

#[test]
fn who_waits_for_a_lease_can_be_stopped() {
    if !can_hold() {
        return;
    }
    for way in WAYS {
        let dir = TempDir::new().unwrap();
        let held = source(dir.path());
        let mirror = Mirror::new(dir.path(), way, "");
        let holder = Holder::of(&held[..1]);
        let opener = open(mirror.path("held.0"));
        let mut reader = Command::new("cat");
        let reader = reader.arg(mirror.path("held.0")).stdout(Stdio::null());
        let mut reader = reader.spawn().unwrap();
        // Long enough for it to ask for the file; if not, it is stopped before.
        thread::sleep(Duration::from_millis(200));
        kill(&reader, Signal::TERM);
        reader.wait().unwrap();
        // Where requests have places of their own, of which a user has few, one of the two may be refused.
        let waits = !opener.is_finished();
        assert!(waits || has_rings(), "{way}: it waited for the lease");
        drop(holder);
        let opened = opener.join().unwrap().map(drop);
        assert!(opened.is_ok() || has_rings(), "{way}: {opened:?}");
        mirror.unmount();
    }
}

/// Nobody opens a pipe or a socket of the source.
#[test]
fn pipes_keep_nobody_waiting_but_who_opens_them() {
    if !can_hold() {
        return;
    }
    let dir = TempDir::new().unwrap();
    source(dir.path());
    let mirror = Mirror::new(dir.path(), WAYS[0], "");
    let pipes: Vec<_> = (0..HELD)
        .map(|n| mirror.path(&format!("pipe.{n}")))
        .collect();
    let made = run(Command::new("mkfifo").args(&pipes));
    assert_eq!(made.status, Some(0));
    let readers = pipes.iter().map(|pipe| {
        let mut cat = Command::new("cat");
        cat.arg(pipe).stdout(Stdio::null()).spawn().unwrap()
    });
    let readers: Vec<_> = readers.collect();
    let root = mirror.root().to_owned();
    soon("pipes", move || work(&root));
    for mut reader in readers {
        let _ = reader.kill();
        reader.wait().unwrap();
    }
    mirror.unmount();
}
