//! Tests whether power cuts everywhere find what they are there to find: a small journal survives them all, and each of
//! its safeguards is missed when it is left out.

use std::collections::BTreeSet;
use std::io::IoSlice;

use anteros_core::{Device, WritableDevice};
use anteros_tests::crash::{Explored, Operation, Plan, Recorder, SECTOR_BYTES, State, StateId};
use anteros_tests::trees::Random;

const BLOCK: usize = 4096;

/// A cell that is set as a whole. It has two slots, used in turn: a block of data each, and a block that commits it.
///
/// ```text
/// block 0        1          2        3          4
///       | data 0 | commit 0 | data 1 | commit 1 | home |
///
/// a commit: value u64, zeros, checksum of the block u64, and the value again in all sectors but the first
/// ```
#[derive(Clone, Copy)]
struct Journal {
    /// Flushes before it commits.
    orders: bool,
    /// Flushes after that.
    waits: bool,
    /// Looks at the checksum.
    checks: bool,
}

const SOUND: Journal = Journal {
    orders: true,
    waits: true,
    checks: true,
};

fn checksum(commit: &[u8]) -> u64 {
    u64::from(crc32c::crc32c(&commit[16..]))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn filled(value: u64, len: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(len / 8)
}

fn read(device: &dyn WritableDevice, block: usize) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    device.read_at((block * BLOCK) as u64, &mut bytes).unwrap();
    bytes
}

impl Journal {
    fn blank() -> Recorder {
        Recorder::new(&vec![0; 5 * BLOCK])
    }

    fn set(self, device: &dyn WritableDevice, value: u64) {
        let slot = (value % 2) * 2 * BLOCK as u64;
        device.write_at(slot, &filled(value, BLOCK)).unwrap();
        if self.orders {
            device.flush().unwrap();
        }
        let rest = [vec![0; 496], filled(value, BLOCK - 512)].concat();
        let head = [value, 0].map(u64::to_le_bytes).concat();
        let mut commit = [head, rest].concat();
        let sum = checksum(&commit) ^ value;
        commit[8..16].copy_from_slice(&sum.to_le_bytes());
        device.write_at(slot + BLOCK as u64, &commit).unwrap();
        if self.waits {
            device.flush().unwrap();
        }
    }

    /// The newest value that is committed.
    fn get(self, device: &dyn WritableDevice) -> Result<u64, String> {
        let slots = [0, 1].map(|slot| {
            let commit = read(device, 2 * slot + 1);
            let value = number(&commit);
            let is_sound = !self.checks || number(&commit[8..]) == checksum(&commit) ^ value;
            (if is_sound { value } else { 0 }, slot, commit)
        });
        let (value, slot, commit) = slots.into_iter().max().unwrap();
        if value == 0 {
            return Ok(0);
        }
        if read(device, 2 * slot) != filled(value, BLOCK) {
            return Err(format!("value {value} is committed without its data"));
        }
        if commit[512..] != filled(value, BLOCK - 512) {
            return Err(format!("half of a commit of value {value} was taken"));
        }
        Ok(value)
    }

    /// Brings the value home.
    fn recover(self, device: &dyn WritableDevice) {
        let value = self.get(device).unwrap();
        let home = filled(value, BLOCK);
        device.write_at(4 * BLOCK as u64, &home).unwrap();
        device.flush().unwrap();
    }

    /// Checks that what was promised is there, and nothing that nobody wrote.
    fn judge(self, state: &State) -> Result<(), String> {
        let value = self.get(&state.device())?;
        let noted = |word: &str| {
            let notes = state.marks().iter().rev();
            let mut values = notes.filter_map(|mark| mark.label.strip_prefix(word));
            values.next().map_or(0, |value| value.parse().unwrap())
        };
        let (kept, begun): (u64, u64) = (noted("kept "), noted("begun "));
        if (kept..=begun).contains(&value) {
            return Ok(());
        }
        Err(format!("value {value}, of {kept} kept and {begun} begun"))
    }

