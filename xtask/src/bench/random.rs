//! Numbers that look random.

/// The state from which the first one's numbers follow.
const SEED: u64 = 0x616e_7465_726f_7321;

/// Numbers that look random and are the same each time (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one of several who want some.
    pub(crate) fn new(who: u64) -> Self {
        Self(SEED ^ who.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next number, below a bound that is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}
