//! As much input as fits into a budget, by compressors that take their input as a whole.
//!
//! The output grows with the input, nearly in proportion. So the input that fills the budget is the
//! root of a function, and a secant finds it: a line through the last two outputs. The search stays
//! between the longest input that fits and the shortest that does not. It begins with the input of
//! the last budget. The longer it takes, the more of the budget may stay empty.
//!
//! A thorough compressor has a quick one beside it as its ruler. The measure of an input is its
//! length after the quick one. In that measure the outputs of the thorough one lie on a line more
//! nearly, and it is called less often.

use std::ops::RangeInclusive;

use crate::{EncodeError, Encoded};

/// The share of a budget that may stay empty after one call, two, and so on; as reciprocals.
type EmptyShares = [usize; 8];
/// Shares where whole blocks are stored, whatever is in them.
const TIGHT: EmptyShares = [512, 512, 256, 128, 64, 48, 32, 16];
/// Shares where a call takes next to no time.
const CHEAP: EmptyShares = [512, 512, 512, 512, 256, 128, 64, 32];
/// Shares where nothing is stored for what stays empty.
const LOOSE: EmptyShares = [4; 8];
/// Bytes that may stay empty in any case.
const EMPTY_MIN: usize = 8;
/// The ratio to begin with.
const FIRST_RATIO: usize = 3;
/// An output this many times as long as the budget is given up: it says too little.
const OVERSHOOT_MAX: usize = 4;
/// Room beyond that for the headers of tiny budgets.
const OVERSHOOT_MIN: usize = 256;
/// A length by the ruler is found within this share of it, or by so many more calls.
const RULER_SHARE: usize = 256;
const RULER_CALLS_MAX: usize = 3;

/// A compressor that takes its input as a whole.
pub(crate) trait Whole {
    /// Tells whether the front of an input that was compressed before takes little time.
    const FRONTS_ARE_CHEAP: bool = false;

    /// Compresses all of `input` to the front of `out`, and says how long that is; `None` when there is no room.
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError>;
}

/// A length of input, the same in the ruler's measure, and that of the output it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Point {
    input: usize,
    measure: usize,
    output: usize,
}

/// Memory from one budget to the next.
#[derive(Debug)]
pub(crate) struct Secant {
    shares: EmptyShares,
    /// The last budget that was filled.
    last: Option<Point>,
    scratch: Vec<u8>,
    marks: Marks,
}

/// One search: the longest input that fits, and the shortest that does not.
#[derive(Debug, Default)]
struct Bracket {
    fits: Point,
    too_long: Option<Point>,
    /// The last two that were tried.
    before: Point,
    tried: Point,
}

impl Default for Secant {
    fn default() -> Self {
        Self {
            shares: TIGHT,
            last: None,
            scratch: Vec::new(),
            marks: Marks::default(),
        }
    }
}

impl Secant {
    /// Leaves more of a budget empty, and needs fewer calls.
    pub fn loosen(&mut self) {
        self.shares = LOOSE;
    }

    /// Leaves less of a budget empty, for calls that take little time.
    pub fn tighten(&mut self) {
        self.shares = CHEAP;
    }

    /// Returns whether the first call that fits is mostly the last one.
    pub fn is_loose(&self) -> bool {
        self.shares == LOOSE
    }

    /// Forgets what came before.
    pub fn restart(&mut self) {
        self.last = None;
    }

