use super::*;

const UUID: [u8; 16] = [7; 16];
const V: Version = Version {
    generation: 3,
    mtime: Timestamp {
        secs: 1_000_000_000,
        nanos: 5,
    },
};

#[test]
fn a_profile_tells_of_blocks_once() {
    let mark = |launches, order| Mark { order, launches };
    let ranges = [
        (10..12, mark(3, 5)),
        (11..14, mark(1, 7)),
        (2..3, mark(3, 4)),
    ];
    let found = FileReads::of_profile(3, &ranges);
    let lblks = |reads: &[BlockReads]| reads.iter().map(|read| read.lblk).collect::<Vec<_>>();
    assert_eq!(
        (lblks(&found.core), lblks(&found.other)),
        (vec![2, 10, 11], vec![12, 13])
    );
    assert_eq!((found.rounds, found.looked_up), (3, Some(mark(3, 4))));
    let endless = FileReads::of_profile(2, &[(0..u32::MAX, mark(2, 0))]);
    assert_eq!(endless.core.len(), BLOCKS_MAX);
}

fn launches() -> Launches {
    Launches::new(UUID, 3)
}

/// Blocks in the order in which they were first read.
fn core(reads: &FileReads) -> Vec<u32> {
    lblks(&reads.core)
}

fn lblks(reads: &[BlockReads]) -> Vec<u32> {
    reads.iter().map(|read| read.lblk).collect()
}

#[test]
fn what_each_launch_reads_is_core() {
    let mut launches = launches();
    for (begins, read) in [(0, [8..10, 2..3, 5..6]), (5000, [2..3, 6..7, 8..10])] {
        for (n, blocks) in (0..).zip(read) {
            launches.note(12, V, blocks, begins + 900 * n);
        }
    }
    let reads = launches.reads(12, V).unwrap();
    assert_eq!((reads.rounds, reads.reads), (2, 8));
    // In the order of the second launch.
    assert_eq!(core(&reads), [2, 8, 9]);
    assert!(reads.core.is_sorted());
    assert_eq!(lblks(&reads.other), [5, 6]);
    assert!(launches.files().eq([(12, V)]));
    assert_eq!(launches.reads(13, V), None);
}

#[test]
fn a_launch_ends_after_a_second_without_a_read() {
    for (pause, rounds) in [(999, 1), (1000, 2)] {
        let mut launches = launches();
        launches.note(12, V, 0..1, 500);
        // Of another file: that one's own launch.
        launches.note(13, V, 0..1, 900);
        launches.note(12, V, 0..1, 500 + pause);
        let reads = launches.reads(12, V).unwrap();
        assert_eq!((reads.rounds, reads.reads), (rounds, 2), "{pause}");
        assert_eq!(launches.reads(13, V).unwrap().rounds, 1);
    }
}

/// Each read puts the end off.
#[test]
fn a_long_launch_is_one() {
    let mut launches = launches();
    for second in 0..20 {
        launches.note(12, V, second..second + 1, u64::from(second) * 999);
    }
    let reads = launches.reads(12, V).unwrap();
    assert_eq!((reads.rounds, reads.core.len()), (1, 20));
}

#[test]
fn a_clock_that_goes_back_begins_no_launch() {
    let mut launches = launches();
    launches.note(12, V, 0..1, 50_000);
    launches.note(12, V, 1..2, 100);
    assert_eq!(launches.reads(12, V).unwrap().rounds, 1);
}

#[test]
fn inodes_are_known_by_the_second_launch_that_looked_them_up() {
    let mut launches = launches();
    for now in [0, 10, 5000] {
        launches.note_lookup(40, 3, now);
        launches.note(12, V, 0..1, now);
        launches.note_lookup(12, 3, now);
    }
    assert_eq!((launches.inode_count(), launches.blocks), (2, 1));
    // Three things in each of two launches.
    let looked_up = |launches: &Launches, version| {
        [40, 12].map(|ino| {
            let mark = launches.reads(ino, version)?.looked_up?;
            Some((mark.order, mark.launches))
        })
    };
    let second = ORDERS_TOGETHER;
    assert_eq!(
        looked_up(&launches, V),
        [Some((second, 2)), Some((second + 2, 2))]
    );
    let (only, both) = (launches.reads(40, V).unwrap(), launches.reads(12, V));
    assert_eq!((only.rounds, both.unwrap().rounds), (0, 2));
    // Another inode with this number, which was looked up once so far.
    let reused = Version { generation: 4, ..V };
    assert_eq!(launches.reads(40, reused), None);
    launches.note_lookup(40, 4, 5001);
    assert_eq!(launches.reads(40, V), None);
    assert_eq!(launches.reads(40, reused), None);
    launches.note_lookup(40, 4, 10_000);
    assert_eq!(looked_up(&launches, reused)[0], Some((2 * second, 2)));
    // The order of those after the second does not count.
    for now in 10..100 {
        launches.note_lookup(12, 3, now * 1000);
    }
    assert_eq!(
        looked_up(&launches, V)[1],
        Some((second + 2, LOOKED_UP_MOST))
    );
    let read = Launches::parse(&launches.encode()).unwrap();
    assert_eq!(read.reads(12, V), launches.reads(12, V));
    assert_eq!(read.encode(), launches.encode());
}

#[test]
fn there_are_no_more_inodes_than_there_is_room_for() {
    let mut launches = launches();
    for ino in 0..FILES_MAX as u32 + 5 {
        launches.note_lookup(ino, 0, 0);
    }
    assert_eq!(launches.inode_count(), FILES_MAX);
    let bytes = launches.encode();
    assert!(bytes.len() <= RECORD_BYTES_MAX);
    assert!(Launches::parse(&bytes).is_ok());
}

