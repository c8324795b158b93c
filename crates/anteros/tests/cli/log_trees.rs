//! Trees in a log, as those read them who list directories and go from file to file; and who changes them meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anteros_tests::judge;
use anteros_tests::trees::{Random, words};

use crate::log::{kill_daemon, mount, shop, unmount};
use crate::log_idle::number_told;
use crate::{Workshop, wait_until};

const DIRECTORIES: usize = 2;
const FILES: usize = 150;

/// The content that a file has at first.
fn content(directory: usize, file: usize) -> Vec<u8> {
    let n = directory * FILES + file;
    words(n as u64, n * 7919 % 40_000)
}

fn path(root: &Path, directory: usize, file: usize) -> std::path::PathBuf {
    root.join(format!("dir{directory}/file{file}"))
}

/// A log with two directories of files of all lengths up to 40,000 bytes, which no cache holds.
fn filled(options: &str) -> Workshop {
    let shop = shop("256M");
    let daemon = mount(&shop, options);
    let root = shop.path("mnt");
    for directory in 0..DIRECTORIES {
        fs::create_dir(root.join(format!("dir{directory}"))).unwrap();
        for file in 0..FILES {
            fs::write(path(&root, directory, file), content(directory, file)).unwrap();
        }
    }
    unmount(&shop, daemon);
    shop
}

/// Reads all files as directories list them, and gives `see` the content of each.
fn walk(root: &Path, mut see: impl FnMut(&Path, io::Result<Vec<u8>>)) -> io::Result<()> {
    for directory in 0..DIRECTORIES {
        let listed = fs::read_dir(root.join(format!("dir{directory}")))?;
        let files: Vec<_> = listed.collect::<io::Result<_>>()?;
        for file in files {
            let path = file.path();
            see(&path, fs::read(&path));
        }
    }
    Ok(())
}

fn answers(shop: &Workshop, operation: &str) -> f64 {
    number_told(shop, &format!("answer_seconds_count{{op=\"{operation}\"}}"))
}

/// Walks and compares; waits for the daemon to go ahead, if that is to be seen. Returns the number of reads it was asked for.
fn compare(shop: &Workshop, goes_ahead: bool) -> f64 {
    let root = shop.path("mnt");
    let mut seen = 0;
    walk(&root, |file, found| {
        let number = |name: Option<&std::ffi::OsStr>, begin: &str| {
            let name = name.unwrap().to_str().unwrap();
            name.strip_prefix(begin).unwrap().parse().unwrap()
        };
        let directory = number(file.parent().unwrap().file_name(), "dir");
        let expected = content(directory, number(file.file_name(), "file"));
        assert!(found.unwrap() == expected, "{file:?}");
        seen += 1;
        if goes_ahead && seen == 10 {
            wait_until(|| number_told(shop, "log_pushed_bytes_total") > 0.0);
        }
    })
    .unwrap();
    assert_eq!(seen, DIRECTORIES * FILES);
    answers(shop, "read")
}

#[test]
fn who_reads_a_tree_asks_for_less_than_each_file() {
    if !judge::has_fuse() {
        return;
    }
    for policy in ["record", "none"] {
        let shop = filled(&format!("--policy {policy}"));
        for (options, goes_ahead) in [("", true), ("--read-only", true), ("--prefetch 0", false)] {
            let daemon = mount(&shop, &format!("--policy {policy} {options}"));
            let reads = compare(&shop, goes_ahead);
            let files = (DIRECTORIES * FILES) as f64;
            // One of them is empty.
            assert_eq!(reads < files - 1.0, goes_ahead, "{options}: {reads}");
            unmount(&shop, daemon);
        }
    }
}

#[test]
fn several_readers_of_a_tree_in_little_memory_read_what_is_there() {
    if !judge::has_fuse() {
        return;
    }
    let shop = filled("");
    for options in ["--memory 1", "--memory 64K --prefetch 64K", "--writeback"] {
        let daemon = mount(&shop, options);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| compare(&shop, false));
            }
        });
        unmount(&shop, daemon);
    }
}

/// Changes a file in one of several ways, and its content with it.
fn change(random: &mut Random, file: &Path, content: &mut Vec<u8>) -> io::Result<()> {
    let new = words(random.below(u64::MAX), random.below(40_000) as usize);
    match random.below(5) {
        0 => {
            fs::write(file, &new)?;
            *content = new;
        }
        1 => {
            OpenOptions::new()
                .append(true)
                .open(file)?
                .write_all(&new)?;
            content.extend(new);
        }
        2 => {
            let len = random.below(content.len() as u64 + 1);
            OpenOptions::new().write(true).open(file)?.set_len(len)?;
            content.truncate(len as usize);
        }
        3 => {
            let at = random.below(content.len() as u64 + 1) as usize;
            OpenOptions::new()
                .write(true)
                .open(file)?
                .write_all_at(&new, at as u64)?;
            content.resize(content.len().max(at + new.len()), 0);
            content[at..at + new.len()].copy_from_slice(&new);
        }
        _ => {
            fs::remove_file(file)?;
            fs::write(file, &new)?;
            *content = new;
        }
    }
    Ok(())
}

