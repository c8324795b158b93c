//! Whole trees through a mirror: everything that can be done to one at random, what programs make of real ones, and
//! what other people's stress finds.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::model::{Ops, Plain, World, compare, compare_trees};
use anteros_tests::trees::words;
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS, Way};
use crate::{run, same};

const SEEDS: u64 = 4;
const STEPS: u32 = 2000;

/// A directory with an empty one for each name.
fn place(names: &[&str]) -> TempDir {
    let place = TempDir::new().unwrap();
    for name in names {
        fs::create_dir(place.path().join(name)).unwrap();
    }
    place
}

/// Returns what a mirror can be compared by to a directory.
fn ops(seed: u64, way: Way) -> Ops {
    let ops = Ops::new(seed).without_collapsing();
    let ops = match way.root_keeps_set_ids {
        true => ops,
        false => ops.without_set_ids(),
    };
    match seed % 2 {
        0 if way.looks_at_source() => ops.without_preallocating(),
        _ => ops.without_seeking(),
    }
}

/// Each seed in a directory of its own, all of them at once.
#[test]
fn a_mirror_does_at_random_what_a_directory_does() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let place = place(&["source", "plain"]);
        let source = place.path().join("source");
        let mirror = Mirror::new(&source, way, "--interval 1000");
        let run = |seed: u64| {
            eprintln!("{way}, seed {seed}");
            let plain = place.path().join(format!("plain/{seed}"));
            let mirrored = mirror.path(&seed.to_string());
            fs::create_dir(&plain).unwrap();
            fs::create_dir(&mirrored).unwrap();
            let tested = (&mut Plain::new(&mirrored) as &mut dyn World, &*mirrored);
            compare(seed, STEPS, ops(seed, way), tested, &plain);
        };
        std::thread::scope(|scope| {
            for seed in 0..SEEDS {
                scope.spawn(move || run(seed));
            }
        });
        mirror.unmount();
        compare_trees(0, STEPS, &source, &place.path().join("plain"));
    }
}

/// Runs a script that must end well.
pub fn good(directory: &Path, text: &str) -> String {
    let mut sh = Command::new("timeout");
    sh.args(["-k", "2", "100", "sh", "-euc", text]);
    let settings = [
        ("LC_ALL", "C"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
    ];
    let found = run(sh.current_dir(directory).envs(settings));
    assert_eq!(found.status, Some(0), "{text}: {found:?}");
    found.out
}

/// The sources of this project, in a directory.
fn sources(to: &Path) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let parts = ["crates", "docs", "tests"].map(|part| workspace.join(part));
    let copied = run(Command::new("cp").arg("-a").args(parts).arg(to));
    assert_eq!(copied.status, Some(0), "{copied:?}");
}

/// A thousand small files, in a directory.
fn small_files(to: &Path) {
    for n in 0..1000 {
        let directory = to.join(format!("{}/{}", n % 7, n % 50));
        fs::create_dir_all(&directory).unwrap();
        let content = words(n, (n * n % 6000) as usize);
        fs::write(directory.join(n.to_string()), content).unwrap();
    }
}

const COPY: &str = "cp -a place/sources place/small .; tar cf tar -C small .; mkdir untarred; tar xf tar -C untarred";
const COMMIT: &str = "cd sources; git init -q; git config user.name n; git config user.email e; \
    git add .; git commit -qm all; cd ..; git clone -q --no-local sources clone";
const CHECK: &str = "cd clone; git fsck --strict --no-progress; git status --porcelain; git gc -q; \
    git fsck --no-progress; git status --porcelain";

const BUILD: &str = "mkdir built; cd built; \
    for n in $(seq 60); do echo \"int f$n(int x) { return x + $n; }\" > f$n.c; done; \
    { echo '#include <stdio.h>'; for n in $(seq 60); do echo \"int f$n(int);\"; done; \
    echo 'int main(void) { int sum = 0;'; for n in $(seq 60); do echo \"sum = f$n(sum);\"; done; \
    echo 'printf(\"%d\", sum); }'; } > main.c; \
    ls *.c | xargs -n 1 -P 4 cc -O1 -g -c; ar rc all.a f*.o; cc -o main main.o all.a; ./main";

