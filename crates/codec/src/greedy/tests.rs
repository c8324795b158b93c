use std::ops::Range;

use super::*;
use crate::sequences;
use crate::tests::{Random, text};
use crate::{Algorithm, Decoder, Length, Params};

/// The plain way: all positions of the block are looked up in a map, which is made for it.
fn plain(block: &[u8], budget: u32) -> (Vec<Sequence>, Range<usize>) {
    let starts = (block.len() + 1).saturating_sub(MATCH_START_MARGIN);
    let mut last = vec![None; 1 << table::HASH_BITS];
    let slot = |at: usize| {
        let bytes = (0..5).map(|index| u64::from(block[at + index]) << (24 + 8 * index));
        (bytes.sum::<u64>().wrapping_mul(889_523_592_379) >> (64 - table::HASH_BITS)) as usize
    };
    let cost = |literals: usize| (1 + literals + (literals + 240) / 255) as u32;
    let mut sequences: Vec<Sequence> = Vec::new();
    let (mut literals, mut spent) = (0, 0);
    let (mut at, mut missed, mut first) = (1, 0_usize, 0);
    // A match, and the last five literals.
    while at < starts && spent + cost(at - literals) + 8 <= budget {
        let before: Option<usize> = last[slot(at)].replace(at);
        if missed % PATIENCE == 0 {
            let step = missed / PATIENCE + 1;
            first = (at + (PATIENCE - 1) * step).saturating_sub(65_535);
        }
        // What is not there or too far away counts as the first position that is not.
        let source = before.unwrap_or(0).max(first);
        if block[source..source + 4] != block[at..at + 4] {
            missed += 1;
            at += missed.div_ceil(PATIENCE);
            continue;
        }
        let mut back = 0;
        while at - back > literals
            && source > back
            && block[at - back - 1] == block[source - back - 1]
        {
            back += 1;
        }
        let (start, source) = (at - back, source - back);
        let end = (at..block.len() - 5).find(|end| block[*end] != block[source + end - start]);
        let longest = end.unwrap_or(block.len() - 5) - start;
        let fits = |len: &usize| {
            let rest = 5.max(12usize.saturating_sub(*len));
            let ext = (len + 236) / 255;
            spent + cost(start - literals) + 2 + ext as u32 + cost(rest) <= budget
        };
        let Some(len) = (4..=longest).rev().find(fits) else {
            break;
        };
        let distance = (start - source) as u16;
        sequences.push(Sequence {
            literals,
            start,
            len,
            distance,
        });
        spent += cost(start - literals) + 2 + ((len + 236) / 255) as u32;
        literals = start + len;
        if len < longest {
            break;
        }
        if literals < starts {
            for put in [at + 1, literals - 2, literals - 1] {
                last[slot(put)] = Some(put);
            }
        }
        (at, missed) = (literals, 0);
    }
    let end = (literals..block.len()).find(|end| spent + cost(end + 1 - literals) > budget);
    (sequences, literals..end.unwrap_or(block.len()))
}

/// Encodes a block, sees that it decodes, and that the plain way comes to the same one; the bytes it holds.
fn encode(greedy: &mut Greedy, data: &[u8], start: usize, budget: usize) -> usize {
    let mut out = vec![0; budget];
    let block = &data[start..];
    let Encoded { consumed, written } = greedy.encode(block, &mut out);
    let (sequences, last) = plain(block, budget as u32);
    assert_eq!(consumed, last.end, "at {start}, of {budget}");
    let mut plainly = vec![0; budget];
    let len = sequences::write(block, &sequences, last, &mut plainly);
    assert!(out[..written] == plainly[..len], "at {start}, of {budget}");
    if consumed > 0 {
        let mut content = vec![0; consumed];
        let params = Params::default();
        Decoder::new()
            .decode(
                Algorithm::Lz4,
                &params,
                &out[..written],
                &mut content,
                Length::Exact,
            )
            .expect("a valid block");
        assert!(content == block[..consumed], "at {start}, of {budget}");
    }
    consumed
}

/// Text, noise, runs of one byte and repeats by turns.
fn mixed(random: &mut Random, turns: usize, longest: usize) -> Vec<u8> {
    let mut mixed = Vec::new();
    for turn in 0..turns {
        let n = random.below(longest) + 1;
        match turn % 4 {
            0 => mixed.extend_from_slice(&text(n)),
            1 => mixed.extend_from_slice(&random.bytes(n)),
            2 => mixed.resize(mixed.len() + n, b'x'),
            _ => {
                let from = random.below(mixed.len());
                mixed.extend_from_within(from..(from + n).min(mixed.len()));
            }
        }
    }
    mixed
}

