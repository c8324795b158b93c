//! Owners and groups that become others.

use crate::Error;

/// Numbers of owners, or groups, that become others: those from `from` on become those from `to` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first number that the source has.
    pub from: u32,
    /// The number that it becomes.
    pub to: u32,
    /// Numbers in the range.
    pub count: u32,
}

impl IdRange {
    /// Returns what a number becomes, if it is in the range.
    fn map(&self, id: u32) -> Option<u32> {
        let nth = id.checked_sub(self.from)?;
        (nth < self.count).then(|| self.to + nth)
    }

    /// Returns whether all of it has 32 bits.
    fn fits(&self) -> bool {
        let ends = [self.from, self.to].map(|start| start.checked_add(self.count - 1));
        ends.iter().all(Option::is_some)
    }
}

/// Fails if ranges are impossible, or tell two things of one number.
pub(super) fn check(what: &str, map: &[IdRange]) -> Result<(), Error> {
    let refuse = |range: &IdRange, why: &str| {
        let IdRange { from, to, count } = range;
        Err(Error::Option(format!(
            "the map of {what}s {from}:{to}:{count} {why}"
        )))
    };
    let mut sorted = map.to_vec();
    sorted.sort_unstable_by_key(|range| range.from);
    for range in &sorted {
        if range.count == 0 {
            return refuse(range, "is empty");
        }
        if !range.fits() {
            return refuse(range, "goes beyond 32 bits");
        }
    }
    let overlap = sorted
        .windows(2)
        .find(|pair| pair[1].from - pair[0].from < pair[0].count);
    overlap.map_or(Ok(()), |pair| {
        refuse(&pair[1], "begins inside of another one")
    })
}

/// Returns what a number becomes.
pub(super) fn mapped(what: &str, id: u32, map: &[IdRange]) -> Result<u32, String> {
    let found = map.iter().find_map(|range| range.map(id));
    match (found, map) {
        (Some(id), _) => Ok(id),
        (None, []) => Ok(id),
        (None, _) => Err(format!("its {what} {id} is in no range of the map")),
    }
}

/// Returns a number moved by an offset.
pub(super) fn moved(what: &str, id: u32, offset: u32) -> Result<u32, String> {
    let sum = id.checked_add(offset);
    sum.ok_or_else(|| format!("its {what} {id} plus {offset} is beyond 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(from: u32, to: u32, count: u32) -> IdRange {
        IdRange { from, to, count }
    }

    #[test]
    fn each_range_moves_its_own() {
        let map = [range(100_000, 0, 65_536), range(0, 70_000, 1)];
        for (id, expected) in [
            (100_000, Some(0)),
            (165_535, Some(65_535)),
            (165_536, None),
            (99_999, None),
            (0, Some(70_000)),
            (1, None),
        ] {
            assert_eq!(mapped("owner", id, &map).ok(), expected, "{id}");
        }
        assert_eq!(mapped("owner", 7, &[]), Ok(7));
    }

    #[test]
    fn impossible_maps_are_refused() {
        for (map, why) in [
            (&[range(0, 0, 0)][..], "0:0:0 is empty"),
            (&[range(u32::MAX, 0, 2)], "beyond 32 bits"),
            (&[range(0, u32::MAX, 2)], "beyond 32 bits"),
            (&[range(5, 9, 1), range(0, 0, 6)], "5:9:1 begins inside"),
            (&[range(5, 9, 1), range(5, 0, 1)], "begins inside"),
        ] {
            let error = check("owner", map).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let fine = [
            range(u32::MAX, 0, 1),
            range(0, u32::MAX - 4, 5),
            range(5, 0, 5),
        ];
        assert!(check("group", &fine).is_ok());
    }
}
