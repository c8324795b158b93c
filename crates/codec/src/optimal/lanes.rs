//! The costs of the next sixteen positions, in one register.
//!
//! Unsafe are the calls of SSE2, which every x86-64 has; other processors get arrays.

/// A cost further above the base than this moves the base.
const SPAN: u32 = 128;
/// So far above the base lies the current cost then. Costs that still matter are not lower by more than that.
const SLACK: u32 = 28;

/// Costs of sixteen positions.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    /// Relative to the base; 255 is none.
    costs: Bytes,
    base: u32,
}

impl Lanes {
    /// None of the positions has a cost.
    pub fn new(base: u32) -> Self {
        Self {
            costs: Bytes::splat(u8::MAX),
            base,
        }
    }

    /// Returns the cost of the first position, if it has one.
    #[inline(always)]
    pub fn first(&self) -> Option<u32> {
        let first = self.costs.first();
        (first != u8::MAX).then(|| self.base + u32::from(first))
    }

    /// Returns the cost of the second position; one without a cost has a high one.
    #[inline(always)]
    pub fn second(&self) -> u32 {
        match self.costs.shifted().first() {
            u8::MAX => u32::MAX,
            second => self.base + u32::from(second),
        }
    }

    /// Lowers the costs of so many positions behind the first, fifteen at most, to `cost`.
    #[inline(always)]
    pub fn relax(&mut self, cost: u32, positions: usize) {
        let mut above = cost.saturating_sub(self.base);
        if above > SPAN {
            let by = above - SLACK;
            self.costs = self.costs.lowered(by.min(u8::MAX.into()) as u8);
            self.base += by;
            above = SLACK;
        }
        let ways = Bytes::splat(above as u8).or(Bytes::from(MASKS[positions]));
        self.costs = self.costs.min(ways);
    }

    /// Goes on to the next position.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.costs = self.costs.shifted();
    }
}

/// By number of positions: zero in the lanes from 1 on, and none in the others.
static MASKS: [[u8; 16]; 16] = {
    let mut masks = [[u8::MAX; 16]; 16];
    let mut positions = 0;
    while positions < 16 {
        let mut lane = 1;
        while lane <= positions {
            masks[positions][lane] = 0;
            lane += 1;
        }
        positions += 1;
    }
    masks
};

#[cfg(target_arch = "x86_64")]
use sse2::Bytes;

#[cfg(not(target_arch = "x86_64"))]
use arrays::Bytes;

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // Newer compilers hold these calls for safe.
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_min_epu8, _mm_or_si128,
        _mm_set1_epi8, _mm_slli_si128, _mm_srli_si128, _mm_subs_epu8,
    };

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub struct Bytes(__m128i);

    // SAFETY, for all below: SSE2 is part of x86-64.
    impl Bytes {
        #[inline(always)]
        pub fn splat(byte: u8) -> Self {
            // SAFETY: see above.
            Self(unsafe { _mm_set1_epi8(byte as i8) })
        }

        #[inline(always)]
        pub fn from(bytes: [u8; 16]) -> Self {
            // SAFETY: see above; there are sixteen bytes, at any address.
            Self(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
        }

        #[inline(always)]
        pub fn first(self) -> u8 {
            // SAFETY: see above.
            unsafe { _mm_cvtsi128_si32(self.0) as u8 }
        }

        #[inline(always)]
        pub fn or(self, other: Self) -> Self {
            // SAFETY: see above.
            Self(unsafe { _mm_or_si128(self.0, other.0) })
        }

        #[inline(always)]
        pub fn min(self, other: Self) -> Self {
            // SAFETY: see above.
            Self(unsafe { _mm_min_epu8(self.0, other.0) })
        }

        /// The bytes without the first, and 255 behind them.
        #[inline(always)]
        pub fn shifted(self) -> Self {
            // SAFETY: see above.
            unsafe {
                let last = _mm_slli_si128::<15>(_mm_set1_epi8(-1));
                Self(_mm_or_si128(_mm_srli_si128::<1>(self.0), last))
            }
        }

        /// Each byte less `by`, or 0; 255 stays what it is.
        #[inline(always)]
        pub fn lowered(self, by: u8) -> Self {
            // SAFETY: see above.
            unsafe {
                let none = _mm_cmpeq_epi8(self.0, _mm_set1_epi8(-1));
                Self(_mm_or_si128(_mm_subs_epu8(self.0, Self::splat(by).0), none))
            }
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod arrays {
    use std::array;

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub struct Bytes([u8; 16]);

    impl Bytes {
        pub fn splat(byte: u8) -> Self {
            Self([byte; 16])
        }

        pub fn from(bytes: [u8; 16]) -> Self {
            Self(bytes)
        }

        pub fn first(self) -> u8 {
            self.0[0]
        }

        pub fn or(self, other: Self) -> Self {
            Self(array::from_fn(|lane| self.0[lane] | other.0[lane]))
        }

        pub fn min(self, other: Self) -> Self {
            Self(array::from_fn(|lane| self.0[lane].min(other.0[lane])))
        }

        /// The bytes without the first, and 255 behind them.
        pub fn shifted(self) -> Self {
            Self(array::from_fn(|lane| {
                *self.0.get(lane + 1).unwrap_or(&u8::MAX)
            }))
        }

        /// Each byte less `by`, or 0; 255 stays what it is.
        pub fn lowered(self, by: u8) -> Self {
            Self(self.0.map(|byte| match byte {
                u8::MAX => u8::MAX,
                byte => byte.saturating_sub(by),
            }))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{arrays, sse2};
    use crate::tests::Random;

    #[test]
    fn registers_do_what_arrays_do() {
        let mut random = Random::new(9);
        let (mut one, mut other) = (sse2::Bytes::splat(255), arrays::Bytes::splat(255));
        for _ in 0..1000 {
            let bytes: [u8; 16] = random.bytes(16).try_into().expect("sixteen");
            let by = random.next() as u8;
            (one, other) = match random.below(4) {
                0 => (
                    one.or(sse2::Bytes::from(bytes)),
                    other.or(arrays::Bytes::from(bytes)),
                ),
                1 => (
                    one.min(sse2::Bytes::from(bytes)),
                    other.min(arrays::Bytes::from(bytes)),
                ),
                2 => (one.shifted(), other.shifted()),
                _ => (one.lowered(by), other.lowered(by)),
            };
            let (mut left, mut right) = (one, other);
            for _ in 0..16 {
                assert_eq!(left.first(), right.first());
                (left, right) = (left.shifted(), right.shifted());
            }
        }
    }
}
