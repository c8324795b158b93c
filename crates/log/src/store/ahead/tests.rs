use std::thread;
use std::time::Duration;

use super::*;
use crate::layout::packed::{PackedBlock, PackedHeader, SlotKind};

#[test]
fn whoever_goes_on_is_given_more_each_time() {
    let mut streams = Streams::new(PACKED);
    let mut next = |range| streams.next(&range, 0, u64::MAX);
    assert_eq!(next(100..104), 104..104);
    // Elsewhere.
    assert_eq!(next(5000..5002), 5002..5002);
    assert_eq!(next(104..108), 108..140);
    // Not yet in the second half of what was read.
    assert_eq!(next(110..112), 140..140);
    assert_eq!(next(125..130), 140..204);
    assert_eq!(next(230..232), 232..360);
    assert_eq!(next(340..342), 360..616);
    assert_eq!(next(600..601), 616..872);
}

/// Nodes that lie near each other are read in any order: that is no reason to read more of them.
#[test]
fn nodes_are_read_on_only_in_order() {
    let mut streams = Streams::new(NODES);
    let mut next = |place| streams.next(&(place..place + 1), 0, u64::MAX);
    assert_eq!(next(100), 101..109);
    assert_eq!(next(107), 108..116);
    assert_eq!(next(116), 117..133);
    assert_eq!(next(138), 139..171);
    assert_eq!(next(90), 91..99);
}

#[test]
fn what_each_launch_reads_comes_with_what_is_behind_it() {
    let mut block = PackedBlock::new(PackedHeader::default());
    let slot = Slot {
        core: true,
        blocks: 1,
        ino: 9,
        ..Slot::new(SlotKind::Data)
    };
    block.push(slot, b"x").unwrap();
    let ahead = Ahead::new(16 * BLOCK_BYTES);
    ahead.keep(50, &*block.finish());
    ahead.note(50..51, 80);
    assert_eq!(ahead.wait(), Some(Job::Read(50..80, 51..80)));
    ahead.note_opened(8);
    ahead.note_opened(9);
    assert_eq!(ahead.wait(), Some(Job::Opened(9)));
}

#[test]
fn whoever_waits_for_work_is_woken() {
    let ahead = Ahead::new(16 * BLOCK_BYTES);
    ahead.keep(50, &*core_block(0));
    let (told, tells) = std::sync::mpsc::channel();
    let wait = || tells.recv_timeout(Duration::from_secs(60)).unwrap();
    thread::scope(|scope| {
        let ahead = &ahead;
        scope.spawn(move || {
            while let Some(job) = ahead.wait() {
                told.send(Some(job)).unwrap();
            }
            told.send(None).unwrap();
        });
        // By then it waits, most likely; if not, it finds what there is.
        let pause = || thread::sleep(Duration::from_millis(30));
        pause();
        ahead.note(50..51, 80);
        assert!(matches!(wait(), Some(Job::Read(..))));
        pause();
        ahead.note_opened(0);
        assert_eq!(wait(), Some(Job::Opened(0)));
        pause();
        ahead.end();
        assert_eq!(wait(), None);
    });
}

/// A block of what launches read, with so much to come from its beginning on.
fn core_block(left: u16) -> Box<Block> {
    let mut block = PackedBlock::new(PackedHeader {
        left,
        ..PackedHeader::default()
    });
    let slot = Slot {
        core: true,
        blocks: 1,
        ..Slot::new(SlotKind::Data)
    };
    block.push(slot, b"x").unwrap();
    block.finish()
}

#[test]
fn what_launches_want_together_is_read_at_once_and_nothing_behind_it() {
    let read = |left, until| {
        let ahead = Ahead::new(16 * BLOCK_BYTES);
        ahead.keep(50, &*core_block(left));
        ahead.note(50..51, until);
        match ahead.wait() {
            Some(Job::Read(all, rest)) if all == (50..rest.end) => rest,
            job => panic!("{job:?}"),
        }
    };
    // 5 blocks for 8.
    assert_eq!(read(64, 500), 51..90);
    assert_eq!(read(64, 70), 51..70);
    assert_eq!(read(400, 500), 51..300);
    // That would be too much at once, or so little that a few more cost nothing.
    assert_eq!(read(2000, 500), 51..307);
    assert_eq!(read(1, 500), 51..58);
}

#[test]
fn where_something_else_begins_nobody_goes_on() {
    let ahead = Ahead::new(16 * BLOCK_BYTES);
    ahead.keep(50, &*core_block(64));
    ahead.keep(80, &*core_block(16));
    ahead.keep(89, &*core_block(600));
    ahead.note(50..51, 500);
    assert_eq!(ahead.wait(), Some(Job::Read(50..90, 51..90)));
    ahead.go_on(&(50..90));
    assert!(ahead.lock().waiting.is_empty());
    // Not all of it is here yet.
    ahead.keep(81, &*core_block(16));
    ahead.note(80..82, 500);
    assert_eq!(ahead.wait(), Some(Job::Read(80..91, 90..91)));
}

