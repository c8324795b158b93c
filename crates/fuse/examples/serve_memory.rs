//! Mounts a small tree from memory until it is unmounted: `serve_memory DIRECTORY [OPTION...]`,
//! where an option is `allow_other` or `default_permissions`.

#[path = "../tests/support/mod.rs"]
mod memory;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use anteros_fuse::{MountOptions, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let mountpoint = PathBuf::from(args.next().ok_or("where shall it be mounted?")?);
    let mut options = MountOptions::default();
    for option in args {
        match option.to_str() {
            Some("allow_other") => options.allow_other = true,
            Some("default_permissions") => options.default_permissions = true,
            _ => return Err(format!("unknown option {option:?}").into()),
        }
    }
    let fs = Arc::new(memory::MemoryFs::sample(100));
    let session = Session::mount(fs, &mountpoint, &options)
        .inspect_err(|error| eprintln!("hint: {}", error.hint().unwrap_or("none")))?;
    println!("{}", session.mountpoint().display());
    Ok(session
        .on_fault(|ino, error| eprintln!("inode {}: {error}", ino.0))
        .run()?)
}
