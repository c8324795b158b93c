//! Logs whose segments make sections and zones.

mod support;

use std::sync::Arc;

use anteros_core::{Caller, FsError, MemoryDevice, WritableDevice};
use anteros_log::{Shape, mkfs};
use anteros_tests::ace;
use anteros_tests::crash::Plan;
use support::history::{History, Snapshot};
use support::*;

const SHAPES: [(u16, u16); 4] = [(2, 1), (4, 1), (2, 2), (4, 2)];

fn shaped(bytes: u64, (segments_per_section, sections_per_zone): (u16, u16)) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(vec![0; bytes as usize]));
    let through: Arc<dyn WritableDevice> = device.clone();
    let shape = Shape {
        uuid: [7; 16],
        hash_seed: [9; 16],
        segments_per_section,
        sections_per_zone,
        ..Shape::default()
    };
    mkfs(&through, &shape, Caller::default(), &options()).unwrap();
    device
}

#[test]
fn sections_are_filled_emptied_and_filled_again() {
    for shape in SHAPES {
        let device = shaped(80 * MIB, shape);
        let open = open_plainly;
        let tree = open(device.clone());
        let piece = |n: u64| bytes(n, 200_000);
        // What is written in one go lies in as few sections as it can.
        tree.put("large", &bytes(1, 8 << 20)).unwrap();
        tree.fsync("large").unwrap();
        let per_section = usize::from(shape.0);
        let layout = tree.0.layout();
        let sections: Vec<usize> = layout
            .segments
            .chunks(per_section)
            .map(|section| section.iter().filter(|held| held.valid > 100).count())
            .filter(|&count| count > 0)
            .collect();
        let held: usize = sections.iter().sum();
        assert!(held >= 4, "{shape:?}: {sections:?}");
        assert!(
            sections.len() <= held.div_ceil(per_section) + 1,
            "{shape:?}: {sections:?}"
        );
        let mut count = 0;
        while tree.put(&format!("{count}"), &piece(count)).is_ok() {
            count += 1;
        }
        assert!(count > 60, "{shape:?}: {count} files");
        let mut held = count - 1;
        tree.unlink(&format!("{}", count - 1))
            .unwrap_or_else(|error| {
                assert!(matches!(error, FsError::NotFound), "{error}");
            });
        // All is written anew, again and again: that needs cleaning.
        for round in 1..4 {
            for n in (0..held).filter(|n| n % 3 != round % 3) {
                tree.unlink(&format!("{n}")).unwrap();
                tree.put(&format!("{n}"), &piece(n + round)).unwrap();
            }
            if round == 2 {
                // And a crash.
                tree.0.sync().unwrap();
            }
        }
        tree.0.sync().unwrap();
        assert!(tree.0.condition().statistics.cleaned > 0, "{shape:?}");
        let before = Snapshot::of(&tree).unwrap();
        drop(tree);
        let tree = open(device.clone());
        assert!(Snapshot::of(&tree).unwrap() == before, "{shape:?}");
        while held > 1 {
            held -= 1;
            tree.unlink(&format!("{held}")).unwrap();
        }
        tree.0.clean_all(|_| true).unwrap();
        let condition = tree.0.condition();
        assert!(
            condition.free_segments + 10 > condition.segments,
            "{shape:?}: {condition:?}"
        );
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device.clone());
    }
}

#[test]
fn programs_survive_every_crash_on_sections() {
    let mut states = 0;
    for (seed, shape) in (0..).zip(SHAPES) {
        let base = shaped(48 * MIB, shape).to_vec();
        for program in ace::sample(21 + seed, 8).take(2) {
            let history =
                History::run(
                    &base,
                    options_with(160 << 10),
                    &program,
                    |tree, number| match number % 3 {
                        0 => tree.0.checkpoint().unwrap(),
                        1 => drop(tree.0.clean().unwrap()),
                        _ => {}
                    },
                );
            let explored = history.explore(&Plan {
                subsets_max: 8,
                samples: 2,
                tears: 1,
                seed,
            });
            states += explored.expect_none_failed_in(format!("{shape:?}, {}", ace::line(&program)));
        }
    }
    println!("{states} states");
}
