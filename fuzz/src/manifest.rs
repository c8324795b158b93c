//! The target `manifest`.

use std::os::unix::fs::symlink;

use anteros_build::{Input, Manifest, ManifestFormat, Options};
use tempfile::TempDir;

use super::tar::pack;

/// Content of a file that no manifest may lead to.
const SECRET: &[u8] = b"nobody reads this";

/// Packs bytes as a manifest, with a few files to take content from. Byte 0 tells the format; the rest is the manifest.
/// An image that comes of it is one without fault, and has nothing from outside the directory of content.
pub fn manifest(input: &[u8]) {
    let [flags, text @ ..] = input else { return };
    let format = match flags & 1 {
        0 => ManifestFormat::Mtree,
        _ => ManifestFormat::ComposefsDump,
    };
    let options = Options {
        workers: 1,
        sync: false,
        ..Options::default()
    };
    let dir = TempDir::new().expect("a directory for content");
    let root = dir.path().join("root");
    let made = std::fs::create_dir_all(root.join("d"))
        .and_then(|()| std::fs::write(root.join("a"), "hello"))
        .and_then(|()| std::fs::write(root.join("d/b"), "world!"))
        .and_then(|()| std::fs::write(dir.path().join("outside"), SECRET))
        .and_then(|()| symlink("../outside", root.join("l")))
        .and_then(|()| symlink("..", root.join("u")));
    made.expect("files for content");
    let manifest = Manifest::from_reader(format, "manifest", text).content_root(&root);
    pack(Input::from(manifest), &options, |image| {
        let is_told = contains(text, SECRET);
        assert!(is_told || !contains(image, SECRET), "content from outside");
    });
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|found| found == wanted)
}