    /// Compresses as much of the front of `input` as fits into `out`. Nothing is consumed when nothing fits, or when
    /// nothing would be gained.
    pub fn encode<C: Whole>(
        &mut self,
        input: &[u8],
        out: &mut [u8],
        compressor: &mut C,
        mut ruler: Option<&mut impl Whole>,
    ) -> Result<Encoded, EncodeError> {
        let budget = out.len();
        let room = budget.saturating_mul(OVERSHOOT_MAX) + OVERSHOOT_MIN;
        self.scratch.resize(room, 0);
        self.marks.restart(self.last);
        let mut bracket = Bracket::default();
        let shares = self.shares;
        let middle = budget - budget / shares[0] / 2;
        let mut wanted = self.first(middle, ruler.is_some());
        let mut ruled = None;
        if C::FRONTS_ARE_CHEAP && ruler.is_some() {
            // One look at the ruler is enough, for the first call. Later ones are as quick as a look.
            let (len, measure) = self.cut(input, wanted, 1..=input.len(), ruler.take())?;
            ruled = Some((len, measure));
            wanted = len;
        }
        for share in shares {
            let (least, most) = bracket.between(input.len());
            if least > most {
                break;
            }
            let (next, measure) = self.cut(input, wanted, least..=most, ruler.as_deref_mut())?;
            let aim = budget - (budget / share).max(EMPTY_MIN).min(budget / 2);
            let output = compressor.encode(&input[..next], &mut self.scratch)?;
            let point = |output| Point {
                input: next,
                measure,
                output,
            };
            match output {
                Some(output) if output <= budget => {
                    out[..output].copy_from_slice(&self.scratch[..output]);
                    bracket.fits(point(output));
                    if output >= aim {
                        break;
                    }
                }
                // What does not shrink in a budget and more does not shrink.
                Some(output) if output >= next => break,
                Some(output) => bracket.too_long(point(output)),
                None => bracket.too_long(point(room)),
            }
            wanted = bracket.next((aim + budget) / 2);
        }
        let fits = bracket.fits;
        if fits.output > 0 {
            let measure = ruled.map_or(fits.measure, |(len, measure)| {
                scaled(measure, fits.input, len)
            });
            self.last = Some(Point { measure, ..fits });
        }
        Ok(Encoded {
            consumed: fits.input,
            written: fits.output,
        })
    }

    /// The length of input of a measure, within a range, and its measure. Without a ruler these are the same.
    fn cut(
        &mut self,
        input: &[u8],
        wanted: usize,
        range: RangeInclusive<usize>,
        ruler: Option<&mut impl Whole>,
    ) -> Result<(usize, usize), EncodeError> {
        let (least, most) = range.into_inner();
        Ok(match ruler {
            Some(ruler) => {
                let (len, measure) = self.marks.cut(input, wanted, ruler, &mut self.scratch)?;
                (len.clamp(least, most), measure)
            }
            None => {
                let len = wanted.clamp(least, most);
                (len, len)
            }
        })
    }

    /// The measure to begin with.
    fn first(&self, budget: usize, has_ruler: bool) -> usize {
        match self.last {
            Some(last) => scaled(last.measure, budget, last.output),
            None if has_ruler => budget,
            None => budget.saturating_mul(FIRST_RATIO),
        }
    }
}

impl Bracket {
    fn fits(&mut self, point: Point) {
        self.fits = point;
        self.note(point);
    }

    fn too_long(&mut self, point: Point) {
        self.too_long = Some(point);
        self.note(point);
    }

    fn note(&mut self, point: Point) {
        self.before = self.tried;
        self.tried = point;
    }

    /// The shortest input and the longest that are worth a try.
    fn between(&self, all: usize) -> (usize, usize) {
        let most = self.too_long.map_or(all, |point| point.input - 1);
        (self.fits.input + 1, most)
    }

    /// The measure to try next for an output as long as wanted.
    fn next(&self, wanted: usize) -> usize {
        let next = along(self.before, self.tried, wanted);
        match self.too_long {
            // The line through the last two leads out of what is possible; that between the ends does not.
            Some(end) if next <= self.fits.measure || next >= end.measure => {
                along(self.fits, end, wanted)
            }
            _ => next,
        }
    }
}

/// The measure whose output is as long as wanted, on the line through two points.
fn along(one: Point, other: Point, wanted: usize) -> usize {
    let run = other.measure.abs_diff(one.measure);
    let rise = other.output.abs_diff(one.output);
    let distance = scaled(run, wanted.abs_diff(other.output), rise);
    match other.output <= wanted {
        true => other.measure.saturating_add(distance),
        false => other.measure.saturating_sub(distance),
    }
}