    /// Cuts the power everywhere while values are set.
    fn explore(self, plan: &Plan) -> Explored {
        let recorder = Self::blank();
        for value in 1..=4 {
            recorder.mark(format!("begun {value}"));
            self.set(&recorder, value);
            recorder.mark(format!("kept {value}"));
        }
        let recording = recorder.recording();
        let explored = recording.explore(plan, |state| self.judge(state));
        for failure in &explored.failures {
            // Its id, as it is printed, leads to the same state again.
            let id: StateId = failure.id.to_string().parse().unwrap();
            let again = self.judge(&recording.state(&id).unwrap());
            assert_eq!(again, Err(failure.message.clone()));
        }
        explored
    }

    /// Expects that the cuts find a fault.
    fn expect_fault(self, message: &str) {
        let explored = self.explore(&Plan::default());
        let is_found = |message: &str| {
            let mut failures = explored.failures.iter();
            failures.any(|failure| failure.message.contains(message))
        };
        assert!(is_found(message), "{explored}");
    }
}

#[test]
fn a_sound_journal_survives_all_cuts() {
    let explored = SOUND.explore(&Plan::default());
    explored.expect_none_failed();
    // Each of 8 blocks was torn at 7 places at the least.
    assert!(explored.states > 8 * 7, "{explored}");
}

#[test]
fn a_commit_that_overtakes_its_data_is_found() {
    let journal = Journal {
        orders: false,
        ..SOUND
    };
    journal.expect_fault("without its data");
}

#[test]
fn a_promise_without_a_flush_is_found() {
    let journal = Journal {
        waits: false,
        ..SOUND
    };
    journal.expect_fault("kept and");
}

#[test]
fn a_commit_that_is_taken_without_its_checksum_is_found() {
    let journal = Journal {
        checks: false,
        ..SOUND
    };
    journal.expect_fault("half of a commit");
    // It is torn writes that need the checksum here.
    let whole = Plan {
        tears: 0,
        ..Plan::default()
    };
    journal.explore(&whole).expect_none_failed();
}

#[test]
fn the_power_may_fail_again_during_recovery() {
    let recorder = Journal::blank();
    for value in 1..=3 {
        SOUND.set(&recorder, value);
    }
    let plan = Plan::default();
    let explored = recorder.recording().explore(&plan, |state| {
        let value = SOUND.get(&state.device())?;
        let again = state.recorder();
        SOUND.recover(&again);
        for state in again.recording().states(&plan) {
            let device = state.device();
            SOUND.recover(&device);
            if read(&device, 4) != filled(value, BLOCK) {
                return Err(format!("not home after {}", state.id()));
            }
        }
        Ok(())
    });
    explored.expect_none_failed();
}

#[test]
fn an_oracle_that_panics_says_which_state_it_was() {
    let recorder = Recorder::new(&[0; BLOCK]);
    recorder.write_at(0, &[1]).unwrap();
    let explored = recorder.recording().explore(&Plan::default(), |state| {
        assert_eq!(state.image()[0], 0, "a one");
        Ok(())
    });
    let text = explored.to_string();
    assert!(text.contains("replay with `prefix 1`: "), "{text}");
    assert!(text.contains("a one"), "{text}");
}

/// Operations at random on a small device of odd size: aligned and not, long and short.
fn random_workload(random: &mut Random, size: u64) -> Recorder {
    let recorder = Recorder::new(&anteros_tests::trees::noise(random.next(), size as usize));
    for number in 0..40u64 {
        let unit = [1, SECTOR_BYTES, BLOCK as u64][random.below(3) as usize];
        let offset = random.below(size / unit) * unit;
        let len = (1 + random.below(20 * SECTOR_BYTES / unit)) * unit;
        let len = len.min(size - offset);
        let data = anteros_tests::trees::noise(random.next(), len as usize);
        match random.below(9) {
            0..=1 => recorder.flush().unwrap(),
            2 => recorder.discard(offset, len).unwrap(),
            3 => {
                let (a, b) = data.split_at(data.len() / 2);
                let bufs = [a, b].map(IoSlice::new);
                recorder.write_vectored_at(offset, &bufs).unwrap();
            }
            _ => recorder.write_at(offset, &data).unwrap(),
        }
        if random.below(5) == 0 {
            recorder.mark(format!("note {number}"));
        }
    }
    recorder
}

