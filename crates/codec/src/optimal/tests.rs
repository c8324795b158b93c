use super::chains::Match;
use super::*;
use crate::sequences::{
    DISTANCE_BYTES, LAST_LITERALS, MATCH_MIN, MATCH_START_MARGIN, last_cost, match_bytes,
};
use crate::tests::{Random, text};
use crate::{Algorithm, Decoder, Effort, Length, Lz4Encoder, Params};

const NONE: u32 = u32::MAX / 2;

/// The plain way: all matches of all lengths.
struct Exhaustive {
    /// By position: the cheapest way that ends there with a match of so many bytes or more.
    ended: Vec<[u32; MATCH_START_MARGIN + 1]>,
}

impl Exhaustive {
    fn new(data: &[u8]) -> Self {
        let mut ended = vec![[NONE; MATCH_START_MARGIN + 1]; data.len() + 1];
        ended[0].fill(0);
        for q in 0..data.len() {
            let begun = (0..=q).map(|run| ended[run][0].saturating_add(last_cost(q - run)));
            let begun = begun.min().expect("one at least");
            let longest = (0..q).map(|source| {
                let same = data[q..].iter().zip(&data[source..]);
                same.take_while(|(one, other)| one == other).count()
            });
            for len in MATCH_MIN..=longest.max().unwrap_or(0) {
                let cost = begun + DISTANCE_BYTES + match_bytes(len);
                let ways = ended[q + len].iter_mut().take(len + 1);
                ways.for_each(|way| *way = cost.min(*way));
            }
        }
        Self { ended }
    }

    /// Returns the most input that a block of `budget` bytes can hold.
    fn most(&self, budget: u32) -> usize {
        let fits = |end: &usize| (0..=*end).any(|run| self.cost(run, *end) <= budget);
        (0..self.ended.len()).rev().find(fits).unwrap_or(0)
    }

    /// Returns the cost of a block up to `end` whose last literals begin at `run`.
    fn cost(&self, run: usize, end: usize) -> u32 {
        let literals = end - run;
        if run > 0 && literals < LAST_LITERALS {
            return NONE;
        }
        let way = self.ended[run][MATCH_START_MARGIN.saturating_sub(literals)];
        way.saturating_add(last_cost(literals))
    }
}

fn decoded(block: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let params = Params::default();
    Decoder::new()
        .decode(Algorithm::Lz4, &params, block, &mut out, Length::Exact)
        .expect("a valid block");
    out
}

/// Encodes a block and sees that it decodes; the bytes it holds.
fn encode(optimal: &mut Optimal, data: &[u8], start: usize, budget: usize) -> usize {
    let mut out = vec![0; budget];
    let Encoded { consumed, written } = optimal.encode(data, start, data.len(), &mut out);
    if consumed > 0 {
        let content = decoded(&out[..written], consumed);
        assert!(
            content == data[start..start + consumed],
            "at {start}, of {budget}"
        );
    }
    consumed
}

/// Strings of a small alphabet, with repeats.
fn repetitive(random: &mut Random, len: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < len {
        let n = random.below(40) + 1;
        if data.len() > n && random.below(3) == 0 {
            let from = random.below(data.len() - n);
            data.extend_from_within(from..from + n);
        } else {
            data.extend((0..n).map(|_| b"ab cdefgh"[random.below(9)]));
        }
    }
    data.truncate(len);
    data
}

#[test]
fn nothing_holds_more() {
    let mut random = Random::new(3);
    for _ in 0..60 {
        let len = random.below(600) + 1;
        let data = repetitive(&mut random, len);
        let exhaustive = Exhaustive::new(&data);
        for budget in [1, 2, 5, 12, 13, 20, 33, 64, 100, 270, 400] {
            let mut optimal = Optimal::new(1 << 12);
            let consumed = encode(&mut optimal, &data, 0, budget);
            let most = exhaustive.most(budget as u32);
            assert!(
                consumed <= most,
                "{consumed} of {most}: the yardstick is wrong"
            );
            assert!(
                consumed == most,
                "{consumed} of {most} in {budget}: {:?}",
                String::from_utf8_lossy(&data)
            );
        }
    }
}

/// Words in an order that is their own, some of them with a letter more.
fn phrases(len: usize) -> Vec<u8> {
    let mut random = Random::new(5);
    let words: Vec<Vec<u8>> = (0..600).map(|n| random.bytes(3 + n % 9)).collect();
    let mut data = Vec::new();
    while data.len() < len {
        let first = random.below(words.len() - 12);
        data.extend(words[first..first + 2 + random.below(10)].concat());
        let letters = random.below(2);
        data.extend(random.bytes(letters));
    }
    data.truncate(len);
    data
}

#[test]
fn liblz4_holds_no_more() {
    let mut random = Random::new(8);
    let kinds = [
        text(1 << 20),
        phrases(1 << 20),
        repetitive(&mut random, 1 << 20),
    ];
    for data in kinds {
        for budget in [4096, 16384, 65536] {
            let mut liblz4 = Lz4Encoder::new(Effort::High(12)).expect("a level");
            let (mut start, mut out) = (0, vec![0; budget]);
            while start < data.len() - budget {
                let theirs = liblz4.encode(&data[start..], &mut out).expect("it shrinks");
                let mut optimal = Optimal::new(1 << 14);
                let ours = encode(&mut optimal, &data, start, budget);
                assert!(
                    ours >= theirs.consumed,
                    "at {start}: {ours}, theirs {}",
                    theirs.consumed
                );
                start += theirs.consumed;
            }
        }
    }
}