#[test]
fn only_so_many_blocks_are_kept_and_none_that_is_given_up() {
    let ahead = Ahead::new(4 * BLOCK_BYTES);
    ahead.keep(10, &[1; 3 * BLOCK_BYTES]);
    ahead.keep(20, &[2; 2 * BLOCK_BYTES]);
    let here = |range| ahead.range(range).into_keys().collect::<Vec<_>>();
    assert_eq!(here(0..100), [11, 12, 20, 21]);
    ahead.forget(12..21);
    assert_eq!(here(0..100), [11, 21]);
    ahead.note_pushed(21..=21, 3, 4096);
    assert_eq!(ahead.range(21..22)[&21].pushed, 8);
    // What is here already stays.
    ahead.keep(21, &[3; BLOCK_BYTES]);
    ahead.keep(30, &[4; 2 * BLOCK_BYTES]);
    assert_eq!(here(0..100), [11, 21, 30, 31]);
    assert_eq!(ahead.get(21).unwrap()[0], 2);
    // What has been of use goes first.
    ahead.keep(40, &[5; BLOCK_BYTES]);
    assert_eq!(here(0..100), [11, 30, 31, 40]);
    ahead.keep(50, &[6; BLOCK_BYTES]);
    assert_eq!(here(0..100), [30, 31, 40, 50]);
}

/// Returns what `read` is asked for.
fn asked(ahead: &Ahead, wanted: Range<u64>, near: Range<u64>) -> Option<Range<u64>> {
    let mut asked = None;
    let read = |first, bytes: &mut [u8]| {
        asked = Some(first..first + (bytes.len() / BLOCK_BYTES) as u64);
        Ok(())
    };
    ahead.read(wanted, &near, read).unwrap();
    asked
}

#[test]
fn whoever_wants_what_is_to_be_read_ahead_reads_all_of_it() {
    let ahead = Ahead::new(256 * BLOCK_BYTES);
    assert_eq!(asked(&ahead, 4..6, 0..500), Some(4..12));
    assert_eq!(asked(&ahead, 10..12, 0..500), None);
    ahead.note(10..12, 500);
    assert_eq!(asked(&ahead, 12..14, 0..14), Some(12..14));
    ahead.note(12..14, 30);
    // It was to be read up to 30, and some of it is here.
    assert_eq!(asked(&ahead, 20..21, 0..25), Some(14..25));
    assert_eq!(asked(&ahead, 20..21, 0..25), None);
    assert_eq!(asked(&ahead, 26..27, 26..500), Some(26..34));
    // What could not be read is left to whoever wants some of it.
    ahead.note(34..35, 60);
    let fails = |_, _: &mut [u8]| Err(io::ErrorKind::Other.into());
    assert!(ahead.read(40..41, &(0..500), fails).is_err());
    assert_eq!(asked(&ahead, 40..41, 0..500), Some(40..41));
}

#[test]
fn what_was_read_lately_is_not_read_ahead_again() {
    let ahead = Ahead::new(4 * BLOCK_BYTES);
    let due = |range: Range<u64>| {
        let mut asked = None;
        let read = |first, bytes: &mut [u8]| {
            asked = Some(first..first + (bytes.len() / BLOCK_BYTES) as u64);
            Ok(())
        };
        ahead.read_due(range, read).unwrap();
        asked
    };
    assert_eq!(due(100..120), Some(100..120));
    // Not all of it could be kept.
    assert_eq!(due(90..120), Some(90..100));
    assert_eq!(due(90..110), None);
    assert_eq!(asked(&ahead, 105..106, 0..500), Some(105..106));
    // After a while it may be of use again.
    for at in 0..LATELY_MAX as u64 {
        due(500 + at..501 + at);
    }
    assert_eq!(due(90..110), Some(90..110));
}

#[test]
fn nothing_is_read_by_two() {
    let ahead = Ahead::new(256 * BLOCK_BYTES);
    let wait = std::sync::Barrier::new(2);
    let second = || {
        wait.wait();
        asked(&ahead, 12..16, 0..500)
    };
    let first = |_, _: &mut [u8]| {
        wait.wait();
        thread::sleep(Duration::from_millis(20));
        Ok(())
    };
    thread::scope(|scope| {
        let second = scope.spawn(second);
        ahead.read(10..14, &(0..14), first).unwrap();
        assert_eq!(second.join().unwrap(), Some(14..20));
    });
}

#[test]
fn what_is_to_be_read_is_done_before_what_is_only_given() {
    let ahead = Ahead::new(BLOCK_BYTES);
    for at in 0..WAITING_MAX as u64 {
        ahead.lock().ask(Job::Read(at..at + 1, at + 1..at + 1));
    }
    ahead.lock().ask(Job::Read(70..80, 71..80));
    ahead.lock().ask(Job::Opened(3));
    let waiting: Vec<_> = std::mem::take(&mut ahead.lock().waiting).into();
    assert_eq!(waiting.len(), WAITING_MAX);
    assert_eq!(waiting[0], Job::Read(2..3, 3..3));
    let last = [Job::Read(70..80, 71..80), Job::Opened(3)];
    assert!(waiting.ends_with(&last), "{waiting:?}");
}

#[test]
fn nobody_waits_when_it_is_over() {
    let ahead = Ahead::new(BLOCK_BYTES);
    ahead.note(7..9, u64::MAX);
    assert_eq!(ahead.wait(), Some(Job::Read(7..9, 9..9)));
    ahead.end();
    assert_eq!(ahead.wait(), None);
}
