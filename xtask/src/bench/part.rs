//! The parts of a benchmark: all of them run, unless some are asked for.

use crate::outcome::Outcome;

/// The parts that are asked for, or all, in their own order.
///
/// # Errors
/// When there is no part of a name.
pub(super) fn chosen<P: Copy>(
    parts: &[(&'static str, P)],
    only: &[String],
) -> Outcome<Vec<(&'static str, P)>> {
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no part {unknown}; there are: {}", names.join(", ")).into());
    }
    let asked = |(name, _): &&(&str, P)| only.is_empty() || only.iter().any(|one| one == name);
    Ok(parts.iter().filter(asked).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_run_in_their_order_and_unknown_ones_not_at_all() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let parts = chosen(&[("patterns", 1), ("table1", 2), ("walk", 3)], &only)?;
            Ok::<_, Box<dyn std::error::Error>>(parts.iter().map(|part| part.1).collect::<Vec<_>>())
        };
        assert_eq!(names(&["walk", "table1"]).unwrap(), [2, 3]);
        assert_eq!(names(&[]).unwrap(), [1, 2, 3]);
        assert!(names(&["speed"]).is_err());
    }
}