#[test]
fn data_of_all_kinds_come_back() {
    let mut random = Random::new(5);
    let mut mixed = Vec::new();
    for turn in 0..40 {
        let n = random.below(30_000) + 1;
        match turn % 5 {
            0 => mixed.extend_from_slice(&text(n)),
            1 => mixed.extend_from_slice(&random.bytes(n)),
            2 => mixed.resize(mixed.len() + n, b'x'),
            3 => mixed.extend(repetitive(&mut random, n)),
            _ => {
                let from = random.below(mixed.len());
                mixed.extend_from_within(from..(from + n).min(mixed.len()));
            }
        }
    }
    for mut optimal in [Optimal::new(64), Optimal::lazy(64)] {
        for budget in [16, 100, 4096, 65536, 1 << 20] {
            optimal.restart();
            let mut start = 0;
            while start < mixed.len() {
                let consumed = encode(&mut optimal, &mixed, start, budget);
                assert!(consumed > 0);
                start += consumed;
            }
        }
    }
}

#[test]
fn what_was_encoded_before_changes_nothing() {
    let data = text(150_000);
    for new in [Optimal::new, Optimal::lazy] {
        let mut used = new(64);
        let mut out = vec![0; 4096];
        used.encode(&Random::new(1).bytes(5000), 0, 5000, &mut out);
        used.restart();
        let mut start = 0;
        while start < data.len() {
            let consumed = encode(&mut used, &data, start, 4096);
            let rest = &data[start..];
            assert_eq!(encode(&mut new(64), rest, 0, 4096), consumed);
            start += consumed;
        }
    }
}

#[test]
fn the_lazy_way_comes_nearly_as_far() {
    let mut random = Random::new(21);
    let (mut total, mut bound) = (0, 0);
    for _ in 0..40 {
        let len = random.below(600) + 1;
        let data = repetitive(&mut random, len);
        let exhaustive = Exhaustive::new(&data);
        for budget in [1, 2, 5, 12, 13, 20, 33, 64, 100, 270, 400] {
            let consumed = encode(&mut Optimal::lazy(1 << 12), &data, 0, budget);
            let most = exhaustive.most(budget as u32);
            assert!(
                consumed <= most,
                "{consumed} of {most}: the yardstick is wrong"
            );
            total += consumed;
            bound += most;
        }
    }
    assert!(total * 100 >= bound * 95, "{total} of {bound}");
}

#[test]
fn data_that_shrink_to_a_third_are_parsed_optimally() {
    let data = phrases(600_000);
    let lazy = encode(&mut Optimal::lazy(32), &data, 0, 65536);
    let optimal = encode(&mut Optimal::new(32), &data, 0, 65536);
    assert!(optimal >= 3 * 65536, "the data are not dense: {optimal}");
    assert!(lazy * 10_000 >= optimal * 9995, "{lazy} of {optimal}");
}

/// The plain way: the longest match that has the four bytes at `at`, begins from `low` on, and is longer.
fn widest(
    data: &[u8],
    (start, low, at, end): (usize, usize, usize, usize),
    longest: usize,
) -> Option<usize> {
    let lens = (start..at).filter_map(|candidate| {
        let same = |(one, other): &(&u8, &u8)| one == other;
        let ahead = data[at..end].iter().zip(&data[candidate..]);
        let ahead = ahead.take_while(same).count();
        let back = data[low..at].iter().rev();
        let back = back.zip(data[start..candidate].iter().rev());
        (ahead >= MATCH_MIN).then(|| ahead + back.take_while(same).count())
    });
    lens.filter(|len| *len > longest).max()
}

#[test]
fn the_widest_match_is_found() {
    let mut random = Random::new(22);
    let depth = Depth {
        candidates: 1 << 12,
        shortest: 0,
        nice: 4096,
    };
    let (mut found, mut missed) = (0, 0);
    for _ in 0..40 {
        let data = repetitive(&mut random, 800);
        let mut chains = Chains::new();
        chains.insert_to(&data, data.len());
        for _ in 0..100 {
            let end = data.len() - random.below(20);
            let at = random.below(end - 4);
            let (low, start) = (at - random.below(at.min(30) + 1), random.below(at + 1));
            let low = low.max(start);
            let longest = 3 + random.below(20);
            let places = (start, low, at, end);
            let wider = chains.wider(&data, places, depth, longest);
            let plain = widest(&data, places, longest);
            if let Some((back, Match { len, distance })) = wider {
                let first = at - back;
                assert!(first >= low && first - distance >= start && first + len <= end);
                assert_eq!(
                    data[first..first + len],
                    data[first - distance..][..len],
                    "a match"
                );
                assert!(len > longest && Some(len) <= plain);
                found += 1;
            }
            missed += usize::from(wider.map(|(_, found)| found.len) != plain);
        }
    }
    // A chain is left for another one as soon as that leads further, which may pass by a match that reaches further back.
    assert!(found > 200 && missed * 20 <= found, "{missed}, {found}");
}

#[test]
fn long_repeats_take_the_budget_and_no_more() {
    let data = vec![0; 3_000_000];
    for budget in [7, 8, 30, 4096] {
        let consumed = encode(&mut Optimal::new(64), &data, 0, budget);
        assert!(
            consumed > 250 * budget.saturating_sub(12),
            "{consumed} of {budget}"
        );
    }
    for new in [Optimal::new, Optimal::lazy] {
        let consumed = encode(&mut new(64), &data, 0, 65536);
        assert_eq!(consumed, data.len());
    }
}