/// Returns what the disk holds in a state, byte by byte.
fn plainly(base: &[u8], operations: &[Operation], id: &StateId) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let issued = operations[..id.prefix].iter().enumerate();
    for (number, operation) in issued.filter(|(number, _)| !id.lost.contains(number)) {
        let zeros;
        let (offset, data) = match operation {
            Operation::Write { offset, data } => (*offset, &data[..]),
            Operation::Discard { offset, len } => {
                zeros = vec![0; *len as usize];
                (*offset, &zeros[..])
            }
            Operation::Flush => continue,
        };
        let torn = id.torn.iter().find(|(torn, _)| *torn == number);
        for (at, &byte) in (offset..).zip(data) {
            let sector = (at / SECTOR_BYTES - offset / SECTOR_BYTES) as usize;
            if torn.is_none_or(|(_, arrived)| arrived.contains(&sector)) {
                bytes[at as usize] = byte;
            }
        }
    }
    bytes
}

#[test]
fn a_state_is_what_its_id_says() {
    const SIZE: u64 = 9 * BLOCK as u64 + 700;
    let plan = Plan {
        subsets_max: 16,
        samples: 8,
        tears: 2,
        seed: 3,
    };
    for seed in 0..12 {
        let mut random = Random(seed);
        let recorder = random_workload(&mut random, SIZE);
        let recording = recorder.recording();
        let base = recording.state(&StateId::default()).unwrap().image();
        let mut seen = BTreeSet::new();
        let (mut torn, mut lost) = (0, 0);
        for state in recording.states(&plan) {
            let id = state.id();
            let image = state.image();
            let operations = recording.operations();
            assert!(image == plainly(&base, operations, id), "seed {seed}: {id}");
            let again = recording.state(&id.to_string().parse().unwrap()).unwrap();
            assert!(again.image() == image, "seed {seed}: {id}");
            assert!(state.device().to_vec() == image, "seed {seed}: {id}");

            let issued = &operations[..id.prefix];
            let flushes = issued.iter().filter(|op| matches!(op, Operation::Flush));
            assert_eq!(state.flushes(), flushes.count(), "seed {seed}: {id}");
            let notes = recording.marks().iter();
            let notes: Vec<_> = notes.filter(|mark| mark.at <= id.prefix).cloned().collect();
            assert_eq!(state.marks(), notes, "seed {seed}: {id}");
            assert!(
                seen.insert((image, state.flushes(), notes.len())),
                "seed {seed}: {id} was there before"
            );
            torn += usize::from(!id.torn.is_empty());
            lost += usize::from(!id.lost.is_empty());
        }
        assert!(
            torn > 20 && lost > 20,
            "seed {seed}: {torn} torn, {lost} lost"
        );
        // What the workload itself has seen is the state in which all has arrived.
        let mut seen = vec![0; SIZE as usize];
        recorder.read_at(0, &mut seen).unwrap();
        let all = StateId::prefix(recording.operations().len());
        assert!(recording.state(&all).unwrap().image() == seen);
    }
}