/// `length` times `wanted` over `found`.
fn scaled(length: usize, wanted: usize, found: usize) -> usize {
    let scaled = length as u128 * wanted as u128 / found.max(1) as u128;
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

/// The marks on the ruler: lengths of input in ascending order, and what the quick compressor makes of them.
#[derive(Debug, Default)]
struct Marks {
    marks: Vec<(usize, usize)>,
    /// A length and its measure to begin with.
    first: (usize, usize),
}

impl Marks {
    fn restart(&mut self, last: Option<Point>) {
        self.marks.clear();
        self.marks.push((0, 0));
        self.first = last.map_or((FIRST_RATIO, 1), |last| (last.input, last.measure));
    }

    /// The length of input that measures about as much as wanted, and what it measures.
    fn cut(
        &mut self,
        input: &[u8],
        wanted: usize,
        ruler: &mut impl Whole,
        scratch: &mut [u8],
    ) -> Result<(usize, usize), EncodeError> {
        for _ in 0..RULER_CALLS_MAX {
            let next = self.guess(wanted).min(input.len());
            let at = match self.marks.binary_search_by_key(&next, |mark| mark.0) {
                Ok(_) => break,
                Err(at) => at,
            };
            let measure = ruler
                .encode(&input[..next], scratch)?
                .unwrap_or(scratch.len());
            // Marks ascend; a quick compressor may stumble.
            let before = self.marks[at - 1].1;
            let behind = self.marks.get(at).map_or(usize::MAX, |mark| mark.1);
            self.marks
                .insert(at, (next, measure.clamp(before.min(behind), behind)));
            if measure.abs_diff(wanted) <= wanted / RULER_SHARE {
                break;
            }
        }
        let nearest = self.marks.iter().min_by_key(|mark| mark.1.abs_diff(wanted));
        Ok(*nearest.expect("there is the first one"))
    }

    /// The length that measures as much as wanted, on the line through the marks around it, or the last two.
    fn guess(&self, wanted: usize) -> usize {
        let behind = self.marks.partition_point(|mark| mark.1 < wanted);
        let at = behind.clamp(1, self.marks.len().saturating_sub(1).max(1));
        match (self.marks.get(at - 1), self.marks.get(at)) {
            (Some(&(start, low)), Some(&(end, high))) => {
                let distance = scaled(end - start, wanted.saturating_sub(low), high - low);
                start.saturating_add(distance)
            }
            _ => scaled(self.first.0, wanted, self.first.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;
    use crate::tests::Random;

    /// Takes a byte of output for each hundred of its input's values, and counts its calls.
    #[derive(Default)]
    struct Costs {
        calls: u32,
        /// Hundredths that each byte takes on top.
        more: usize,
    }

    impl Whole for Costs {
        fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, EncodeError> {
            self.calls += 1;
            let costs = input.iter().map(|&cost| usize::from(cost) + self.more);
            let cost = 10 + costs.sum::<usize>() / 100;
            let Some(room) = out.get_mut(..cost) else {
                return Ok(None);
            };
            room.fill(1);
            Ok(Some(cost))
        }
    }

    /// Has never room, or no memory.
    struct Broken(Result<(), EncodeError>);

    impl Whole for Broken {
        fn encode(&mut self, _: &[u8], _: &mut [u8]) -> Result<Option<usize>, EncodeError> {
            self.0.map(|()| None)
        }
    }

    const NO_RULER: Option<&mut Costs> = None;

    /// Encodes by a cost of each byte, and counts the calls.
    fn encode(costs: &[u8], budget: usize, secant: &mut Secant) -> (Encoded, u32) {
        encode_by(NO_RULER, costs, budget, secant)
    }

    fn encode_by(
        ruler: Option<&mut Costs>,
        costs: &[u8],
        budget: usize,
        secant: &mut Secant,
    ) -> (Encoded, u32) {
        let mut compressor = Costs::default();
        let mut out = vec![0; budget];
        let encoded = secant.encode(costs, &mut out, &mut compressor, ruler);
        let encoded = encoded.unwrap();
        assert!(out[..encoded.written].iter().all(|&byte| byte == 1));
        (encoded, compressor.calls)
    }

    #[test]
    fn budgets_are_filled_in_few_calls() {
        let even = vec![30; 1 << 20];
        let mixed: Vec<u8> = (0..1 << 20)
            .map(|at: usize| (at / 3000 % 7 * 13 + 5) as u8)
            .collect();
        for costs in [&even, &mixed] {
            let mut secant = Secant::default();
            let (mut at, mut calls, mut budgets) = (0, 0, 0);
            while costs.len() - at > 300_000 {
                let (encoded, needed) = encode(&costs[at..], 16 << 10, &mut secant);
                assert!(encoded.written > (16 << 10) - 256, "{encoded:?}");
                at += encoded.consumed;
                (calls, budgets) = (calls + needed, budgets + 1);
            }
            assert!(calls <= 4 * budgets, "{calls} for {budgets}");
        }
    }

    #[test]
    fn a_loose_search_takes_fewer_calls_and_leaves_little() {
        let mut random = Random::new(3);
        let costs: Vec<u8> = std::iter::repeat_with(|| 25 + random.below(10) as u8)
            .flat_map(|cost| std::iter::repeat_n(cost, 5000))
            .take(2 << 20)
            .collect();
        let budget = 16 << 10;
        let calls = |mut secant: Secant| {
            let (mut at, mut calls, mut budgets) = (0, 0, 0);
            while costs.len() - at > 300_000 {
                let (encoded, needed) = encode(&costs[at..], budget, &mut secant);
                assert!(encoded.written >= budget - budget / 4, "{encoded:?}");
                at += encoded.consumed;
                (calls, budgets) = (calls + needed, budgets + 1);
            }
            (calls, budgets)
        };
        let (tight, _) = calls(Secant::default());
        let mut loose = Secant::default();
        loose.loosen();
        let (loose, budgets) = calls(loose);
        assert!(
            loose < tight && loose * 10 <= budgets * 11,
            "{loose}, {tight} for {budgets}"
        );
    }

    #[test]
    fn the_end_is_taken_as_a_whole() {
        let (encoded, calls) = encode(&[30; 5000], 4096, &mut Secant::default());
        assert_eq!((encoded.consumed, encoded.written, calls), (5000, 1510, 1));
        let (encoded, _) = encode(&[30; 1], 4096, &mut Secant::default());
        assert_eq!(encoded.consumed, 1);
        let (encoded, calls) = encode(&[], 4096, &mut Secant::default());
        assert_eq!((encoded.consumed, calls), (0, 0));
    }

    #[test]
    fn what_does_not_shrink_takes_one_call() {
        let (encoded, calls) = encode(&[101; 100_000], 4096, &mut Secant::default());
        assert_eq!((encoded, calls), (Encoded::default(), 1));
    }

    #[test]
    fn tiny_budgets_and_failures_are_survived() {
        for budget in 0..40 {
            let (encoded, _) = encode(&[30; 1000], budget, &mut Secant::default());
            assert!(encoded.written <= budget);
        }
        let mut out = [0; 100];
        let encode = |broken, out: &mut [u8]| {
            Secant::default().encode(&[0; 1000], out, &mut Broken(broken), NO_RULER)
        };
        assert_eq!(encode(Ok(()), &mut out), Ok(Encoded::default()));
        assert!(encode(Err(EncodeError::OutOfMemory(Algorithm::Zstd)), &mut out).is_err());
    }

    #[test]
    fn a_ruler_spares_calls() {
        let mut random = Random::new(5);
        let costs: Vec<u8> = std::iter::repeat_with(|| (random.below(90), random.below(4000)))
            .flat_map(|(cost, run)| std::iter::repeat_n(cost as u8, run))
            .take(1 << 20)
            .collect();
        let fill = |mut ruler: Option<Costs>| {
            let mut secant = Secant::default();
            let (mut at, mut calls, mut budgets) = (0, 0, 0);
            while costs.len() - at > 300_000 {
                let ruler = ruler.as_mut();
                let (encoded, needed) = encode_by(ruler, &costs[at..], 16 << 10, &mut secant);
                assert!(encoded.written > (16 << 10) / 20 * 19, "{encoded:?}");
                at += encoded.consumed;
                (calls, budgets) = (calls + needed, budgets + 1);
            }
            (calls, budgets)
        };
        let (without, _) = fill(None);
        let (with, budgets) = fill(Some(Costs { calls: 0, more: 5 }));
        assert!(
            with < without && with <= 3 * budgets,
            "{with} and {without} for {budgets}"
        );
    }

    #[test]
    fn a_much_better_ratio_before_is_forgotten_quickly() {
        let mut costs = vec![0; 1 << 20];
        costs.extend(vec![60; 1 << 20]);
        let mut secant = Secant::default();
        let (_, calls) = encode(&costs[..1 << 20], 4096, &mut secant);
        assert!(calls <= 8);
        let (encoded, calls) = encode(&costs[1 << 20..], 4096, &mut secant);
        assert!(
            encoded.written > 4000 && calls <= 8,
            "{encoded:?} in {calls}"
        );
    }
}
