//! Random calls on a buffered model and on a plain one, whose answers must be the same.
//!
//! Invariant W1 of `docs/design/bfuse.md`.

use std::time::{Duration, Instant};

use anteros_buffer::{Buffered, Options};
use anteros_core::{Changes, FilePosition, FileSystem, OpenFile, Seek, Writable};
use rustix::fs::OFlags;

use crate::model::{APPEND, Model, Numbers, ROOT, create, open};
use crate::{FORMS, buffered, untimed};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A file that is open in both.
#[derive(Clone, Copy)]
struct Pair {
    tested: OpenFile,
    plain: OpenFile,
}

struct Run {
    tested: Buffered<Model>,
    plain: Model,
    open: Vec<Pair>,
    numbers: Numbers,
    now: Instant,
}

impl Run {
    fn flags(&mut self) -> OFlags {
        let all = [
            OFlags::RDWR,
            OFlags::RDWR,
            APPEND,
            APPEND,
            OFlags::RDWR | OFlags::TRUNC,
            OFlags::RDWR | OFlags::SYNC,
            APPEND | OFlags::DSYNC,
        ];
        all[self.numbers.below(all.len() as u64) as usize]
    }

    fn any(&mut self) -> Pair {
        let index = self.numbers.below(self.open.len() as u64);
        self.open[index as usize]
    }

    fn offset(&mut self) -> u64 {
        self.numbers.below(40_000)
    }

    fn add_open(&mut self) {
        let flags = self.flags();
        let pair = if self.open.is_empty() || self.numbers.below(2) == 0 {
            let name = NAMES[self.numbers.below(4) as usize];
            Pair {
                tested: create(&self.tested, name, flags),
                plain: create(&self.plain, name, flags),
            }
        } else {
            let other = self.any();
            Pair {
                tested: open(&self.tested, other.tested.ino, flags),
                plain: open(&self.plain, other.plain.ino, flags),
            }
        };
        self.open.push(pair);
    }

    fn compare(&self, pair: Pair) {
        let (tested, plain) = (
            self.tested.getattr(pair.tested.ino).unwrap(),
            self.plain.getattr(pair.plain.ino).unwrap(),
        );
        assert_eq!(
            (tested.size, tested.perm, tested.blocks),
            (plain.size, plain.perm, plain.blocks)
        );
    }

    fn write(&mut self, pair: Pair) {
        let offset = self.offset();
        let len = [1, 100, 4096, 5000, 20_000, 65_536, 80_000][self.numbers.below(7) as usize];
        let data = vec![self.numbers.below(255) as u8 + 1; len];
        let drops = self.numbers.below(8) == 0;
        // Often from the end on, as most writers do.
        let offset = match self.numbers.below(4) {
            0 => offset,
            _ => self.plain.getattr(pair.plain.ino).unwrap().size % 1_000_000,
        };
        assert_eq!(
            self.tested
                .write(pair.tested, offset, &data, drops)
                .unwrap(),
            self.plain.write(pair.plain, offset, &data, drops).unwrap()
        );
    }

    fn read(&mut self, pair: Pair) {
        let offset = self.offset();
        let (mut tested, mut plain) = (vec![0; 30_000], vec![0; 30_000]);
        assert_eq!(
            self.tested
                .read_open(pair.tested, offset, &mut tested)
                .unwrap(),
            self.plain
                .read_open(pair.plain, offset, &mut plain)
                .unwrap()
        );
        assert!(tested == plain, "content differs");
    }

    fn change(&mut self, pair: Pair) {
        let mut changes = Changes::default();
        match self.numbers.below(2) {
            0 => changes.size = Some(self.offset()),
            _ => changes.perm = Some(0o4755),
        }
        let size = |fs: &dyn Writable, file: OpenFile| {
            fs.change(file.ino, Some(file), &changes).unwrap().size
        };
        assert_eq!(
            size(&self.tested, pair.tested),
            size(&self.plain, pair.plain)
        );
    }

    fn step(&mut self) {
        if self.open.is_empty() || self.open.len() < 8 && self.numbers.below(10) == 0 {
            self.add_open();
        }
        let pair = self.any();
        match self.numbers.below(40) {
            0..=21 => self.write(pair),
            22..=24 => self.read(pair),
            25 | 26 => self.compare(pair),
            27 => self.change(pair),
            28 => {
                let (offset, len) = (self.offset(), self.offset());
                let mode = self.numbers.below(2) as u32;
                self.tested
                    .allocate(pair.tested, offset, len, mode)
                    .unwrap();
                self.plain.allocate(pair.plain, offset, len, mode).unwrap();
            }
            29 => {
                let to = self.any();
                let (from_offset, to_offset) = (self.offset(), self.offset());
                let copy = |fs: &dyn Writable, from, to| {
                    let at = |file, offset| FilePosition { file, offset };
                    fs.copy_range(at(from, from_offset), at(to, to_offset), 10_000)
                        .unwrap()
                };
                assert_eq!(
                    copy(&self.tested, pair.tested, to.tested),
                    copy(&self.plain, pair.plain, to.plain)
                );
            }
            30 => {
                let offset = self.offset();
                let seek = |fs: &dyn Writable, file| fs.seek_open(file, offset, Seek::Hole).ok();
                assert_eq!(
                    seek(&self.tested, pair.tested),
                    seek(&self.plain, pair.plain)
                );
            }
            31 => self.tested.fsync(pair.tested, true).unwrap(),
            32 => self.tested.flush(pair.tested).unwrap(),
            33 | 34 => {
                let index = self.numbers.below(self.open.len() as u64) as usize;
                let pair = self.open.swap_remove(index);
                self.tested.release(pair.tested);
                self.plain.release(pair.plain);
            }
            35 => {
                let (from, to) = (self.numbers.below(4), self.numbers.below(4));
                let (from, to) = (NAMES[from as usize], NAMES[to as usize]);
                let rename = |fs: &dyn Writable| {
                    fs.rename((ROOT, from.as_bytes()), (ROOT, to.as_bytes()), 0)
                        .is_ok()
                };
                assert_eq!(rename(&self.tested), rename(&self.plain));
            }
            36 => {
                let name = NAMES[self.numbers.below(4) as usize].as_bytes();
                let size = |fs: &dyn Writable| fs.lookup(ROOT, name).ok().map(|attr| attr.size);
                assert_eq!(size(&self.tested), size(&self.plain));
            }
            _ => {
                self.now += Duration::from_millis(self.numbers.below(5));
                self.tested.tick(self.now);
            }
        }
    }
}

#[test]
fn a_buffered_file_system_answers_as_a_plain_one() {
    for seed in 1..=60_u64 {
        for form in FORMS {
            for threaded in [true, false] {
                // Seen if the test fails.
                println!("seed {seed}, {form:?}, threaded {threaded}");
                let mut run = Run {
                    tested: buffered(Options {
                        threaded,
                        interval: Duration::from_millis(10),
                        ..untimed(form)
                    }),
                    plain: Model::new(),
                    open: Vec::new(),
                    numbers: Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    now: Instant::now(),
                };
                for _ in 0..300 {
                    run.step();
                }
                for pair in std::mem::take(&mut run.open) {
                    run.compare(pair);
                    run.tested.flush(pair.tested).unwrap();
                    assert!(
                        run.tested.inner().content(pair.tested.ino)
                            == run.plain.content(pair.plain.ino)
                    );
                }
                let counts = run.tested.statistics();
                assert_eq!(counts.errors, 0);
                assert!(counts.memory_bytes_peak <= 1 << 20);
            }
        }
    }
}
