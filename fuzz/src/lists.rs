//! The target `lists`.

use std::sync::Arc;

use anteros_build::{Compression, Effort, FileContexts, FsConfig, Hint, Input, Options};
use tempfile::TempDir;

use super::tar::pack;

/// Paths of files that a list may name.
const FILES: [&str; 4] = ["a", "system/bin/sh", "system/etc/a b", "vendor/[x]"];

/// Packs a few files by a list of owners, of labels or of hints, as byte 0 tells; the rest is the list. A list is refused with
/// its reason, or the image that comes of it is one without fault.
pub fn lists(input: &[u8]) {
    let [which, text @ ..] = input else { return };
    let mut options = Options {
        workers: 1,
        sync: false,
        compression: Some(Compression::new(Effort::Fast)),
        ..Options::default()
    };
    if let Err(reason) = read(which % 3, text, &mut options) {
        assert!(!reason.is_empty());
        return;
    }
    let dir = TempDir::new().expect("a directory for files");
    for path in FILES {
        let path = dir.path().join(path);
        let parent = path.parent().expect("the directory");
        let made = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, [7; 9000]));
        made.expect("a file");
    }
    pack(Input::from(dir.path()), &options, |_| ());
}

/// Reads a list into options.
fn read(which: u8, text: &[u8], options: &mut Options) -> Result<(), String> {
    match which {
        0 => options.fs_config = Some(Arc::new(FsConfig::parse(text)?)),
        1 => {
            let mut contexts = FileContexts::default();
            contexts.read(text)?;
            options.file_contexts = Some(Arc::new(contexts));
        }
        _ => {
            let text = String::from_utf8_lossy(text);
            let hints = text.lines().map(|line| Hint::new(line, None));
            options.hints = hints.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}
