//! The target `tar`.

use std::sync::atomic::{AtomicBool, Ordering};

use anteros_build::{Archive, Content, Input, Layer, Observer, Options, Progress, build};
use tempfile::TempDir;

use super::check::report;
use super::image::open_image;

/// Bytes of files that are packed; an archive may claim any number of them.
const PACKED_BYTES: u64 = 16 << 20;
/// Archives consist of such blocks.
const BLOCK_BYTES: usize = 512;

/// Packs bytes as an archive. Byte 0 tells options, whether checksums are made right, whether the archive is a layer over
/// itself, and whether it is one of headers alone; the rest is the archive. What becomes an image is one without fault.
pub fn tar(input: &[u8]) {
    let [flags, archive @ ..] = input else { return };
    let mut archive = archive.to_vec();
    if flags & 4 == 0 {
        make_right(&mut archive);
    }
    let options = Options {
        workers: 1,
        sync: false,
        aufs_whiteouts: flags & 1 != 0,
        strip_overlay: flags & 2 != 0,
        bare_headers: flags & 16 != 0,
        content: match flags & 16 {
            0 => Content::Copy,
            _ => Content::Zero,
        },
        ..Options::default()
    };
    let layer = || Layer::Tar(Archive::from_reader("archive", &archive[..]));
    let input = match flags & 8 {
        0 => Input::One(layer()),
        _ => vec![layer(), layer()].into(),
    };
    pack(input, &options, |_| ());
}

/// Packs a source. What becomes an image is one without fault; nothing is left of what does not.
pub(super) fn pack(input: Input<'_>, options: &Options, look: impl Fn(&[u8])) {
    let dir = TempDir::new().expect("a directory for the image");
    let path = dir.path().join("image");
    let limit = Limit::default();
    if let Err(error) = build(&path, input, options, &limit, &limit.0) {
        assert!(!error.to_string().is_empty());
        assert!(!path.exists(), "what is not complete has no name");
        return;
    }
    let image = std::fs::read(&path).expect("the image");
    look(&image);
    let image = open_image(&image).expect("an image");
    let report = report(&image);
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Gives headers the checksums that they should have, or hardly any would be looked at.
fn make_right(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(BLOCK_BYTES) {
        if block[257..262] == *b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        }
    }
}

/// Ends what becomes large.
#[derive(Default)]
struct Limit(AtomicBool);

impl Observer for Limit {
    fn scanned(&self, progress: &Progress) {
        if progress.bytes > PACKED_BYTES {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