#[test]
fn blocks_are_those_of_the_plain_way() {
    let mut random = Random::new(11);
    for budget in [1, 8, 9, 16, 100, 270, 4096, 65536] {
        let mut greedy = Greedy::new();
        for longest in [40, 300, 20_000] {
            let data = mixed(&mut random, 20, longest);
            let mut start = 0;
            while start < data.len() && start < 100 * budget {
                start += encode(&mut greedy, &data, start, budget).max(1);
            }
        }
    }
}

/// Steps between positions grow as long as nothing is found, but no longer than a match reaches back.
#[test]
fn a_long_search_finds_nothing_out_of_reach() {
    let noise = Random::new(15).bytes(36 << 20);
    let mut out = vec![0; 37 << 20];
    let Encoded { consumed, written } = Greedy::new().encode(&noise, &mut out);
    assert_eq!(consumed, noise.len());
    assert!(written > consumed);
}

#[test]
fn ends_are_as_the_format_wants_them() {
    let mut random = Random::new(12);
    let mut greedy = Greedy::new();
    for len in 1..200 {
        let data = mixed(&mut random, 8, len.min(30));
        let data = &data[..len.min(data.len())];
        for budget in 1..len {
            encode(&mut greedy, data, 0, budget);
        }
    }
}

#[test]
fn blocks_end_anywhere_in_data_and_room() {
    let mut random = Random::new(14);
    let mut greedy = Greedy::new();
    for longest in [20, 100, 500] {
        let data = mixed(&mut random, 2500 / longest + 8, longest);
        for len in 1..data.len().min(700) {
            // As long as that and no longer, for tools that watch what is read and written beyond.
            let data = data[..len].to_vec();
            for budget in [1 + random.below(len), 40 + random.below(200), len + 20] {
                encode(&mut greedy, &data, 0, budget);
            }
        }
    }
}

#[test]
fn lengths_of_all_sizes_fit_or_do_not() {
    let mut random = Random::new(15);
    let mut greedy = Greedy::new();
    let noise = random.bytes(7000);
    for len in (4..24).chain(264..284) {
        for literals in (0..70).step_by(3) {
            // All of its first positions come into the table, and few of the last. A first match ends its literals.
            let mut data = noise[..6000].to_vec();
            data.extend_from_within(..20);
            data.extend_from_slice(&noise[6000..6000 + literals]);
            let from = [20, 5600][literals % 2] + random.below(20);
            data.extend_from_within(from..from + len);
            data.extend_from_slice(&noise[6100..]);
            for budget in [8192, 6020 + literals + random.below(60)] {
                encode(&mut greedy, &data, 0, budget);
            }
        }
    }
}

#[test]
fn distances_of_nearly_64_kib_are_found_and_longer_ones_are_not() {
    let mut greedy = Greedy::new();
    for distance in [65_470, 65_536, 65_600] {
        let mut data = b"a string of some bytes".to_vec();
        data.resize(distance, 9);
        data.extend_from_within(..22);
        data.extend_from_slice(&[7; 40]);
        encode(&mut greedy, &data, 0, 1 << 17);
        let (sequences, _) = plain(&data, 1 << 17);
        let found = sequences
            .iter()
            .any(|s| usize::from(s.distance) == distance && s.len == 22);
        assert_eq!(found, distance < 65_536, "{distance}");
    }
}

#[test]
fn what_was_encoded_before_changes_nothing() {
    let mut random = Random::new(13);
    let mut used = Greedy::new();
    for _ in 0..20 {
        let data = mixed(&mut random, 12, 5000);
        let mut start = 0;
        while start < data.len() {
            let mut blocks = [vec![0; 4096], vec![0; 4096]];
            let [one, other] = &mut blocks;
            let rest = &data[start..];
            let encoded = used.encode(rest, one);
            assert_eq!(Greedy::new().encode(rest, other), encoded);
            assert!(blocks[0] == blocks[1], "at {start}");
            start += encoded.consumed;
        }
    }
}

#[test]
fn the_table_is_cleared_when_its_positions_run_out() {
    let data = text(10_000);
    let mut greedy = Greedy::new();
    greedy.table.restart((1 << 30) - 5);
    for _ in 0..3 {
        encode(&mut greedy, &data, 0, 1000);
    }
    greedy.table.restart(1 << 30);
    assert_eq!(greedy.table.used(), 0);
}

#[test]
fn what_does_not_compress_is_hardly_looked_at() {
    let noise = Random::new(8).bytes(1 << 16);
    let mut greedy = Greedy::new();
    let mut out = vec![0; 4096];
    assert!(greedy.encode(&noise, &mut out).consumed <= 4096);
    let looked_at = greedy.table.used();
    assert!(looked_at < 1024, "{looked_at} positions");
}
