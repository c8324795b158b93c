//! `cargo xtask imports`: files of a crate import each other one way only, and floors import downwards.
//!
//! Whoever reads a file should be able to stop at its imports. Where two files import each other, by whatever detour,
//! there is no file to begin with. So the chore takes all imports of production code as edges between files, and
//! refuses a cycle. In crates with floors it refuses an import from a floor to a higher one as well. Calls of methods are
//! no imports: in the log, the compiler refuses those that go up, and the chore sees that it can.
//!
//! Cycles that are meant are in [`ALLOWED`], and ARCHITECTURE.md repeats them. An entry without a cycle is refused.

mod cycles;
mod modules;
mod rules;
mod source;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use crate::outcome::Outcome;
use modules::Files;
use rules::{Exception, Floor, Owner, Rules};

/// A crate whose rules are off while its files still move; `None` when they have arrived.
const MOVING: Option<&str> = None;

/// Folders of crates that are not in `crates`.
const BESIDE: [&str; 2] = ["tests", "xtask"];

/// Floors of a crate, from the bottom to the top. A folder has a slash at its end. `lib.rs` stands on top of all.
const FLOORS: [(&str, &[Floor]); 3] = [
    (
        "crates/build",
        &[
            Floor(
                "words",
                &[
                    "attributes/file_contexts.rs",
                    "attributes/fs_config.rs",
                    "base.rs",
                    "error.rs",
                    "extent.rs",
                    "kinds.rs",
                    "ordered.rs",
                    "places.rs",
                    "ranges.rs",
                    "segments.rs",
                    "sparse.rs",
                    "stream.rs",
                ],
            ),
            Floor("options", &["linux.rs", "options/", "prefixes.rs"]),
            Floor(
                "tree",
                &[
                    "directory.rs",
                    "hints.rs",
                    "times.rs",
                    "tree.rs",
                    "xattr.rs",
                ],
            ),
            Floor(
                "coding",
                &[
                    "body.rs",
                    "compress.rs",
                    "early/",
                    "index.rs",
                    "records.rs",
                    "tail.rs",
                ],
            ),
            Floor(
                "output",
                &[
                    "hash_tree.rs",
                    "observer.rs",
                    "outbox.rs",
                    "output/",
                    "special.rs",
                ],
            ),
            Floor("source", &["look.rs", "source/"]),
            Floor(
                "scan",
                &[
                    "input.rs",
                    "layers/",
                    "manifest/",
                    "scan.rs",
                    "seam.rs",
                    "tar/",
                ],
            ),
            Floor(
                "plan",
                &[
                    "devices/elsewhere.rs",
                    "devices/lower.rs",
                    "parts/cuts.rs",
                    "patch/copied.rs",
                    "patch/former.rs",
                    "patch/home.rs",
                    "patch/kept.rs",
                    "patch/renewed.rs",
                    "plan.rs",
                    "sweep/steps.rs",
                ],
            ),
            Floor(
                "decisions",
                &[
                    "attributes/",
                    "devices/",
                    "digests.rs",
                    "kept.rs",
                    "order.rs",
                    "parts/",
                    "patch/",
                    "same.rs",
                    "sweep/",
                ],
            ),
            Floor("data", &["data/", "fragments.rs", "settle.rs"]),
            Floor(
                "metadata",
                &[
                    "block_list.rs",
                    "emit.rs",
                    "layout.rs",
                    "packed.rs",
                    "packer.rs",
                    "superblock.rs",
                ],
            ),
            Floor("stages", &["android.rs", "stages.rs"]),
        ],
    ),
    (
        "crates/image",
        &[
            Floor("words", &["cache.rs", "error.rs", "nids.rs", "trail.rs"]),
            Floor("extents", &["map/extent.rs", "map/kind.rs"]),
            Floor(
                "state of reads",
                &[
                    "serve/ahead.rs",
                    "serve/counters.rs",
                    "serve/memory.rs",
                    "serve/suspended.rs",
                    "serve/pclusters.rs",
                    "serve/serving.rs",
                    "serve/sizes.rs",
                ],
            ),
            Floor("image", &["image.rs", "image/"]),
            Floor("map", &["map/"]),
            Floor(
                "data",
                &[
                    "content.rs",
                    "parts.rs",
                    "aligned.rs",
                    "read_ahead.rs",
                    "serve/",
                ],
            ),
            Floor(
                "tree",
                &[
                    "dir.rs",
                    "find.rs",
                    "walk.rs",
                    "xattr.rs",
                    "xattr_search.rs",
                ],
            ),
            Floor(
                "jobs",
                &[
                    "check/",
                    "host/",
                    "lists/",
                    "patches.rs",
                    "pins.rs",
                    "stats.rs",
                    "stored.rs",
                    "tar.rs",
                    "tar/",
                    "vfs.rs",
                ],
            ),
        ],
    ),
    (
        "crates/log",
        &[
            Floor("layout", &["layout/"]),
            Floor("compress", &["compress/"]),
            Floor(
                "words",
                &["error.rs", "floors.rs", "options.rs", "statistics.rs"],
            ),
            Floor("store", &["store/"]),
            Floor("nodes", &["nodes/"]),
            Floor("packing", &["packing/"]),
            Floor("files", &["files/"]),
            Floor("durable", &["durable/"]),
            Floor("cleaning", &["cleaning/"]),
            Floor("mount", &["mount/"]),
            Floor("offline", &["offline/"]),
        ],
    ),
];

