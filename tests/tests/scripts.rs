//! The scripts that people and continuous integration start: what they refuse, what they say, what they leave behind.
//!
//! Nothing here installs anything, asks the network or compiles.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anteros_tests::judge;

/// Holds what a script ended with, and all that it said.
#[derive(Debug)]
struct Said {
    status: Option<i32>,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command at the top of the repository, without what the one that runs the tests has in its environment.
fn run(command: &mut Command) -> Said {
    for name in [
        "ANTEROS_STEP",
        "ANTEROS_MEMORY",
        "ANTEROS_REQUIRE_JUDGES",
        "ANTEROS_TEST_MINUTES",
    ] {
        command.env_remove(name);
    }
    let output = command.current_dir(root()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Said {
        status: output.status.code(),
        text: String::from_utf8(text).unwrap(),
    }
}

/// Runs lines of bash.
fn bash(lines: &str) -> Said {
    run(Command::new("bash").args(["-c", lines]))
}

/// A time to sleep that no other process sleeps, by which it is found.
fn long(number: u32) -> String {
    format!("300.{number}{}", std::process::id())
}

/// Returns whether a process sleeps that long.
fn sleeps(seconds: &str) -> bool {
    let line = format!("sleep\0{seconds}\0");
    let processes = fs::read_dir("/proc").unwrap();
    let read = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    processes
        .filter_map(|entry| read(entry.ok()?))
        .any(|cmdline| cmdline == line.as_bytes())
}

/// Sees that no process sleeps that long any more: one that was killed may be there for a moment.
#[track_caller]
fn assert_gone(seconds: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while sleeps(seconds) {
        assert!(Instant::now() < end, "sleep {seconds} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until each of some processes sleeps, but no longer than a minute: `until_asleep SECONDS...`.
const UNTIL_ASLEEP: &str = r#"
asleep() {
    local file words
    for file in /proc/[0-9]*/cmdline; do
        { mapfile -d '' -t words <"$file"; } 2>/dev/null && [ "${words[*]}" = "sleep $1" ] && return
    done
    return 1
}
until_asleep() {
    local end=$((SECONDS + 60)) seconds
    for seconds in "$@"; do
        until asleep "$seconds" || ((SECONDS > end)); do command sleep 0.05; done
    done
}"#;

/// Runs lines of bash that have the steps of `./test`; what they start is given a second to end.
fn steps(lines: &str) -> Said {
    let given = "set -uo pipefail; ANTEROS_TEST_PATIENCE=1; . scripts/setup.sh; . scripts/steps.sh";
    bash(&format!("{given}\n{UNTIL_ASLEEP}\n{lines}"))
}

#[test]
fn the_test_command_tells_its_options_and_refuses_others() {
    let help = run(Command::new("./test").arg("--help"));
    assert_eq!(help.status, Some(0), "{help:?}");
    for told in ["--slow", "--keep", "enable_uring", "cargo clean", "limit"] {
        assert!(help.text.contains(told), "{told}: {}", help.text);
    }
    let refused = run(Command::new("./test").args(["--slow", "--fast"]));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(
        refused.text.contains("unknown argument: --fast"),
        "{refused:?}"
    );
}

#[test]
fn the_demo_tells_its_options_and_refuses_what_is_no_directory() {
    let help = run(Command::new("./demo").arg("--help"));
    assert_eq!(help.status, Some(0), "{help:?}");
    assert!(help.text.contains("./demo [DIRECTORY]"), "{help:?}");
    for (arguments, told) in [
        (&["--quick"][..], "unknown option: --quick"),
        (&["/none/such"], "no such directory: /none/such"),
        (&["/", "/"], "one directory at most"),
    ] {
        let refused = run(Command::new("./demo").args(arguments));
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(refused.text.contains(told), "{told}: {refused:?}");
    }
}

/// A directory for PATH that has these programs of the machine, and nothing else yet.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let found = bash(&format!("command -v {name}"));
        symlink(found.text.trim(), dir.path().join(name)).unwrap();
    }
    dir
}

fn write_program(path: &Path, lines: &str) {
    fs::write(path, lines).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Without sudo and without apt-get there is no way to get a compiler: nothing is built, and the status says so.
#[test]
fn the_demo_ends_where_no_compiler_can_be_had() {
    let bin = programs(&[
        "bash", "cat", "cut", "dirname", "env", "getent", "head", "id", "realpath", "sed", "sort",
        "uname",
    ]);
    let built = bin.path().join("built");
    let cargo = "#!/bin/sh\ncase $1 in --version) echo cargo 1.95.0;; *) echo \"$@\" >>\"${0%/*}/built\";; esac\n";
    // A program that was written by this process may be busy in what another thread starts; a shell reads this one.
    write_program(&bin.path().join("cargo.sh"), cargo);
    symlink("cargo.sh", bin.path().join("cargo")).unwrap();
    let said = run(Command::new("./demo")
        .env("PATH", bin.path())
        .env("CARGO_HOME", bin.path()));
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.text.contains("please install gcc"), "{said:?}");
    assert!(!built.exists(), "{said:?}");
}

#[test]
fn a_bare_environment_is_enough() {
    let said = run(Command::new("env").args([
        "-i",
        "bash",
        "-uc",
        ". scripts/setup.sh; echo \"$HOME:$USER:$TERM:$PATH\"",
    ]));
    assert_eq!(said.status, Some(0), "{said:?}");
    let parts: Vec<_> = said.text.trim().split(':').collect();
    assert!(parts[0].starts_with('/') && !parts[1].is_empty() && !parts[2].is_empty());
    assert!(
        parts.contains(&"/usr/sbin") && parts.contains(&"/sbin"),
        "{parts:?}"
    );
}

#[test]
fn a_device_that_udev_did_not_open_is_opened_and_named() {
    let device = tempfile::NamedTempFile::new().unwrap();
    let path = device.path().display();
    let mode = || fs::metadata(device.path()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let said = bash(&format!(". scripts/setup.sh; open_to_all {path}"));
    assert_eq!((said.status, mode()), (Some(0), 0o666), "{said:?}");
    assert!(
        said.text.contains("to all users") && said.text.contains("600"),
        "{said:?}"
    );
    let again = bash(&format!(". scripts/setup.sh; open_to_all {path}"));
    assert_eq!((again.status, &*again.text), (Some(0), ""));
}

/// Lints come from the Rust that the repository names, whatever Rust builds the rest.
#[test]
fn the_linter_is_that_of_the_named_rust() {
    let said = bash(
        ". scripts/setup.sh
        cargo_version() { echo 1.99.1; }
        have() { [ \"$1\" = rustup ]; }
        rustup() { echo \"rustup $*\" >&2; }
        need_rust_lints; echo \"${lints[*]}, $lints_are_pinned, $lints_rust\"",
    );
    let version = bash(". scripts/setup.sh; echo $lints_rust");
    let version = version.text.trim();
    let wanted = format!("rustup run {version} cargo, yes, {version}\n");
    assert!(said.text.contains(&wanted), "{said:?}");
    let said = bash(
        ". scripts/setup.sh
        cargo_version() { echo 1.99.1; }
        has_lints() { [ \"$1\" = cargo ]; }
        have() { false; }
        need_rust_lints; echo \"${lints[*]}, $lints_are_pinned\"",
    );
    assert!(said.text.contains("cargo, no\n"), "{said:?}");
    assert!(said.text.contains("only warn"), "{said:?}");
}

#[test]
fn a_step_says_how_it_went() {
    let said = steps(
        "step good 60 true; step bad 60 sh -c 'exit 3'; only_warns=yes step new 60 false; verdict",
    );
    assert_eq!(said.status, Some(1), "{said:?}");
    for told in [
        "good: passed",
        "bad: FAILED",
        "Only a warning: new\n",
        ": bad\n",
    ] {
        assert!(said.text.contains(told), "{told}: {}", said.text);
    }
}

#[test]
fn no_step_begins_when_no_time_is_left() {
    let said = steps("steps_seconds_max=0; step late 60 echo begun; verdict");
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.text.contains("no time is left"), "{said:?}");
    assert!(!said.text.contains("\nbegun\n"), "{said:?}");
}

/// A step that hangs is ended with all that it has started, wherever that went. Its time is over as soon as all of that
/// is there.
#[test]
fn a_step_that_hangs_is_named_and_killed() {
    let (away, here) = (long(1), long(2));
    let said = steps(&format!(
        "sleep() {{ case $1 in 77) until_asleep {away} {here} ;; *) command sleep \"$@\" ;; esac; }}
        step stuck 77 sh -c 'setsid sleep {away} & exec sleep {here}'
        ls -d ${{step_places[@]}} && echo LEFT; verdict",
    ));
    assert_eq!(said.status, Some(1), "{said:?}");
    let processes = [&away, &here].map(|seconds| format!(": sleep {seconds}"));
    let told = ["it hangs", "stuck: FAILED", &processes[0], &processes[1]];
    for told in told {
        assert!(said.text.contains(told), "{told}: {}", said.text);
    }
    assert!(!said.text.contains("LEFT"), "{said:?}");
    assert_gone(&away);
    assert_gone(&here);
}

#[test]
fn what_a_step_leaves_behind_is_named_and_ended() {
    let away = long(3);
    let said = steps(&format!(
        "step careless 60 sh -c 'touch $TMPDIR/file; setsid sleep {away} &
            until grep -qx sleep /proc/$!/comm; do sleep 0.05; done'
        ls -d ${{step_places[@]}} && echo LEFT; verdict",
    ));
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.text.contains("left processes behind"), "{said:?}");
    assert!(said.text.contains(&format!(": sleep {away}")), "{said:?}");
    assert!(!said.text.contains("LEFT"), "{said:?}");
    assert_gone(&away);
}

#[test]
fn what_a_step_mounts_is_unmounted() {
    if !judge::is_root() {
        return judge::missing("mounts, which only root makes");
    }
    let said = steps(
        "step mounts 60 sh -c 'mkdir $TMPDIR/a\\ b && mount -t tmpfs tmpfs $TMPDIR/a\\ b && touch $TMPDIR/a\\ b/c'
        grep anteros-test /proc/self/mounts | grep ${step_places[0]} && echo LEFT; verdict",
    );
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.text.contains("unmounting /"), "{said:?}");
    assert!(!said.text.contains("LEFT"), "{said:?}");
}

/// Tests wait for what ^C does, and whoever starts them in the background ignores it.
#[test]
fn a_step_heeds_signals_that_its_shell_ignores() {
    let ignored = "trap '' INT QUIT HUP; grep SigIgn /proc/self/status";
    let before = bash(ignored);
    let set = |said: &Said| {
        let text = said.text.split("SigIgn:").nth(1).unwrap();
        u64::from_str_radix(text.split_whitespace().next().unwrap(), 16).unwrap() & 0b111
    };
    assert_eq!(set(&before), 0b111, "{before:?}");
    let inside = steps("trap '' INT QUIT HUP; step signals 60 grep SigIgn /proc/self/status");
    assert_eq!(set(&inside), 0, "{inside:?}");
}

#[test]
fn an_interrupted_test_ends_its_step() {
    let seconds = long(4);
    let lines = format!("step long 60 sleep {seconds}; echo STILL THERE");
    let said = steps(&format!(
        "(until_asleep {seconds}; kill -TERM $$) & {lines}"
    ));
    assert_eq!(said.status, Some(143), "{said:?}");
    assert!(said.text.contains("interrupted"), "{said:?}");
    assert!(!said.text.contains("STILL THERE"), "{said:?}");
    assert_gone(&seconds);
}

/// A file in the place of the kernel's setting.
fn uring(value: &str) -> tempfile::NamedTempFile {
    let setting = tempfile::NamedTempFile::new().unwrap();
    fs::write(setting.path(), value).unwrap();
    setting
}

/// Runs the script that has FUSE over io_uring on meanwhile.
fn over_io_uring(setting: &Path, lines: &str) -> Said {
    run(Command::new("env")
        .args(["--default-signal=INT,TERM,HUP", "scripts/over_io_uring.sh"])
        .args(["sh", "-c", lines])
        .env("ANTEROS_URING_SETTING", setting)
        .env("SETTING", setting))
}

#[test]
fn io_uring_is_switched_on_aloud_and_set_back() {
    let setting = uring("N\n");
    let said = over_io_uring(setting.path(), "cat $SETTING; exit 7");
    assert_eq!(said.status, Some(7), "{said:?}");
    for told in ["for the whole machine", "Y\n", "is N again"] {
        assert!(said.text.contains(told), "{told}: {said:?}");
    }
    assert_eq!(fs::read_to_string(setting.path()).unwrap(), "N\n");
}

#[test]
fn io_uring_is_left_on_where_it_was_on() {
    let setting = uring("Y\n");
    let said = over_io_uring(setting.path(), "cat $SETTING");
    assert_eq!((said.status, &*said.text), (Some(0), "Y\n"));
    assert_eq!(fs::read_to_string(setting.path()).unwrap(), "Y\n");
}

#[test]
fn io_uring_is_set_back_when_it_is_interrupted() {
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let setting = uring("N\n");
        let lines = format!("kill -{signal} $PPID; exec sleep 300.0625");
        let said = over_io_uring(setting.path(), &lines);
        assert_eq!(said.status, Some(status), "{said:?}");
        assert_eq!(
            fs::read_to_string(setting.path()).unwrap(),
            "N\n",
            "{said:?}"
        );
    }
}

/// The second begins while the first runs and ends after it: on is not what the machine had chosen.
#[test]
fn io_uring_is_set_back_by_the_last_of_several() {
    let setting = uring("N\n");
    let both = "\
        scripts/over_io_uring.sh sh -c 'touch $PLACE/one; until [ -e $PLACE/two ]; do sleep 0.05; done' &
        until [ -e $PLACE/one ]; do sleep 0.05; done
        scripts/over_io_uring.sh sh -c 'touch $PLACE/two; until [ -e $PLACE/end ]; do sleep 0.05; done' &
        wait %1; cat $ANTEROS_URING_SETTING; touch $PLACE/end; wait";
    let place = tempfile::tempdir().unwrap();
    let said = run(Command::new("timeout")
        .args(["60", "bash", "-c", both])
        .env("PLACE", place.path())
        .env("ANTEROS_URING_SETTING", setting.path()));
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.text.contains("Y\n"), "{said:?}");
    assert_eq!(
        fs::read_to_string(setting.path()).unwrap(),
        "N\n",
        "{said:?}"
    );
}

/// A program to be packed, which says something of itself.
const PACKED: &str = "\
#!/bin/sh
case $1 in
manual) echo page >\"$2/anteros.1\" ;;
*) echo \"$@\" ;;
esac
";

/// Packs programs in a directory of their own.
fn packages() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["anteros", "anteros-read", "anteros-warm"] {
        let path = directory.path().join(name);
        fs::write(&path, PACKED).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let said = run(Command::new("scripts/packages.sh")
        .arg(directory.path())
        .arg("amd64")
        .env("SOURCE_DATE_EPOCH", "1700000000"));
    assert_eq!(said.status, Some(0), "{said:?}");
    directory
}

#[test]
fn packages_have_an_example_and_the_same_bytes_each_time() {
    let (one, other) = (packages(), packages());
    let sums = |of: &tempfile::TempDir| fs::read_to_string(of.path().join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&one), sums(&other));
    for (of, list) in [(".tar.gz", "tar -tvf"), (".deb", "dpkg-deb -c")] {
        if !sums(&one).contains(of) {
            judge::missing("dpkg-deb");
            continue;
        }
        let said = bash(&format!("{list} {}/*{of}", one.path().display()));
        let line = said
            .text
            .lines()
            .find(|line| line.ends_with("/examples/fuse-io-uring.conf"));
        assert!(
            line.is_some_and(|line| line.starts_with("-rw-r--r--")),
            "{said:?}"
        );
    }
}
