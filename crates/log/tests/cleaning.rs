//! Tests what cleaning chooses, where it puts what it moves, and what it does when it cannot.

mod support;

use std::sync::Arc;

use anteros_core::{FileSystem, MemoryDevice, WritableDevice};
use anteros_log::layout::SEGMENT_BLOCKS;
use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{Cause, Log, Mode, Options, Policy, Use};
use anteros_tests::crash::Recorder;
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::*;

const BLOCK: u64 = 4096;

/// A log with holes in many segments, unmounted.
fn with_holes() -> Arc<MemoryDevice> {
    let device = device(128 * MIB);
    let tree = open_plainly(device.clone());
    for n in 0..40 {
        tree.put(&format!("f{n}"), &bytes(n, 1 << 20)).unwrap();
    }
    for n in (0..40).filter(|n| n % 3 != 0) {
        tree.unlink(&format!("f{n}")).unwrap();
    }
    tree.0.close().unwrap();
    device
}

#[test]
fn a_segment_that_cannot_be_cleaned_is_set_aside_and_said_once() {
    let device = with_holes();
    let tree = open(device.clone());
    let layout = tree.0.layout();
    let is_victim = |segment: &u32| {
        let segment = layout.segments[*segment as usize];
        segment.state == Use::Full && segment.kind == HeadKind::WarmData && segment.valid > 0
    };
    let victim = (0..layout.superblock.segments).find(is_victim).unwrap();
    let summary = layout.superblock.segment_start(victim) + u64::from(SEGMENT_BLOCKS) - 1;
    device.write_at(summary * BLOCK, &[0xee; 4096]).unwrap();
    let cleaned = tree.0.clean_all(|_| true).unwrap();
    assert!(cleaned > 5, "{cleaned}");
    assert!(!tree.0.clean().unwrap());
    assert_eq!(tree.0.condition().statistics.quarantined, 1);
    let told = tree.0.take_warnings();
    assert!(
        told.len() == 1 && told[0].contains(&format!("segment {victim} ")),
        "{told:?}"
    );
    assert_eq!(tree.0.failure(), None);
    for n in (0..40).step_by(3) {
        assert!(
            tree.read(&format!("f{n}")).unwrap() == bytes(n, 1 << 20),
            "{n}"
        );
    }
}

/// Nine tenths of a log are filled, and as much as it has written over, so many percent of that to a tenth of the blocks.
fn amplification(hot_percent: u64, mode: Mode) -> f64 {
    let device = device(160 * MIB);
    let options_of = Options { mode, ..plainly() };
    let tree = open_with(device.clone(), options_of);
    let blocks = tree.0.statfs().unwrap().blocks * 9 / 10;
    tree.put("f", &vec![1; (blocks * BLOCK) as usize]).unwrap();
    tree.fsync("f").unwrap();
    let before = tree.0.condition().statistics;
    let mut below = dice(1);
    for count in 0..blocks {
        let block = match below(100) < hot_percent {
            true => below(blocks / 10) * 10,
            false => below(blocks),
        };
        tree.write("f", block * BLOCK, &[2; BLOCK as usize])
            .unwrap();
        if count % 64 == 63 {
            tree.fsync("f").unwrap();
        }
    }
    tree.0.close().unwrap();
    let after = tree.0.condition().statistics;
    assert_sound(device);
    let written = |cause| after.blocks(cause) - before.blocks(cause);
    Cause::ALL.into_iter().map(written).sum::<u64>() as f64 / blocks as f64
}

#[test]
fn hot_content_comes_apart_from_cold_content() {
    let (anywhere, skewed) = (amplification(0, Mode::Lfs), amplification(90, Mode::Lfs));
    assert!(
        skewed < 0.8 * anywhere,
        "{skewed} where a tenth is hot, {anywhere} where nothing is"
    );
}

#[test]
fn holes_are_filled_where_cleaning_would_move_much() {
    for hot_percent in [0, 90] {
        let (cleaned, threaded) = (
            amplification(hot_percent, Mode::Lfs),
            amplification(hot_percent, Mode::Adaptive),
        );
        assert!(
            threaded < 0.7 * cleaned,
            "{hot_percent}: {threaded} with holes filled, {cleaned} without"
        );
    }
}