/// Content in the kernel's cache must not become older than what somebody has just written.
#[test]
fn who_changes_files_while_others_walk_reads_what_was_written() {
    if !judge::has_fuse() {
        return;
    }
    let shop = filled("");
    let daemon = mount(&shop, "");
    let root = shop.path("mnt");
    let is_over = AtomicBool::new(false);
    let mut contents: Vec<_> = (0..FILES).map(|file| content(0, file)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // The kernel has to ask for it anew.
                    drop_pages(&root);
                    let see = |file: &Path, found: io::Result<_>| {
                        if let Err(error) = found {
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{file:?}");
                        }
                    };
                    walk(&root, see).unwrap();
                }
            });
        }
        let mut random = Random(7);
        for _ in 0..1500 {
            let number = random.below(FILES as u64) as usize;
            let file = path(&root, 0, number);
            change(&mut random, &file, &mut contents[number]).unwrap();
            assert!(fs::read(&file).unwrap() == contents[number], "{file:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(number_told(&shop, "log_pushed_bytes_total") > 0.0);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    for (file, content) in contents.iter().enumerate() {
        assert!(
            fs::read(path(&root, 0, file)).unwrap() == *content,
            "{file}"
        );
    }
    unmount(&shop, daemon);
}

/// Has the kernel forget what it has of the files of a tree.
fn drop_pages(root: &Path) {
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            if let Ok(file) = File::open(path(root, directory, file)) {
                let advice = rustix::fs::Advice::DontNeed;
                rustix::fs::fadvise(&file, 0, None, advice).unwrap();
            }
        }
    }
}

#[test]
fn a_walk_whose_daemon_is_killed_ends() {
    if !judge::has_fuse() {
        return;
    }
    let shop = filled("");
    let daemon = mount(&shop, "");
    let root = shop.path("mnt");
    thread::scope(|scope| {
        let walker = scope.spawn(|| {
            while walk(&root, |_, _| {}).is_ok() {
                drop_pages(&root)
            }
        });
        wait_until(|| number_told(&shop, "log_pushed_bytes_total") > 0.0);
        kill_daemon(&shop, daemon);
        walker.join().unwrap();
    });
    let daemon = mount(&shop, "");
    compare(&shop, true);
    unmount(&shop, daemon);
}

fn names(directory: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(directory).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
    listed
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

#[test]
fn who_looks_at_files_that_were_listed_asks_nothing() {
    if !judge::has_fuse() {
        return;
    }
    let shop = filled("");
    let daemon = mount(&shop, "");
    let directory = shop.path("mnt/dir0");
    let names = names(&directory);
    let asked = answers(&shop, "lookup");
    for name in names {
        fs::symlink_metadata(directory.join(name)).unwrap();
    }
    assert!(answers(&shop, "lookup") < asked + 10.0);
    unmount(&shop, daemon);
}

#[test]
fn a_listing_that_the_kernel_keeps_follows_every_change() {
    if !judge::has_fuse() {
        return;
    }
    let shop = filled("");
    let daemon = mount(&shop, "");
    let directory = shop.path("mnt/dir0");
    let mut expected = names(&directory);
    assert_eq!(expected.len(), FILES);
    let asked = answers(&shop, "readdir");
    assert_eq!(names(&directory), expected);
    assert_eq!(answers(&shop, "readdir"), asked, "it is kept");
    let at = |name: &str| directory.join(name);
    let mut see = |gone: &[&str], new: &[&str]| {
        gone.iter().for_each(|name| assert!(expected.remove(*name)));
        expected.extend(new.iter().map(|name| (*name).to_owned()));
        assert_eq!(names(&directory), expected);
    };
    fs::write(at("new"), "new").unwrap();
    see(&[], &["new"]);
    fs::rename(at("new"), at("file7")).unwrap();
    see(&["new"], &[]);
    fs::remove_file(at("file8")).unwrap();
    see(&["file8"], &[]);
    fs::create_dir(at("directory")).unwrap();
    see(&[], &["directory"]);
    fs::hard_link(at("file9"), at("link")).unwrap();
    see(&[], &["link"]);
    fs::rename(at("file9"), shop.path("mnt/dir1/moved")).unwrap();
    see(&["file9"], &[]);
    fs::remove_dir(at("directory")).unwrap();
    see(&["directory"], &[]);
    unmount(&shop, daemon);
}

#[test]
fn a_directory_can_be_emptied_while_it_is_listed() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "");
    let directory = shop.path("mnt/dir");
    for _ in 0..2 {
        fs::create_dir(&directory).unwrap();
        for number in 0..3000 {
            File::create(directory.join(format!("file{number}"))).unwrap();
        }
        let mut removed = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            removed += 1;
        }
        assert_eq!(removed, 3000);
        fs::remove_dir(&directory).unwrap();
    }
    unmount(&shop, daemon);
}