#[test]
fn after_so_many_launches_that_read_the_same_nothing_is_recorded() {
    let mut launches = launches();
    for begins in [0, 2000, 4000] {
        launches.note(12, V, 0..2, begins);
    }
    let (before, changes) = (launches.reads(12, V), launches.changes());
    launches.note(12, V, 0..2, 6000);
    launches.note(12, V, 1..2, 6001);
    assert_eq!(
        (launches.reads(12, V), launches.changes()),
        (before, changes)
    );
    // Another program.
    let mut others = launches.clone();
    for begins in 1..=5 {
        others.note(12, V, 1..3, begins * 10_000);
    }
    let reads = others.reads(12, V).unwrap();
    let read_by = |read: &BlockReads| (read.lblk, read.mark.launches);
    assert_eq!(reads.rounds, 6);
    assert!(reads.core.iter().map(read_by).eq([(1, 6)]));
    assert!(reads.other.iter().map(read_by).eq([(0, 3), (2, 3)]));
    // The last of them goes on until it ends.
    launches.note(13, V, 0..1, 4000);
    launches.note(13, V, 1..2, 4500);
    assert_eq!(launches.reads(13, V).unwrap().core.len(), 2);
    let mut more = launches.with_rounds(4);
    more.note(12, V, 0..1, 8000);
    let reads = more.reads(12, V).unwrap();
    assert_eq!((reads.rounds, core(&reads)), (4, vec![0]));
    assert_eq!(lblks(&reads.other), [1]);
}

#[test]
fn a_file_whose_content_changed_begins_anew() {
    let later = Version {
        mtime: Timestamp {
            nanos: 6,
            ..V.mtime
        },
        ..V
    };
    let reused = Version { generation: 4, ..V };
    for changed in [later, reused] {
        let mut launches = launches();
        launches.note(12, V, 0..9, 0);
        launches.note(12, changed, 3..4, 1);
        assert_eq!(launches.reads(12, V), None);
        let reads = launches.reads(12, changed).unwrap();
        assert_eq!((reads.rounds, core(&reads)), (1, vec![3]));
        assert_eq!(launches.blocks, 1);
    }
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut launches = launches();
    for ino in 10..20 {
        launches.note(ino, V, 0..ino, 0);
    }
    launches.retain(|ino, _| ino == 13);
    assert!(launches.files().eq([(13, V)]));
    assert_eq!(launches.blocks, 13);
}

#[test]
fn there_are_no_more_files_than_there_is_room_for() {
    let mut launches = launches();
    for ino in 0..FILES_MAX as u32 {
        launches.note(ino, V, 0..1, 0);
    }
    launches.note(u32::MAX, V, 0..7, 0);
    assert_eq!(
        (launches.files().count(), launches.skipped()),
        (FILES_MAX, 7)
    );
    // Those that are known go on.
    launches.note(5, V, 4..5, 10);
    assert_eq!(launches.reads(5, V).unwrap().core.len(), 2);
}

#[test]
fn there_are_no_more_blocks_than_there_is_room_for() {
    let mut launches = launches();
    let most = BLOCKS_MAX as u32;
    launches.note(12, V, 0..most + 5, 0);
    launches.note(13, V, 0..1, 0);
    assert_eq!((launches.blocks, launches.skipped()), (BLOCKS_MAX, 6));
    launches.note(12, V, most - 1..most + 1, 2000);
    assert_eq!(core(&launches.reads(12, V).unwrap()), [most - 1]);
    assert_eq!(launches.skipped(), 7);
    let bytes = launches.encode();
    assert!(bytes.len() <= RECORD_BYTES_MAX);
    assert_eq!(Launches::parse(&bytes).unwrap().encode(), bytes);
}

#[test]
fn what_nobody_has_asked_for_has_bounds() {
    let most = TOGETHER_MAX as u32;
    let mut launches = launches().unasked();
    launches.note(12, V, 0..most - 1, 0);
    // Whoever reads so much is no program that starts, until there is a pause.
    launches.note(13, V, 0..2, 999);
    launches.note(13, V, 0..1, 1998);
    assert_eq!(launches.counts(), [1, TOGETHER_MAX as u64 - 1, 0]);
    launches.note(13, V, 0..1, 2998);
    assert_eq!(launches.counts()[0], 2);
    for at in 1..9 {
        launches.note(12, V, at * most..(at + 1) * most, 10_000 * u64::from(at));
    }
    assert_eq!(launches.counts(), [2, UNASKED_MAX as u64, 0]);
    assert!(launches.skipped() > 0);
    let read = Launches::parse(&launches.encode()).unwrap();
    assert_eq!(read.counts(), launches.counts());
}

#[test]
fn what_was_put_together_is_known() {
    let mut launches = launches().with_rounds(9);
    launches.note(12, V, 0..8, 0);
    launches.note(13, V, 0..8, 0);
    assert!(launches.scattered().is_empty());
    launches.note(12, V, 2..6, 5000);
    assert_eq!(launches.scattered(), [12]);
    launches.note_gathered(12);
    let mut read = Launches::parse(&launches.encode()).unwrap();
    assert_eq!((read.scattered(), read.counts()), (vec![], [2, 16, 4]));
    // One more is a quarter; two are more than that.
    read.note(12, V, 0..1, 10_000);
    assert!(read.scattered().is_empty());
    read.note(12, V, 1..2, 15_000);
    assert_eq!(read.scattered(), [12]);
    // What changes begins anew.
    let changed = Version { generation: 4, ..V };
    read.note(12, changed, 0..1, 20_000);
    assert_eq!(read.counts(), [2, 9, 0]);
}
