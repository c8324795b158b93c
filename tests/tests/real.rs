//! Ours to theirs with real trees: the Debian of the peers, and programs and data of this machine. Each is built in two
//! ways; the kernel's mount, what `fsck.erofs` extracts, our check and our comparison find it unchanged.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anteros_build::{Compression, Effort, Options};
use anteros_image::{VerifyOptions, verify};
use anteros_tests::built::{Judges, same};
use anteros_tests::host::HostFs;
use anteros_tests::judge::{is_root, missing, say};
use anteros_tests::manifest::{Column, details, edit, manifest};
use anteros_tests::peers::Peers;

/// Larger trees take too long.
const TREE_BYTES_MAX: u64 = 1 << 30;

/// States how often to begin anew because the tree has changed meanwhile.
const ATTEMPTS: u32 = 3;

fn lz4(effort: Effort, pcluster_bytes: u32) -> Options {
    let mut compression = Compression::new(effort);
    compression.pcluster_bytes = pcluster_bytes;
    Options {
        compression: Some(compression),
        sync: false,
        ..Options::default()
    }
}

#[test]
fn a_debian() {
    if let Some(peers) = Peers::find() {
        judge(peers.tree());
    }
}

#[test]
fn the_programs_of_this_machine() {
    judge(Path::new("/usr/bin"));
}

#[test]
fn the_data_of_this_machine() {
    judge(Path::new("/usr/share"));
}

/// Judges a tree that others may change meanwhile.
fn judge(tree: &Path) {
    if !is_root() {
        return missing("a reader of real trees (only root may read everything)");
    }
    let fs = HostFs::new(tree);
    let bytes = bytes(&details(&fs).unwrap());
    if bytes > TREE_BYTES_MAX {
        let tree = tree.display();
        return say(format_args!(
            "NOT JUDGED: {tree}: {bytes} bytes are too many"
        ));
    }
    for (form, options) in [
        ("lz4hc 9, 64K", lz4(Effort::High(9), 65_536)),
        ("lz4, 4K", lz4(Effort::Fast, 4096)),
    ] {
        let start = Instant::now();
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            let before = as_tree(&fs);
            result = judge_form(tree, &before, &options);
            if result.is_ok() || as_tree(&fs) == before {
                break;
            }
        }
        let tree = tree.display();
        result.unwrap_or_else(|error| panic!("{tree} in {form}: {error}"));
        let (mib, secs) = (bytes >> 20, start.elapsed().as_secs());
        say(format_args!(
            "{tree} in {form}: {mib} MiB judged in {secs} s"
        ));
    }
}

fn judge_form(tree: &Path, expected: &str, options: &Options) -> Result<(), String> {
    let judges = Judges::find();
    let built = judges.build(tree, options)?;
    built.has_no_fault()?;
    let never = AtomicBool::new(false);
    let report = verify(&built.open()?, tree, &VerifyOptions::default(), &(), &never);
    let report = report.map_err(|error| format!("verify: {error}"))?;
    if report.difference_count > 0 {
        return Err(format!("verify: {:#?}", report.differences));
    }
    same(
        "names compared",
        &report.names.to_string(),
        &expected.lines().count().to_string(),
    )?;
    judges.compare(&built, expected)
}

/// The manifest of a part of a file system as of a whole one: only links inside count.
fn as_tree(fs: &HostFs) -> String {
    let details = details(fs).unwrap();
    let inos: Vec<_> = details
        .lines()
        .map(|line| line.split('\t').nth(1).unwrap())
        .collect();
    let mut names = HashMap::<_, u32>::new();
    inos.iter()
        .for_each(|ino| *names.entry(*ino).or_default() += 1);
    let ino = std::cell::RefCell::new(inos.into_iter());
    edit(&manifest(fs).unwrap(), |columns| {
        let ino = ino.borrow_mut().next().unwrap();
        if columns[Column::Kind as usize] != "d" {
            columns[Column::Nlink as usize] = names[ino].to_string();
        }
        true
    })
}

/// Bytes of all regular files; each of its names counts.
fn bytes(details: &str) -> u64 {
    let sizes = details.lines().map(|line| line.split('\t').nth(2).unwrap());
    sizes.map(|size| size.parse::<u64>().unwrap()).sum()
}
