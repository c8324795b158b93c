//! Lists that tell owners and labels: `--fs-config-file` and `--file-contexts`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_build::{FileContexts, FsConfig};

use crate::failure::{Failure, Kind};

/// Endings of files that belong to a `file_contexts`, and are read behind it if they are there.
const MORE_CONTEXTS: [&str; 2] = [".homedirs", ".local"];

pub fn fs_config(path: &Path) -> Result<Arc<FsConfig>, Failure> {
    let text = std::fs::read(path).map_err(|e| Failure::system(path, &e))?;
    let list = FsConfig::parse(&text).map_err(|reason| wrong(path, &reason))?;
    Ok(Arc::new(list))
}

pub fn file_contexts(path: &Path) -> Result<Arc<FileContexts>, Failure> {
    let text = std::fs::read(path).map_err(|e| Failure::system(path, &e))?;
    let mut list = FileContexts::default();
    list.read(&text).map_err(|reason| wrong(path, &reason))?;
    for ending in MORE_CONTEXTS {
        let mut more = OsString::from(path);
        more.push(ending);
        let more = PathBuf::from(more);
        match std::fs::read(&more) {
            Ok(text) => list.read(&text).map_err(|reason| wrong(&more, &reason))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::system(&more, &error)),
        }
    }
    Ok(Arc::new(list))
}

fn wrong(path: &Path, reason: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{}: {reason}", path.display()))
}
