//! The program as people meet it: what it prints, what it refuses and how, and which status it ends with.

mod advise;
mod alignment;
mod appends;
mod archives;
mod backing;
mod backing_disks;
mod callers;
mod crash;
mod daemon;
mod defaults;
mod devices;
mod failures;
mod files_ahead;
mod foreground;
mod hints;
mod images;
mod increments;
mod io_uring;
mod kernels;
mod killed;
mod lists;
mod log;
mod log_attributes;
mod log_compact;
mod log_dump;
mod log_eviction;
mod log_files;
mod log_handles;
mod log_idle;
mod log_io;
mod log_judges;
mod log_last;
mod log_launches;
mod log_layers;
mod log_messages;
mod log_resize;
mod log_tools;
mod log_trees;
mod log_writeback;
mod looking;
mod many_links;
mod mapped;
mod messages;
mod mirror;
mod mounts;
mod options;
mod order;
mod packed;
mod passthru;
mod patch_changes;
mod patch_compact;
mod patch_files;
mod patch_layers;
mod patch_sequences;
mod patches;
mod peer_dump;
mod peer_erofsfuse;
mod peer_fsck;
mod peer_mount;
mod peer_names;
mod places;
mod prefixes;
mod presets;
mod profile;
mod quick;
mod rebuilds;
mod refusals;
mod renewals;
mod semantics;
mod set_ids;
mod signals;
mod sinks;
mod soak;
mod sources;
mod stalls;
mod stat;
mod sticky;
mod tar;
mod tar_diff;
mod targets;
mod targets_table;
mod trace;
mod trees;
mod unmounting;
mod unreadable;
mod unreadable_log;
mod verify;
mod verity;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// A user without any rights.
const NOBODY: u32 = 65534;

/// A directory with a source tree `src`, where programs run.
struct Workshop {
    dir: TempDir,
    /// Where the program lies so that every user may run it.
    program: PathBuf,
}

/// Counts the samples of a text that Prometheus reads, each of which must have a value and a type.
fn prometheus_samples(text: &str) -> usize {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let check = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with("anteros_") && value.parse::<f64>().is_ok(),
            "{line}"
        );
        let name = name.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|_| name.starts_with("anteros_answer_seconds"))
            .unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
    };
    samples.inspect(|line| check(line)).count()
}

