//! The name of a state: enough to make it again from the same recording.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Sectors of a write, counted from the one in which it begins. In order, without repetition.
pub type Sectors = Vec<usize>;

/// Tells which of the recorded operations had reached the disk.
///
/// ```text
/// prefix 17 lost {3,5-9} torn 15@3 torn 16@{0,2,5-7}
/// ```
///
/// reads: the first 17 operations, 0 to 16, were asked for; 3 and 5 to 9 never arrived; of 15 only the first 3 sectors
/// did, of 16 only the sectors 0, 2 and 5 to 7.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StateId {
    /// Tells how many operations were asked for.
    pub prefix: usize,
    /// Those that did not arrive, in order.
    pub lost: Vec<usize>,
    /// Those that arrived in part, in order, with what arrived.
    pub torn: Vec<(usize, Sectors)>,
}

impl StateId {
    /// All of the first operations.
    pub fn prefix(prefix: usize) -> Self {
        Self {
            prefix,
            ..Self::default()
        }
    }

    /// Takes these operations from the state.
    pub fn without(mut self, lost: impl IntoIterator<Item = usize>) -> Self {
        self.lost.extend(lost);
        self
    }

    /// Tears one operation of the state.
    pub fn with_torn(mut self, operation: usize, arrived: Sectors) -> Self {
        self.torn.push((operation, arrived));
        self
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prefix {}", self.prefix)?;
        if !self.lost.is_empty() {
            write!(f, " lost {}", Set(&self.lost))?;
        }
        for (operation, arrived) in &self.torn {
            if arrived.iter().copied().eq(0..arrived.len()) {
                write!(f, " torn {operation}@{}", arrived.len())?;
            } else {
                write!(f, " torn {operation}@{}", Set(arrived))?;
            }
        }
        Ok(())
    }
}

/// Numbers in order, neighbours drawn together.
struct Set<'a>(&'a [usize]);

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        let runs = runs.map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        });
        write!(f, "{{{}}}", runs.collect::<Vec<_>>().join(","))
    }
}

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` names no state; one is `prefix 17 lost {{3,5-9}} torn 16@3 torn 15@{{0,2}}`")]
pub struct BadStateId(String);

impl FromStr for StateId {
    type Err = BadStateId;

    fn from_str(text: &str) -> Result<Self, BadStateId> {
        parse(text).ok_or_else(|| BadStateId(text.into()))
    }
}

fn parse(text: &str) -> Option<StateId> {
    let mut id = StateId::default();
    let mut words = text.split_whitespace();
    if words.next() != Some("prefix") {
        return None;
    }
    id.prefix = words.next()?.parse().ok()?;
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word {
            "lost" => id.lost = parse_set(value)?,
            "torn" => {
                let (operation, arrived) = value.split_once('@')?;
                let arrived = match arrived.parse() {
                    Ok(count) => (0..count).collect(),
                    Err(_) => parse_set(arrived)?,
                };
                id.torn.push((operation.parse().ok()?, arrived));
            }
            _ => return None,
        }
    }
    Some(id)
}

fn parse_set(text: &str) -> Option<Vec<usize>> {
    let items = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut set = Vec::new();
    for item in items.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        set.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    set.is_sorted_by(|a, b| a < b).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_as_it_was_written() {
        let texts = [
            "prefix 0",
            "prefix 17 lost {3,5-9,15-16} torn 14@3",
            "prefix 9 torn 7@0 torn 8@{0,2,5-7}",
        ];
        for text in texts {
            let id: StateId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        let same: StateId = "prefix 17 lost {3,5,6,7} torn 16@{0,1,2}".parse().unwrap();
        assert_eq!(same.to_string(), "prefix 17 lost {3,5-7} torn 16@3");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let texts = [
            "",
            "prefix",
            "prefix x",
            "prefix 1 lost",
            "prefix 1 lost 3",
            "prefix 1 lost {3,2}",
            "prefix 1 torn 3",
            "prefix 1 found {3}",
        ];
        for text in texts {
            let error = text.parse::<StateId>().unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("`{text}` names no state"))
            );
        }
    }
}