/// Has the trees `sources` and `small` of a directory copied to another one, packed and unpacked, and kept in a repository, and a program
/// built and run.
pub fn work(place: &Path, root: &Path) {
    // Where the scripts find what they copy.
    symlink(place, root.join("place")).unwrap();
    good(root, COPY);
    assert!(same(&place.join("sources"), &root.join("sources")));
    assert!(same(&place.join("small"), &root.join("untarred")));
    good(root, COMMIT);
    assert_eq!(good(root, CHECK), "");
    assert_eq!(good(root, BUILD), "1830");
}

/// The trees for [`work`].
pub fn trees() -> TempDir {
    let place = place(&["sources", "small"]);
    sources(&place.path().join("sources"));
    small_files(&place.path().join("small"));
    place
}

#[test]
fn programs_keep_real_trees_whole() {
    if !judge::has_fuse() || !judge::has_program("git") {
        return;
    }
    let place = trees();
    let [plain, small] = ["sources", "small"].map(|name| place.path().join(name));
    for way in WAYS {
        let source = fresh(place.path(), "source");
        let mirror = Mirror::new(&source, way, "");
        let root = mirror.root();
        work(place.path(), root);
        mirror.unmount();
        let said = good(&source.join("clone"), "git status --porcelain; rm -r .git");
        assert_eq!(said, "", "{way}");
        assert!(same(&plain, &source.join("clone")), "{way}");
        assert!(same(&small, &source.join("small")), "{way}");
    }
}

/// An empty directory of this name, whatever there was.
fn fresh(place: &Path, name: &str) -> PathBuf {
    let path = place.join(name);
    if path.exists() {
        fs::remove_dir_all(&path).unwrap();
    }
    fs::create_dir(&path).unwrap();
    path
}

/// The file system stressors of stress-ng that look at what they get.
const STRESSORS: [&str; 25] = [
    "access",
    "chmod",
    "chown",
    "dentry",
    "dir",
    "dirdeep",
    "fallocate",
    "filename",
    "flock",
    "fstat",
    "getdent",
    "hdd",
    "iomix",
    "link",
    "locka",
    "lockf",
    "mknod",
    "readahead",
    "rename",
    "seek",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

/// Lets stress-ng loose on a directory.
pub fn stress(root: &Path, place: impl Display) {
    const SECONDS: &str = "2";
    let mut stress = Command::new("timeout");
    stress.args([
        "-k",
        "2",
        "100",
        "stress-ng",
        "--verify",
        "--timeout",
        SECONDS,
    ]);
    for stressor in STRESSORS {
        stress.args([format!("--{stressor}"), "1".into()]);
    }
    for sized in ["hdd", "fallocate", "iomix", "readahead", "sync-file"] {
        stress.args([format!("--{sized}-bytes"), "4M".into()]);
    }
    stress.args(["--seek-size", "4M", "--temp-path"]).arg(root);
    let found = run(&mut stress);
    let said = [&found.out[..], &found.err].concat();
    assert_eq!(found.status, Some(0), "{place}: {said}");
    assert!(said.contains("successful run completed"), "{place}: {said}");
    let failed = said.lines().find(|line| line.contains("fail:"));
    assert_eq!(failed, None, "{place}");
}

#[test]
fn stress_ng_finds_nothing() {
    if !judge::has_fuse() || !judge::has_program("stress-ng") {
        return;
    }
    for way in WAYS {
        let place = place(&["source"]);
        let source = place.path().join("source");
        let mirror = Mirror::new(&source, way, "");
        stress(mirror.root(), way);
        mirror.unmount();
        assert_eq!(fs::read_dir(&source).unwrap().count(), 0, "{way}");
    }
}
