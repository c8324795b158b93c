//! Bits in bytes, lowest bit of a byte first, padded to eight bytes.

/// A row of bits as it lies in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    /// Bits that are all clear.
    pub fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; Self::bytes_of(len)],
            len,
        }
    }

    /// Returns how many bytes so many bits take.
    pub const fn bytes_of(len: usize) -> usize {
        len.div_ceil(64) * 8
    }

    /// The bits in bytes that were stored; `None` if these are not as many as the bits take, or a bit behind
    /// the last one is set.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Option<Self> {
        if bytes.len() != Self::bytes_of(len) {
            return None;
        }
        let bits = Self {
            bytes: bytes.to_vec(),
            len,
        };
        let is_padded = (len..bytes.len() * 8).all(|index| !bits.bit(index));
        is_padded.then_some(bits)
    }

    /// As they are stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn bit(&self, index: usize) -> bool {
        self.bytes[index / 8] >> (index % 8) & 1 == 1
    }

    /// A bit.
    ///
    /// # Panics
    ///
    /// Beyond the last one, as the others.
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "bit {index} of {}", self.len);
        self.bit(index)
    }

    /// Of the two copies of a table that begins at `start`, of so many blocks each: where the copy of block `index` lies that
    /// counts.
    pub fn place(&self, start: u64, blocks: u32, index: u32) -> u64 {
        let copy = u64::from(self.get(index as usize)) * u64::from(blocks);
        start + copy + u64::from(index)
    }

    /// Sets a bit, or clears it.
    pub fn set(&mut self, index: usize, is_set: bool) {
        if self.get(index) != is_set {
            self.flip(index);
        }
    }

    /// Changes a bit.
    pub fn flip(&mut self, index: usize) {
        assert!(index < self.len, "bit {index} of {}", self.len);
        self.bytes[index / 8] ^= 1 << (index % 8);
    }

    /// Returns how many are set.
    pub fn count(&self) -> usize {
        let ones = self.bytes.iter().map(|byte| byte.count_ones() as usize);
        ones.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_lie_where_the_page_says() {
        let mut bits = Bits::new(67);
        bits.set(0, true);
        bits.flip(9);
        bits.set(66, true);
        bits.set(66, true);
        assert_eq!(
            bits.as_bytes(),
            [1, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!((bits.count(), bits.len()), (3, 67));
        assert!(bits.get(9) && !bits.get(8));
        assert_eq!(Bits::from_bytes(bits.as_bytes(), 67), Some(bits.clone()));
        bits.set(9, false);
        bits.flip(0);
        assert_eq!(bits.count(), 1);
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(Bits::from_bytes(&[0; 8], 65), None);
        assert_eq!(Bits::from_bytes(&[0; 16], 64), None);
        assert_eq!(Bits::from_bytes(&[0, 0, 0, 0, 0, 0, 0, 0x80], 63), None);
        assert!(Bits::from_bytes(&[], 0).is_some_and(|bits| bits.is_empty()));
    }
}
