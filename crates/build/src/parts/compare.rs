//! Runs that may have occurred before are compared, and followed in both directions as far as the content is the same.

use super::cuts::Match;
use super::files::{File, Files};
use super::matches::Run;
use crate::Error;
use crate::look::Look;
use crate::source::OpenFile;

/// Bytes that are compared at once.
const STEP_BYTES: u64 = 64 << 10;

/// Beyond its ends a run is followed for so many average chunks: whatever has the next one finds that by itself.
const BEYOND_CHUNKS: u64 = 16;

/// Compares runs of one file with where they occurred first; runs that turn out to be one are one match.
pub(super) fn matches(
    look: &Look<'_>,
    files: &Files,
    average: u64,
    runs: &[Run],
) -> Result<Vec<Match>, Error> {
    let Some(file) = runs.first().map(|run| files.at(run.at)) else {
        return Ok(Vec::new());
    };
    let open = |file: File| look.source.open_file(look.tree, file.id);
    let mut source = (file, open(file)?);
    let mut pair = Pair::new(open(file)?);
    let mut found: Vec<Match> = Vec::new();
    for run in runs {
        look.check_cancelled()?;
        let origin = files.at(run.from);
        if origin != source.0 {
            let opened = open(origin)?;
            std::mem::replace(&mut source, (origin, opened))
                .1
                .finish()?;
        }
        let (at, from) = (run.at - file.start, run.from - origin.start);
        let end = (at + run.len + BEYOND_CHUNKS * average).min(file.size);
        let end = end.min(at + (origin.size - from));
        let last = found.last_mut();
        let done = last.as_ref().map_or(0, |last| last.at + last.len);
        if at + run.len <= done {
            continue;
        }
        let goes_on = |last: &&mut Match| {
            last.source == origin.id && last.at + from == last.from + at && at <= done
        };
        if let Some(last) = last.filter(goes_on) {
            last.len += pair.ahead(
                done,
                &source.1,
                from + (done - at),
                end.saturating_sub(done),
            )?;
            continue;
        }
        let back = (BEYOND_CHUNKS * average).min(at - done.min(at)).min(from);
        let ahead = pair.ahead(at, &source.1, from, end - at)?;
        let back = pair.back(at, &source.1, from, back)?;
        found.push(Match {
            node: file.id,
            at: at - back,
            source: origin.id,
            from: from - back,
            len: back + ahead,
        });
    }
    source.1.finish()?;
    pair.finish()?;
    Ok(found)
}

/// A file that is compared with others.
pub(crate) struct Pair<'a> {
    file: OpenFile<'a>,
    /// Reused from step to step.
    buffers: [Vec<u8>; 2],
}

impl<'a> Pair<'a> {
    pub fn new(file: OpenFile<'a>) -> Self {
        Self {
            file,
            buffers: Default::default(),
        }
    }

    /// Makes sure that the file has not changed meanwhile.
    pub fn finish(self) -> Result<(), Error> {
        self.file.finish()
    }

    /// Fills `bytes` from a byte of the file on.
    pub fn read_own(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.read(at, bytes)
    }

    /// The bytes that are the same from two places on, `limit` at most.
    pub fn ahead(
        &mut self,
        at: u64,
        other: &OpenFile<'_>,
        from: u64,
        limit: u64,
    ) -> Result<u64, Error> {
        by_steps(limit, STEP_BYTES, |same, len| {
            let [one, other] = self.read(at + same, other, from + same, len)?;
            Ok(match one == other {
                true => len,
                false => equal(one.iter(), other.iter()),
            })
        })
    }

    /// The bytes that are the same in front of two places, `limit` at most.
    pub fn back(
        &mut self,
        at: u64,
        other: &OpenFile<'_>,
        from: u64,
        limit: u64,
    ) -> Result<u64, Error> {
        by_steps(limit, STEP_BYTES, |same, len| {
            let before = same + len;
            let [one, other] = self.read(at - before, other, from - before, len)?;
            Ok(equal(one.iter().rev(), other.iter().rev()))
        })
    }

    fn read(
        &mut self,
        at: u64,
        other: &OpenFile<'_>,
        from: u64,
        len: u64,
    ) -> Result<[&[u8]; 2], Error> {
        let [one, two] = &mut self.buffers;
        one.resize(len as usize, 0);
        two.resize(len as usize, 0);
        self.file.read(at, one)?;
        other.read(from, two)?;
        Ok([one, two])
    }
}

/// Adds up the bytes that are the same, a step after the other, until one of them has fewer; `limit` at most. `same` compares so
/// many bytes behind those of the steps before.
pub(crate) fn by_steps(
    limit: u64,
    step_bytes: u64,
    mut same: impl FnMut(u64, u64) -> Result<u64, Error>,
) -> Result<u64, Error> {
    let mut all = 0;
    while all < limit {
        let len = step_bytes.min(limit - all);
        let found = same(all, len)?;
        all += found;
        if found < len {
            break;
        }
    }
    Ok(all)
}

/// The number of bytes before the first one that differs.
fn equal<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> u64 {
    one.zip(other)
        .take_while(|(one, other)| one == other)
        .count() as u64
}
