//! Random damage: whatever the bytes are, nothing panics, hangs or lies.

mod common;

use std::sync::atomic::AtomicBool;

use anteros_image::{CheckOptions, OpenOptions, check};
use common::{FIXTURES, Fixture, read_all};

/// A small generator of numbers, so that a seed replays a run.
struct Numbers(u64);

impl Numbers {
    /// Below `limit`.
    fn next(&mut self, limit: usize) -> usize {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Reads and checks all of it, if it can be opened; says whether a check is content with it.
fn examine(fixture: &Fixture) -> bool {
    let options = OpenOptions {
        verify_checksum: false,
        cache_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let Ok(image) = fixture.open_with(options) else {
        return false;
    };
    read_all(&image);
    let options = CheckOptions {
        workers: 1,
        work_bytes_max: 64 << 20,
        findings_max: 100,
        data: true,
        ..CheckOptions::default()
    };
    check(&image, &options, &(), &AtomicBool::new(false)).is_clean()
}

#[test]
fn cut_off_images_are_always_reported() {
    for name in FIXTURES {
        let whole = Fixture::read(name);
        let mut numbers = Numbers(0x9e37_79b9);
        let len = whole.bytes.len();
        let blocks = (0..len).step_by(4096);
        let anywhere: Vec<_> = (0..10).map(|_| numbers.next(len)).collect();
        for len in blocks.chain(anywhere) {
            let mut image = whole.clone();
            image.bytes.truncate(len);
            assert!(!examine(&image), "{name} cut off at {len}");
        }
    }
}

#[test]
fn random_damage_does_no_harm() {
    const RUNS: usize = 150;
    /// Bytes in which a change is most often a change of meaning.
    const TELLING: [u8; 8] = [0, 1, 2, 0x10, 0x20, 0x7f, 0x80, 0xff];
    for name in FIXTURES {
        let whole = Fixture::read(name);
        for run in 0..RUNS {
            let mut numbers = Numbers(1 + run as u64 * 0x1_0001);
            let mut image = whole.clone();
            for _ in 0..1 + numbers.next(8) {
                // Half of the damage is done to the first blocks, where most metadata lies.
                let reach = if numbers.next(2) == 0 {
                    image.bytes.len()
                } else {
                    16384
                };
                let at = numbers.next(reach);
                let telling = TELLING[numbers.next(TELLING.len())];
                image.bytes[at] = if numbers.next(2) == 0 {
                    telling
                } else {
                    numbers.next(256) as u8
                };
            }
            examine(&image);
        }
    }
}
