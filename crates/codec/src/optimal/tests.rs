use super::*;
use crate::sequences::{
    DISTANCE_BYTES, LAST_LITERALS, MATCH_MIN, MATCH_START_MARGIN, last_cost, match_bytes,
};
use crate::tests::{Random, text};
use crate::{Algorithm, Decoder, Length, Params};

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
    let (mut total, mut bound) = (0, 0);
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
                consumed + 8 >= most,
                "{consumed} of {most} in {budget}: {:?}",
                String::from_utf8_lossy(&data)
            );
            total += consumed;
            bound += most;
        }
    }
    let missing = bound - total;
    assert!(missing * 500 <= bound, "{total} of {bound}");
}

#[test]
fn data_of_all_kinds_come_back() {
    let mut random = Random::new(5);
    let mut optimal = Optimal::new(64);
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

#[test]
fn what_was_encoded_before_changes_nothing() {
    let data = text(300_000);
    let mut used = Optimal::new(64);
    let mut out = vec![0; 4096];
    used.encode(&Random::new(1).bytes(5000), 0, 5000, &mut out);
    used.restart();
    let mut start = 0;
    while start < data.len() {
        let consumed = encode(&mut used, &data, start, 4096);
        let rest = &data[start..];
        assert_eq!(encode(&mut Optimal::new(64), rest, 0, 4096), consumed);
        start += consumed;
    }
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
    let consumed = encode(&mut Optimal::new(64), &data, 0, 65536);
    assert_eq!(consumed, data.len());
}