/// Owners of what the floors of the log keep in memory, each held by the one of the floor above. The compiler refuses a call
/// upwards, as long as nobody gives them methods from there.
const OWNERS_OF_LOG: [Owner; 6] = [
    owner("Store", "store/"),
    owner("Nodes", "nodes/"),
    owner("Packer", "packing/"),
    owner("Files", "files/"),
    owner("Durable", "durable/"),
    owner("Cleaning", "cleaning/"),
];

const fn owner(name: &'static str, home: &'static str) -> Owner {
    Owner { name, home }
}

/// Imports that may close a cycle, because both files are one thing. ARCHITECTURE.md repeats them.
const ALLOWED: [Exception; 4] = [
    Exception {
        name: "crates/anteros",
        from: "command/completions.rs",
        to: "main.rs",
        reason: "the completions are made from the whole command line, of which the command is a part",
    },
    Exception {
        name: "crates/anteros",
        from: "command/manual.rs",
        to: "main.rs",
        reason: "the manual is made from the whole command line, of which the command is a part",
    },
    Exception {
        name: "crates/build",
        from: "source/layers.rs",
        to: "source/mod.rs",
        reason: "a source may be layers, and each layer is a source",
    },
    Exception {
        name: "crates/core",
        from: "fs.rs",
        to: "writable.rs",
        reason: "`FileSystem` hands itself out as `Writable`, and `Writable` is a `FileSystem`",
    },
];

/// Refuses cycles between files, imports upwards, and methods of an owner outside of its floor.
///
/// # Errors
/// Names each cycle and each import, and says what to do.
pub(crate) fn imports() -> Outcome {
    let architecture = fs::read_to_string("ARCHITECTURE.md")?;
    let mut faults = Vec::new();
    let (mut files_count, mut imports_count) = (0, 0);
    for name in crates()? {
        if MOVING == Some(name.as_str()) {
            continue;
        }
        let top = Path::new(&name).join("src");
        let mut files = Files::new();
        read(&top, &top, &mut files)?;
        let imports = modules::imports(&files);
        files_count += files.len();
        imports_count += imports.len();
        let floors = FLOORS.iter().find(|(floors_of, _)| *floors_of == name);
        let rules = Rules {
            floors: floors.map_or(&[], |(_, floors)| floors),
            owners: match name.as_str() {
                "crates/log" => &OWNERS_OF_LOG,
                _ => &[],
            },
            allowed: &ALLOWED,
            architecture: &architecture,
        };
        faults.extend(rules.faults(&name, &files, &imports));
    }
    if faults.is_empty() {
        println!("imports: {imports_count} imports between {files_count} files, none in a circle");
        return Ok(());
    }
    Err(format!(
        "{} of the rules in xtask/src/imports.rs are broken:\n\n{}",
        faults.len(),
        faults.join("\n\n")
    )
    .into())
}

/// Returns the folders of all crates.
fn crates() -> Outcome<Vec<String>> {
    let mut folders: Vec<String> = BESIDE.map(str::to_owned).into();
    for entry in fs::read_dir("crates")? {
        folders.push(format!("crates/{}", entry?.file_name().to_string_lossy()));
    }
    folders.sort();
    Ok(folders)
}

/// Reads the production code of a folder.
fn read(top: &Path, folder: &Path, files: &mut Files) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(top, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(top)?.to_string_lossy().into_owned();
        if name.ends_with(".rs") && !modules::is_test(&name) {
            files.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