/// A directory that is read with what lies near it, and goes to holes that were read with something else before.
#[test]
fn what_was_read_ahead_of_a_hole_is_not_taken_for_what_fills_it() {
    let device = device(64 * MIB);
    let tree = Tree(
        Log::open(
            device.clone(),
            Options {
                mode: Mode::Threaded,
                ..options_with(512 << 10)
            },
        )
        .unwrap(),
    );
    tree.put("file", b"content").unwrap();
    tree.mkdir("d").unwrap();
    let name = |n: u64| format!("d/{n:0200}");
    const NAMES: u64 = 20_000;
    let mut is_there = vec![false; NAMES as usize];
    let mut below = dice(5);
    for round in 0..80 {
        for _ in 0..400 {
            let n = below(NAMES);
            match is_there[n as usize] {
                true => tree.unlink(&name(n)).unwrap(),
                false => tree.link("file", &name(n)).unwrap(),
            }
            is_there[n as usize] ^= true;
        }
        tree.0.checkpoint().unwrap();
        for _ in 0..1000 {
            let n = below(NAMES);
            // Whoever reads content makes room in memory.
            tree.read("file").unwrap();
            let found = tree.ino(&name(n)).is_ok();
            assert_eq!(found, is_there[n as usize], "name {n}, round {round}");
        }
    }
    assert!(tree.0.condition().statistics.threaded > 20);
    tree.0.close().unwrap();
    assert_sound(device);
}

/// Idle times are not for moving what is nearly all valid, again and again.
#[test]
fn an_idle_log_comes_to_rest() {
    let device = with_holes();
    let options_of = Options {
        mode: Mode::Adaptive,
        ..plainly()
    };
    let tree = open_with(device.clone(), options_of);
    let free = tree.0.condition().free_segments;
    let filler = u64::from(free - 9) << 21;
    tree.put("filler", &vec![7; filler as usize]).unwrap();
    for _ in 0..200 {
        tree.0.tend().unwrap();
    }
    let cleaned = tree.0.condition().statistics.cleaned;
    assert!(cleaned > 0);
    for _ in 0..20 {
        tree.0.tend().unwrap();
    }
    assert_eq!(tree.0.condition().statistics.cleaned, cleaned);
    assert_eq!(tree.0.failure(), None);
}

/// Tests that moved blocks, packed ones as well, are on the device when that is told, and are flushed before a sync says where
/// they are.
#[test]
fn what_cleaning_has_moved_is_on_the_device() {
    for policy in [Policy::None, Policy::Force] {
        let options = Options {
            policy,
            ..options()
        };
        let recorder = Arc::new(Recorder::new(&device(32 * MIB).to_vec()));
        let tree = open_with(recorder.clone(), options);
        let mut content: Vec<u8> = Vec::new();
        for page in 0..1300 {
            content.extend(bytes(page, 2048));
            content.extend([7; 2048]);
        }
        tree.put("file", &content).unwrap();
        tree.0.checkpoint().unwrap();
        for page in (0..1300).filter(|page| page % 3 > 0) {
            let new = [vec![page as u8; 2048], bytes(page, 2048)].concat();
            content[page as usize * 4096..][..4096].copy_from_slice(&new);
            tree.write("file", page * BLOCK, &new).unwrap();
        }
        tree.fsync("file").unwrap();
        tree.0.checkpoint().unwrap();
        let (before, already) = (tree.blocks_written(), seen(&recorder));
        let moved = tree.0.condition().statistics.blocks(Cause::Cleaning);
        assert!(tree.0.clean().unwrap(), "{policy:?}");
        assert_eq!(tree.0.take_warnings(), [""; 0], "{policy:?}");
        let given = given_since(&recorder, already);
        assert_eq!(given, (tree.blocks_written() - before, 0), "{policy:?}");
        let moved = tree.0.condition().statistics.blocks(Cause::Cleaning) - moved;
        assert!(moved > 20, "{policy:?}: {moved}");
        let already = seen(&recorder);
        tree.fsync("file").unwrap();
        assert_eq!(given_since(&recorder, already).1, 2, "{policy:?}");
        assert!(tree.read("file").unwrap() == content, "{policy:?}");
    }
}

/// That is no matter of the segment: nothing can be changed any more.
#[test]
fn cleaning_that_cannot_write_ends_all_changes() {
    let device = Arc::new(Faulty::new(MemoryDevice::new(with_holes().to_vec())));
    let tree = open_plainly(device.clone());
    device.inject(Call::Write, When::From(0), Errno::IO);
    assert!(tree.0.clean().is_err());
    device.heal();
    assert!(tree.0.failure().is_some());
    assert!(tree.create("after").is_err());
}

/// Each block that is moved leaves a node to be written: these may not pile up, however many segments are cleaned.
#[test]
fn cleaning_keeps_to_the_memory_that_it_has() {
    let device = device(256 * MIB);
    let options = Options {
        memory_bytes: 1 << 20,
        ..plainly()
    };
    let tree = open_with(device.clone(), options);
    for n in 0..6000 {
        tree.put(&format!("{n}"), &[7; 4096]).unwrap();
    }
    for n in (0..6000).filter(|n| n % 3 > 0) {
        tree.unlink(&format!("{n}")).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let mut most = 0;
    let cleaned = tree.0.clean_all(|_| {
        most = most.max(tree.0.condition().memory_bytes);
        true
    });
    assert!(cleaned.unwrap() > 5);
    assert!(most < 6 << 20, "{most} bytes");
    drop(tree);
    assert_sound(device);
}