#[test]
fn every_subset_of_a_small_epoch_is_there_and_of_no_other() {
    let recorder = Recorder::new(&[0; 10]);
    recorder.write_at(9, &[9]).unwrap();
    recorder.flush().unwrap();
    for at in 0..4 {
        recorder.write_at(at, &[1]).unwrap();
    }
    recorder.discard(9, 1).unwrap();
    recorder.mark("late");
    let recording = recorder.recording();
    let plan = Plan {
        subsets_max: 32,
        ..Plan::default()
    };
    let late = recording
        .states(&plan)
        .filter(|state| state.has_mark("late"));
    let late: BTreeSet<Vec<u8>> = late.map(|state| state.image()).collect();
    let expected = (0..32u8).map(|set| {
        let mut image: Vec<u8> = (0..10)
            .map(|at| u8::from(at < 4 && set >> at & 1 != 0))
            .collect();
        image[9] = if set & 16 == 0 { 9 } else { 0 };
        image
    });
    assert_eq!(late, expected.collect());

    // One less, and it is sampled; each loss, each operation alone and each cut are always there.
    let plan = Plan {
        subsets_max: 31,
        samples: 0,
        ..Plan::default()
    };
    let ids: Vec<_> = recording
        .states(&plan)
        .map(|state| state.id().to_string())
        .collect();
    for id in [
        "prefix 7 lost {3}",
        "prefix 7 lost {2-4,6}",
        "prefix 7 lost {4-6}",
    ] {
        // It may be known by another name.
        let state = recording.state(&id.parse().unwrap()).unwrap();
        let is_there = ids.iter().any(|other| {
            let other = recording.state(&other.parse().unwrap()).unwrap();
            other.image() == state.image() && other.has_mark("late")
        });
        assert!(is_there, "{id} of {ids:?}");
    }
}

#[test]
fn a_loss_is_looked_for_at_each_note() {
    // The note between the writes is the only one to tell that the first write should have been lasting.
    let recorder = Recorder::new(&[0; BLOCK]);
    recorder.write_at(0, &[1]).unwrap();
    recorder.mark("kept");
    recorder.mark("given up");
    recorder.write_at(0, &[0]).unwrap();
    recorder.mark("later");
    recorder.flush().unwrap();
    let recording = recorder.recording();
    let states = recording.states(&Plan::default());
    let lost = states.filter(|state| state.image()[0] == 0 && state.has_mark("kept"));
    let ids: Vec<_> = lost.map(|state| state.id().to_string()).collect();
    assert_eq!(ids, ["prefix 1 lost {0}", "prefix 2", "prefix 3"]);
}

#[test]
fn an_id_of_no_state_is_refused() {
    let recorder = Recorder::new(&[0; BLOCK]);
    recorder.write_at(0, &[1; 600]).unwrap();
    recorder.flush().unwrap();
    recorder.write_at(0, &[1; 600]).unwrap();
    recorder.write_at(0, &[1; 600]).unwrap();
    let recording = recorder.recording();
    for (id, why) in [
        ("prefix 5", "only 4 operations were recorded"),
        (
            "prefix 4 lost {0}",
            "only operations from 2 up to the prefix",
        ),
        (
            "prefix 3 lost {3}",
            "only operations from 2 up to the prefix",
        ),
        (
            "prefix 4 torn 3@{2}",
            "operation 3 of 2 sectors cannot be torn so",
        ),
        ("prefix 4 lost {3} torn 3@1", "cannot be torn so"),
        ("prefix 4 torn 3@1 torn 2@1", "must be in order"),
    ] {
        let error = recording.state(&id.parse().unwrap()).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with(id) && text.contains(why), "{text}");
    }
}

#[test]
fn states_of_a_large_device_share_what_they_have_in_common() {
    // Copies of all images would be terabytes.
    const SIZE: usize = 64 << 20;
    let recorder = Recorder::new(&vec![0; SIZE]);
    let mut random = Random(1);
    for _ in 0..300 {
        for _ in 0..4 {
            let block = random.below((SIZE / BLOCK) as u64);
            let data = filled(random.next(), BLOCK);
            recorder.write_at(block * BLOCK as u64, &data).unwrap();
        }
        recorder.flush().unwrap();
    }
    let recording = recorder.recording();
    let plan = Plan::default();
    let explored = recording.explore(&plan, |state| {
        let device = state.device();
        let mut block = [0; BLOCK];
        device.read_at(0, &mut block).map_err(|e| e.to_string())?;
        device.write_at(0, &block).map_err(|e| e.to_string())
    });
    explored.expect_none_failed();
    assert!(explored.states > 30_000, "{explored}");
    // Held all at once.
    let held: Vec<State> = recording.states(&plan).take(5000).collect();
    assert_eq!(held.len(), 5000);
}
