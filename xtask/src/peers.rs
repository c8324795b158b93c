//! The programs that judge ours: erofs-utils and others, in a small Debian tree that `scripts/peers.sh` makes.
//!
//! A program of that tree is started by the dynamic loader of the tree, with the libraries of the tree. So it needs
//! neither root nor chroot, and sees the same paths as we do.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::Outcome;
use crate::run::{run, words};

/// Makes the tree, unless it is there.
///
/// # Errors
/// When it is not there and cannot be made.
pub(crate) fn make() -> Outcome {
    run(&mut Command::new("scripts/peers.sh"))
}

/// Builds the mirrors of libfuse, unless they are there: `passthrough_hp` and `passthrough_ll`.
///
/// # Errors
/// When they are not there and cannot be built.
pub(crate) fn make_libfuse() -> Outcome {
    run(Command::new("scripts/peers.sh").arg("libfuse"))
}

/// The command that starts a mirror of libfuse, by the loader of the tree.
///
/// # Errors
/// When it was not built.
pub(crate) fn libfuse(program: &str) -> Outcome<Command> {
    let (libraries, loader) = loader(&tree()?)?;
    let place = peers()?.join("libfuse");
    let program = place.join(program);
    if !program.exists() {
        return Err(format!("{}: not built", program.display()).into());
    }
    let mut command = Command::new(loader);
    let libraries = format!("{}:{}", place.display(), libraries.display());
    command.args(["--library-path", &libraries]).arg(program);
    Ok(command)
}

/// Returns where the kernel lies that judges in a virtual machine, `boot` and `lib/modules` of it; brings it in if need
/// be.
///
/// # Errors
/// When it is not there and cannot be brought in.
pub(crate) fn kernel() -> Outcome<PathBuf> {
    run(Command::new("scripts/peers.sh").arg("kernel"))?;
    Ok(peers()?.join("kernel"))
}

/// The version of libfuse that its mirrors were built with.
///
/// # Errors
/// When they were not built.
pub(crate) fn libfuse_version() -> Outcome<String> {
    let version = peers()?.join("libfuse/version");
    Ok(fs::read_to_string(version)?.trim().to_owned())
}

/// An `sqlite3` that writes atomically where it can.
///
/// # Errors
/// When it was not built.
pub(crate) fn sqlite() -> Outcome<PathBuf> {
    let program = peers()?.join("sqlite/sqlite3");
    match program.exists() {
        true => Ok(program),
        false => Err("it was not built; `scripts/peers.sh sqlite` does".into()),
    }
}

/// Runs a program of the tree in place of this one.
///
/// # Errors
/// When the tree cannot be made or the program cannot be started.
pub(crate) fn peer(program: &str, arguments: &[&str]) -> Outcome {
    make()?;
    Err(command(program)?.args(arguments).exec().into())
}

/// Makes the images of `tests/fixtures` with the tree's erofs-utils.
///
/// # Errors
/// When the tree or an image cannot be made.
pub(crate) fn fixtures() -> Outcome {
    make()?;
    let mut recipe = Command::new("tests/fixtures/make.sh");
    run(recipe.args([
        words(&command("mkfs.erofs")?),
        words(&command("fsck.erofs")?),
    ]))
}

/// The command that starts a program of the tree.
///
/// # Errors
/// When the tree has no such program.
pub(crate) fn command(program: &str) -> Outcome<Command> {
    let tree = tree()?;
    let (libraries, loader) = loader(&tree)?;
    let program = tree.join("usr/bin").join(program);
    if !program.exists() {
        return Err(format!("{}: no such peer", program.display()).into());
    }
    let mut command = Command::new(loader);
    command.arg("--library-path").arg(libraries).arg(program);
    Ok(command)
}

/// Returns where the tree lies.
fn tree() -> Outcome<PathBuf> {
    Ok(peers()?.join("sid"))
}

/// Returns where the peers lie: `$ANTEROS_PEERS`, or `anteros/peers` under the user's cache.
fn peers() -> Outcome<PathBuf> {
    if let Some(peers) = env::var_os("ANTEROS_PEERS") {
        return Ok(PathBuf::from(peers));
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")));
    Ok(cache
        .ok_or("neither ANTEROS_PEERS nor HOME is set")?
        .join("anteros/peers"))
}

/// The directory of the tree's libraries, such as `usr/lib/x86_64-linux-gnu`, and the loader that lies in it.
fn loader(tree: &Path) -> Outcome<(PathBuf, PathBuf)> {
    let is_loader = |name: &OsStr| name.as_encoded_bytes().starts_with(b"ld-linux");
    for directory in fs::read_dir(tree.join("usr/lib"))?.flatten() {
        let inside = fs::read_dir(directory.path())
            .into_iter()
            .flatten()
            .flatten();
        if let Some(loader) = inside
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(is_loader))
        {
            return Ok((directory.path(), loader));
        }
    }
    Err(format!("{}: no dynamic loader", tree.display()).into())
}
