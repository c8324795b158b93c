//! Content to build from. What was built is judged elsewhere, by the kernel and `fsck.erofs`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_build::{Error, Input, Options, Summary};

/// A xorshift generator: the same numbers on each run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Words in random order.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&[u8]; 6] = [
            b"block ",
            b"inode, ",
            b"extent\n",
            b"a ",
            b"of ",
            b"superblock ",
        ];
        let mut text = Vec::new();
        while text.len() < len {
            text.extend_from_slice(WORDS[self.below(6) as usize]);
        }
        text.truncate(len);
        text
    }

    /// Text, noise and zeros by turns.
    pub fn mixture(&mut self, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < len {
            let run = 100 + self.below(40_000) as usize;
            match self.below(3) {
                0 => data.extend(self.text(run)),
                1 => data.extend(self.bytes(run)),
                _ => data.resize(data.len() + run, 0),
            }
        }
        data.truncate(len);
        data
    }
}

/// Says aloud that a judge is missing; that fails where all must be there.
pub fn missing_judge(what: &str) {
    eprintln!("MISSING JUDGE: {what}");
    assert!(
        std::env::var_os("ANTEROS_REQUIRE_JUDGES").is_none(),
        "the judge is required: {what}"
    );
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Builds with nobody watching.
pub fn build<'a>(
    image: &Path,
    source: impl Into<Input<'a>>,
    options: &Options,
) -> Result<Summary, Error> {
    anteros_build::build(image, source, options, &(), &AtomicBool::new(false))
}
