//! What cleaning chooses, where it puts what it moves, and what it does when it cannot.

mod support;

use anteros_core::{FileSystem, WritableDevice};
use anteros_log::layout::SEGMENT_BLOCKS;
use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{Cause, Use, check};
use support::*;

const BLOCK: u64 = 4096;

/// A log with holes in many segments, unmounted.
fn with_holes() -> std::sync::Arc<anteros_core::MemoryDevice> {
    let device = device(128 * MIB);
    let tree = open(device.clone());
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
    assert_eq!(tree.0.condition().statistics.set_aside, 1);
    let told = tree.0.take_complaints();
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
fn amplification(hot_percent: u64) -> f64 {
    let device = device(160 * MIB);
    let tree = open(device.clone());
    let blocks = tree.0.statfs().unwrap().blocks * 9 / 10;
    tree.put("f", &vec![1; (blocks * BLOCK) as usize]).unwrap();
    tree.fsync("f").unwrap();
    let before = tree.0.condition().statistics;
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
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
    assert_eq!(check(device, options()).unwrap().faults, [""; 0]);
    let written = |cause| after.blocks(cause) - before.blocks(cause);
    Cause::ALL.into_iter().map(written).sum::<u64>() as f64 / blocks as f64
}

#[test]
fn hot_content_comes_apart_from_cold_content() {
    let (anywhere, skewed) = (amplification(0), amplification(90));
    assert!(
        skewed < 0.8 * anywhere,
        "{skewed} where a tenth is hot, {anywhere} where nothing is"
    );
}

/// Idle times are not for moving what is nearly all valid, again and again.
#[test]
fn an_idle_log_comes_to_rest() {
    let device = with_holes();
    let tree = open(device.clone());
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
