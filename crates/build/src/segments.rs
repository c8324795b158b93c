//! The content of an inode that no directory names, cut into segments.

/// Index entries of a packed index in front of the first pack of sixteen, behind an inode without attributes.
const FIRST_PACKS: usize = 6;
/// Index entries of a pack.
const PACK: usize = 16;

/// Content that grows at its end, and leaves in segments.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Content that is in no segment yet.
    rest: Vec<u8>,
    /// Bytes in front of it.
    before: u64,
    block_bytes: usize,
    segment_bytes: usize,
}

impl Segments {
    /// Segments of about so many bytes.
    pub fn new(segment_bytes: usize, block_bytes: u32) -> Self {
        let block_bytes = block_bytes as usize;
        Self {
            rest: Vec::new(),
            before: 0,
            block_bytes,
            segment_bytes: segment_bytes.next_multiple_of(PACK * block_bytes),
        }
    }

    /// Segments of content behind so many bytes, which are written elsewhere.
    pub fn behind(mut self, bytes: u64) -> Self {
        self.before = bytes;
        self
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.before + self.rest.len() as u64
    }

    /// Appends content, and tells where it lies.
    pub fn append(&mut self, content: &[u8]) -> u64 {
        let offset = self.size();
        self.rest.extend_from_slice(content);
        offset
    }

    /// Appends zeros up to a byte.
    pub fn pad_to(&mut self, end: u64) {
        self.rest.resize((end - self.before) as usize, 0);
    }

    /// Bytes in front of the first whole pack.
    fn first_packs(&self) -> usize {
        let (first, pack) = (FIRST_PACKS * self.block_bytes, PACK * self.block_bytes);
        match usize::try_from(self.before)
            .unwrap_or(usize::MAX)
            .checked_sub(first)
        {
            None => first - self.before as usize,
            Some(packs) => packs.next_multiple_of(pack) - packs,
        }
    }

    /// Takes out all that is left, with zeros behind it up to where the next segment may begin.
    pub fn cut(&mut self) -> Option<Vec<u8>> {
        if self.rest.is_empty() {
            return None;
        }
        let first = self.first_packs();
        let packs = self.rest.len().saturating_sub(first);
        let bytes = first + packs.next_multiple_of(PACK * self.block_bytes);
        let mut segment = std::mem::take(&mut self.rest);
        segment.resize(bytes, 0);
        self.before += bytes as u64;
        Some(segment)
    }

    /// Takes a segment out, if one is full, or if there will be no more: then whatever is left.
    ///
    /// Packed indexes have one block address for each pack. Where a segment begins, a pack does.
    pub fn take(&mut self, is_end: bool) -> Option<Vec<u8>> {
        let bytes = self.first_packs() + self.segment_bytes;
        let is_due = self.rest.len() >= bytes || is_end && !self.rest.is_empty();
        if !is_due {
            return None;
        }
        let behind = self.rest.split_off(bytes.min(self.rest.len()));
        let segment = std::mem::replace(&mut self.rest, behind);
        self.before += segment.len() as u64;
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_begin_where_packs_do() {
        let mut segments = Segments::new(20 * 4096, 4096);
        assert_eq!(segments.take(true), None);
        for n in 0..100 {
            assert_eq!(segments.append(&[n; 5000]), u64::from(n) * 5000);
        }
        let taken = std::iter::from_fn(|| segments.take(false));
        let lens: Vec<usize> = taken.map(|segment| segment.len() / 4096).collect();
        assert_eq!(lens, [38, 32, 32]);
        let rest = segments.take(true).unwrap();
        assert_eq!(rest.len(), 500_000 - (38 + 32 + 32) * 4096);
        assert_eq!((segments.size(), segments.take(true)), (500_000, None));
    }

    #[test]
    fn a_cut_lies_where_a_pack_begins() {
        let mut segments = Segments::new(20 * 4096, 4096);
        assert_eq!(segments.cut(), None);
        segments.append(&[1; 5000]);
        assert_eq!(segments.cut().unwrap().len(), 6 * 4096);
        assert_eq!(segments.append(&[2; 70_000]), 6 * 4096);
        let cut = segments.cut().unwrap();
        assert_eq!((cut.len(), cut[70_000]), (32 * 4096, 0));
        assert_eq!((segments.size(), segments.cut()), (38 * 4096, None));
    }
}
