use super::*;
use crate::Shape;

const MOMENT: Moment = Moment {
    clock: 0,
    seconds: 0,
};
/// Packed blocks, which become valid slot by slot, and content as it is.
const PACKED: HeadKind = HeadKind::Moved;
const PLAIN: HeadKind = HeadKind::WarmData;

fn segments() -> Segments {
    let superblock = Superblock::plan((256 << 20) / 4096, &Shape::default()).unwrap();
    let entries = vec![SitEntry::default(); superblock.segments as usize];
    Segments::new(&superblock, &entries, 0)
}

/// Hands out so many blocks, and returns the last of them and its segment.
fn fill(segments: &mut Segments, kind: HeadKind, count: u32) -> (u64, u32) {
    let mut next = || segments.allocate(kind, Owner::default(), MOMENT).unwrap();
    let last = (0..count).map(|_| next().block).last().unwrap();
    (last, segments.locate(last).0)
}

fn state(segments: &Segments, segment: u32) -> Use {
    segments.segment(segment).state
}

#[test]
fn a_segment_of_which_nothing_was_used_is_free_after_a_checkpoint() {
    let mut segments = segments();
    let before = segments.ready_count();
    let (_, closed) = fill(&mut segments, PACKED, 3);
    segments.close(PACKED);
    let last = segments.count() - 1;
    segments.keep(last);
    assert_eq!(state(&segments, closed), Use::Prefree);
    assert_eq!(segments.ready_count(), before - 2);
    assert_eq!(segments.release(), [closed, last]);
    assert_eq!(state(&segments, closed), Use::Free);
    assert_eq!(segments.ready_count(), before);
}

#[test]
fn a_block_that_becomes_valid_late_has_its_segment_in_use() {
    let mut segments = segments();
    let (last, segment) = fill(&mut segments, PACKED, SEGMENT_CONTENT);
    assert_eq!(state(&segments, segment), Use::Prefree);
    segments.mark(last, 0);
    assert_eq!(state(&segments, segment), Use::Full);
    assert_eq!(segments.release(), [0; 0]);
    segments.invalidate(last, 0);
    assert_eq!(state(&segments, segment), Use::Prefree);
}

#[test]
fn whatever_is_changed_of_a_segment_goes_to_the_table() {
    let mut segments = segments();
    let (last, segment) = fill(&mut segments, PLAIN, 3);
    let changed = |segments: &mut Segments| segments.take_changed().collect::<Vec<u32>>();
    assert_eq!(changed(&mut segments), [segment]);
    assert_eq!(changed(&mut segments), [0; 0]);
    segments.invalidate(last, 0);
    assert_eq!(changed(&mut segments), [segment]);
    segments.mark(last, 0);
    assert_eq!(changed(&mut segments), [segment]);
    segments.holds(segment, PACKED);
    assert_eq!(changed(&mut segments), [segment]);
    segments.holds(segment, PACKED);
    assert_eq!(changed(&mut segments), [0; 0]);
}

#[test]
fn heads_that_are_closed_leave_their_segments_and_say_what_is_there() {
    let mut segments = segments();
    let (_, plain) = fill(&mut segments, PLAIN, 3);
    let (_, packed) = fill(&mut segments, HeadKind::Packed, 3);
    let open = segments.open_segments();
    assert_eq!(open.len(), 3);
    let summaries = segments.close_heads();
    assert_eq!(summaries.len(), 1);
    assert_eq!(segments.locate(summaries.first().unwrap().0).0, plain);
    assert_eq!(state(&segments, plain), Use::Full);
    let next = open
        .into_iter()
        .find(|segment| ![plain, packed].contains(segment))
        .unwrap();
    assert_eq!(state(&segments, packed), Use::Prefree);
    assert_eq!(state(&segments, next), Use::Prefree);
}

/// Tests a packed log that was to go on and could not, as no segment was free behind that.
#[test]
fn a_segment_that_is_next_is_given_up_with_those_behind_it() {
    let mut segments = segments();
    segments.free = segments.free.iter().take(2).copied().collect();
    fill(&mut segments, HeadKind::Packed, SEGMENT_CONTENT);
    let next_packed = segments.next_packed.unwrap();
    assert_eq!(state(&segments, next_packed), Use::Open);
    segments.retire(next_packed);
    assert_eq!(state(&segments, next_packed), Use::Prefree);
}

#[test]
fn a_head_that_has_come_to_the_end_of_its_segment_is_closed_after_a_crash() {
    let mut segments = segments();
    let (_, segment) = fill(&mut segments, PLAIN, 3);
    let end = SEGMENT_CONTENT as u16;
    let summaries = segments.go_on(|_| end, |_| None);
    assert_eq!(summaries.len(), 1);
    assert_eq!(state(&segments, segment), Use::Full);
    assert_eq!(fill(&mut segments, PLAIN, 1).1, segment + 1);
}

#[test]
fn a_segment_in_which_a_head_goes_on_after_a_crash_is_open() {
    let mut segments = segments();
    segments.look_from(5);
    let owners = [Owner::default(); 7];
    assert!(segments.go_on_in(5, PLAIN, &owners, None));
    assert_eq!(state(&segments, 5), Use::Open);
    assert_eq!(fill(&mut segments, PACKED, 1).1, 6);
    assert_eq!(fill(&mut segments, PLAIN, 1), (segments.start(5) + 7, 5));
}
