//! Goals, and whether they were reached.

use serde_json::{Value, json};

/// States what the columns of a table of goals are called.
pub(super) const COLUMNS: [&str; 5] = ["goal", "wanted", "met", "worst", "where"];

/// Tells which figures will do.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A bound that all of some figures are to keep.
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) bound: Bound,
    /// The figures, each with what it is of.
    pub(super) found: Vec<(String, f64)>,
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        self.margin(figure) >= 0.0
    }

    /// Returns how far a figure is on the right side.
    fn margin(self, figure: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => figure - bound,
            Self::AtMost(bound) => bound - figure,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

impl Goal {
    fn worst(&self) -> Option<&(String, f64)> {
        let margin = |found: &&(String, f64)| self.bound.margin(found.1);
        let worse =
            |one: &&(String, f64), other: &&(String, f64)| margin(one).total_cmp(&margin(other));
        self.found.iter().min_by(worse)
    }

    fn missed(&self) -> impl Iterator<Item = &(String, f64)> {
        self.found
            .iter()
            .filter(|(_, figure)| !self.bound.holds(*figure))
    }

    fn verdict(&self) -> String {
        let (all, missed) = (self.found.len(), self.missed().count());
        match (all, missed) {
            (0, _) => "not measured".to_owned(),
            (_, 0) => format!("met ({all})"),
            _ => format!("missed in {missed} of {all}"),
        }
    }

    /// A row of the table.
    pub(super) fn cells(&self) -> [String; 5] {
        let worst = self.worst();
        [
            self.what.clone(),
            self.bound.words(),
            self.verdict(),
            worst.map_or(String::new(), |(_, figure)| format!("{figure:.3}")),
            worst.map_or(String::new(), |(place, _)| place.clone()),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let found = |(place, figure): &(String, f64)| json!({ "where": place, "figure": figure });
        json!({
            "goal": self.what,
            "wanted": self.bound.words(),
            "verdict": self.verdict(),
            "found": self.found.iter().map(found).collect::<Vec<_>>(),
        })
    }
}

/// Prints goals as a table, with every place where one was missed.
pub(super) fn print(goals: &[Goal]) {
    if goals.is_empty() {
        return;
    }
    let row = |[what, wanted, met, worst, place]: [String; 5]| {
        println!("  {what:<78} {wanted:>8} {met:<18} {worst:>8}  {place}");
    };
    println!("\ngoals");
    row(COLUMNS.map(str::to_owned));
    for goal in goals {
        row(goal.cells());
        for (place, figure) in goal.missed().skip(usize::from(goal.missed().count() == 1)) {
            println!("      {figure:>8.3}  {place}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(bound: Bound, figures: &[f64]) -> Goal {
        let found = figures
            .iter()
            .map(|figure| (format!("at {figure}"), *figure));
        Goal {
            what: "speed".to_owned(),
            bound,
            found: found.collect(),
        }
    }

    #[test]
    fn a_goal_is_met_where_all_figures_keep_the_bound() {
        let verdict = |bound, figures: &[f64]| goal(bound, figures).verdict();
        assert_eq!(verdict(Bound::AtLeast(0.9), &[0.9, 1.0]), "met (2)");
        assert_eq!(
            verdict(Bound::AtLeast(0.9), &[0.8, 1.0]),
            "missed in 1 of 2"
        );
        assert_eq!(verdict(Bound::AtMost(249.0), &[250.0]), "missed in 1 of 1");
        assert_eq!(verdict(Bound::AtMost(249.0), &[]), "not measured");
    }

    #[test]
    fn the_worst_is_the_farthest_on_the_wrong_side() {
        let worst = |bound| goal(bound, &[1.0, 3.0, 2.0]).cells()[4].clone();
        assert_eq!(worst(Bound::AtLeast(2.0)), "at 1");
        assert_eq!(worst(Bound::AtMost(2.0)), "at 3");
    }
}
