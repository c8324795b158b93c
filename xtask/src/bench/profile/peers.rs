//! Images of others, from the same tree and with the same options, as far as they have them.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anteros_trace::profile::Range;

use super::super::images::{Bench, FIXED};
use crate::outcome::Outcome;
use crate::peers;
use crate::run::{run, words};

/// The highest priority of a sort file.
const PRIORITY_MAX: i32 = 32_767;

/// Builds the image of erofs-utils with the options of the preset `balanced`; tells the command.
///
/// # Errors
/// When it cannot be built.
pub(super) fn erofs(corpus: &Path, image: &Path) -> Outcome<String> {
    let mut mkfs = peers::command("mkfs.erofs")?;
    mkfs.arg("--quiet").args(FIXED);
    mkfs.args(["-zlz4hc,9", "-C65536"]).arg(image).arg(corpus);
    made(mkfs)
}

/// Builds a squashfs with the files of a profile in front, in its order; tells the command. It knows no order within files.
///
/// # Errors
/// When it cannot be built.
pub(super) fn squashfs(
    bench: &Bench,
    corpus: &Path,
    ranges: &[Range],
    image: &Path,
) -> Outcome<String> {
    let mut files: Vec<&[u8]> = Vec::new();
    for range in ranges {
        if !files.contains(&&range.path[..]) {
            files.push(&range.path);
        }
    }
    let mut sort = String::new();
    for (path, priority) in files.iter().zip((1..=PRIORITY_MAX).rev()) {
        let path = std::str::from_utf8(path)?.trim_start_matches('/');
        writeln!(sort, "{path} {priority}")?;
    }
    let list = bench.path("sort");
    fs::write(&list, sort)?;
    let mut mksquashfs = peers::command("mksquashfs")?;
    mksquashfs.arg(corpus).arg(image);
    mksquashfs.args(["-noappend", "-quiet", "-no-progress", "-all-root"]);
    mksquashfs.args(["-comp", "lz4", "-Xhc", "-b", "64K", "-sort"]);
    mksquashfs.arg(&list);
    made(mksquashfs)
}

fn made(mut command: Command) -> Outcome<String> {
    run(&mut command)?;
    Ok(words(&command))
}