/// Lets go of what other tests have mounted, in directories of names such as these: a mount
/// namespace begins with all of it, and what they unmount would be served on for whoever has it there.
const LET_GO: &str = r#"
for place in $(sed -n 's,^[^ ]* \([^ ]*/\.tmp[^ ]*\) .*,\1,p' /proc/self/mounts); do
    case $place in
    "$PWD"/*) ;;
    *) umount --lazy --no-canonicalize "$place" 2>/dev/null || true ;;
    esac
done
"#;

/// What a run of the program gave.
#[derive(Debug)]
struct Run {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Workshop {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(dir.path(), everybody).unwrap();
        let program = dir.path().join("anteros");
        // By another process: a copy of our own stays open for writing, and so busy, in whatever another thread
        // starts meanwhile.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_anteros")).arg(&program);
        assert_eq!(run(&mut copy).status, Some(0));
        let source = dir.path().join("src");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("hello"), "hello\n").unwrap();
        let text: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        fs::write(source.join("sub/text"), text).unwrap();
        fs::hard_link(source.join("hello"), source.join("sub/link")).unwrap();
        symlink("sub/text", source.join("symlink")).unwrap();
        Self { dir, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with arguments separated by spaces.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .env_remove("SOURCE_DATE_EPOCH")
            .stdin(Stdio::null());
        command
    }

    /// The program as a terminal starts it: it heeds the signals that end a process, even where the tests themselves
    /// were started to ignore them, as in the background of a script.
    fn heeding(&self, arguments: &str) -> Command {
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT,TERM,HUP,QUIT")
            .arg(&self.program)
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .env_remove("SOURCE_DATE_EPOCH")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> Run {
        run(&mut self.command(arguments))
    }

    /// Runs as a user without rights; whoever is none of root's is one already.
    fn run_as_nobody(&self, arguments: &str) -> Run {
        let mut command = self.command(arguments);
        if anteros_tests::judge::is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        run(&mut command)
    }

    /// What a run prints that must be good.
    fn good(&self, arguments: &str) -> String {
        let run = self.run(arguments);
        assert_eq!((run.status, &run.err[..]), (Some(0), ""), "{arguments}");
        run.out
    }

    /// The object that a run prints that must be good.
    fn json(&self, arguments: &str) -> serde_json::Value {
        serde_json::from_str(&self.good(arguments)).unwrap()
    }

    /// What a run complains of that must end with this status.
    fn bad(&self, status: i32, arguments: &str) -> String {
        let run = self.run(arguments);
        assert_eq!(run.status, Some(status), "{arguments}: {run:?}");
        run.err
    }

    /// Runs a script of the shell's where the program lies.
    fn script(&self, text: &str) -> Run {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", text]).current_dir(self.dir.path());
        run(shell.env_remove("SOURCE_DATE_EPOCH"))
    }

    /// Runs a script that must be good, and say nothing of errors.
    fn good_script(&self, text: &str) {
        let told = self.script(text);
        assert_eq!(
            (told.status, &told.err[..]),
            (Some(0), ""),
            "{text}: {told:?}"
        );
    }

    /// A shell that runs a script where the program lies, in a mount namespace of its own.
    fn apart(&self, script: &str) -> Command {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation=private", "sh", "-euc"]);
        shell.arg(format!("{LET_GO}{script}"));
        shell.current_dir(self.dir.path());
        shell
    }

    /// Unmounts as soon as no process that another thread is about to start shares our open files.
    fn umount(&self, name: &str) {
        wait_until(|| self.run(&format!("umount {name}")).status == Some(0));
    }

    /// The names in the directory, but for the program and the source.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|n| n != "anteros" && n != "src").collect();
        names.sort();
        names
    }
}

impl Drop for Workshop {
    /// Takes away what a failed test has left mounted.
    fn drop(&mut self) {
        for name in ["mnt", "behind", "full"] {
            if self.path(name).exists() {
                let _ = run(Command::new("umount")
                    .args(["--quiet", "--lazy"])
                    .arg(self.path(name)));
            }
        }
    }
}

/// Sends a signal.
fn kill(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until a process has come so far that it heeds the signals that ask it to stop: before, they
/// kill it.
fn wait_until_heeding(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    // The last one that it sets up.
    let hangup = 1 << (Signal::HUP.as_raw() - 1);
    let is_caught = || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & hangup != 0
    };
    wait_until(is_caught);
}

fn run(command: &mut Command) -> Run {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    Run {
        status: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// Whether two files, or two trees of files, links and directories, hold the same.
fn same(one: &Path, other: &Path) -> bool {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(one).arg(other);
    diff.output().unwrap().status.success()
}

/// The kind of file system that is mounted on a directory.
fn file_system_at(directory: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let directory = directory.to_str().unwrap().trim_end_matches('/');
    let mut mounts = mounts.lines().rev().map(|line| line.split(' '));
    let found = mounts.find(|mount| mount.clone().nth(1) == Some(directory));
    found.and_then(|mut mount| mount.nth(2).map(str::to_owned))
}

fn is_mounted(directory: &Path) -> bool {
    file_system_at(directory).is_some()
}

/// Waits until a daemon serves what it mounts on a directory. It is mounted a moment before, when it can
/// neither be told to stop nor be unmounted without harm to the daemon.
fn wait_until_served(directory: &Path) {
    wait_until(|| is_mounted(directory));
    // Whatever the answer is.
    let _ = fs::metadata(directory);
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it takes too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
