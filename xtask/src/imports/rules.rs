//! Rules on imports, and what is said when one is broken.

use std::fmt::Write;

use super::cycles::{Graph, Knot, graph, knots, way};
use super::modules::{Files, Import, Imports};
use super::source::{Token, production, starts_with};

/// A floor: its name, and the files and folders on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor(pub(super) &'static str, pub(super) &'static [&'static str]);

/// An owner of what a floor keeps in memory: the name of its type, and the folder where it has all of its methods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) name: &'static str,
    pub(super) home: &'static str,
}

/// Imports that may close a cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exception {
    /// The folder of the crate.
    pub(super) name: &'static str,
    /// The file that imports; a folder with a slash at its end stands for all files in it, nothing for all of a crate.
    pub(super) from: &'static str,
    /// The file that is imported.
    pub(super) to: &'static str,
    pub(super) reason: &'static str,
}

/// Holds what a crate must comply with.
pub(super) struct Rules<'a> {
    /// From the bottom to the top; none if the crate has no floors.
    pub(super) floors: &'a [Floor],
    pub(super) owners: &'a [Owner],
    pub(super) allowed: &'a [Exception],
    /// The text of ARCHITECTURE.md.
    pub(super) architecture: &'a str,
}

impl Exception {
    fn is_for(&self, pair: &(String, String)) -> bool {
        contains(self.from, &pair.0) && self.to == pair.1
    }

    /// Returns the file or folder that imports, for a person.
    fn from(&self) -> String {
        let Self { name, from, .. } = self;
        format!("{name}/src/{from}")
    }

    /// Returns the line of ARCHITECTURE.md that repeats this.
    fn row(&self) -> String {
        let Self { to, reason, .. } = self;
        format!("| `{}` → `{to}` | {reason} |", self.from())
    }
}

/// Returns whether a file is this one, or lies in this folder.
fn contains(place: &str, file: &str) -> bool {
    match place.is_empty() || place.ends_with('/') {
        true => file.starts_with(place),
        false => file == place,
    }
}

impl Rules<'_> {
    /// Returns which rules a crate breaks, each in words.
    pub(super) fn faults(&self, name: &str, files: &Files, imports: &Imports) -> Vec<String> {
        let mut faults = self.cycles(name, imports);
        faults.extend(self.needless(name, imports));
        if !self.floors.is_empty() {
            faults.extend(self.unplaced(name, files));
            faults.extend(self.upwards(name, imports));
            faults.extend(self.lent_methods(name, files));
        }
        faults
    }

    fn exceptions(&self, name: &str) -> impl Iterator<Item = &Exception> {
        let all = self.allowed.iter();
        all.filter(move |exception| exception.name == name)
    }

    /// Finds cycles that nothing allows.
    fn cycles(&self, name: &str, imports: &Imports) -> Vec<String> {
        let is_allowed = |pair: &(String, String)| {
            self.exceptions(name)
                .any(|exception| exception.is_for(pair))
        };
        let counted = graph(imports.keys().filter(|pair| !is_allowed(pair)));
        let told = |knot: &Knot| cycle(name, knot, imports);
        knots(&counted).iter().map(told).collect()
    }

    /// Finds exceptions that no cycle needs, and those that ARCHITECTURE.md does not repeat.
    fn needless(&self, name: &str, imports: &Imports) -> Vec<String> {
        let all = graph(imports.keys());
        let mut faults = Vec::new();
        for exception in self.exceptions(name) {
            if !is_needed(exception, &all, imports) {
                faults.push(format!(
                    "needless exception: no cycle goes from {} to {} any more\n  \
                     remove its entry from xtask/src/imports.rs, and from ARCHITECTURE.md if it is there",
                    exception.from(),
                    exception.to
                ));
            }
        }
        for exception in self.exceptions(name) {
            if !self.architecture.contains(&exception.row()) {
                faults.push(format!(
                    "untold exception: ARCHITECTURE.md does not have this line; add it there\n  {}",
                    exception.row()
                ));
            }
        }
        faults
    }

    /// Finds files that are on no floor, and floors without files.
    fn unplaced(&self, name: &str, files: &Files) -> Vec<String> {
        let is_root = |file: &&String| matches!(file.as_str(), "lib.rs" | "main.rs");
        let unplaced = files
            .keys()
            .filter(|file| !is_root(file) && self.floor(file).is_none());
        let mut faults: Vec<_> = unplaced
            .map(|file| {
                format!(
                    "no floor: {name}/src/{file} is on none\n  \
                     move it into the folder of one, or add it to FLOORS in xtask/src/imports.rs"
                )
            })
            .collect();
        for Floor(floor, places) in self.floors {
            for place in places
                .iter()
                .filter(|place| !files.keys().any(|file| contains(place, file)))
            {
                faults.push(format!(
                    "empty floor: {name}/src/{place} of the floor {floor} is not there\n  \
                     remove it from FLOORS in xtask/src/imports.rs"
                ));
            }
        }
        faults
    }

    /// Finds imports from a floor to a higher one.
    fn upwards(&self, name: &str, imports: &Imports) -> Vec<String> {
        let mut faults = Vec::new();
        for ((from, to), import) in imports {
            let (Some(low), Some(high)) = (self.floor(from), self.floor(to)) else {
                continue;
            };
            if low < high {
                let (low, high) = (self.floors[low].0, self.floors[high].0);
                let Import { line, path } = import;
                faults.push(format!(
                    "upward import: the floor {low} imports from the floor {high}, which is above it\n    \
                     {name}/src/{from}:{line} imports {to} ({path})\n  \
                     move what it needs down to {low} or below, or hand it in from above"
                ));
            }
        }
        faults
    }

    /// Finds methods that are given to an owner on another floor than its own: whoever holds the owner could call up by
    /// them, and no import would show it.
    fn lent_methods(&self, name: &str, files: &Files) -> Vec<String> {
        let mut faults = Vec::new();
        for Owner { name: owner, home } in self.owners {
            for (file, text) in files.iter().filter(|(file, _)| !contains(home, file)) {
                let lines = inherent(&production(text), owner);
                faults.extend(lines.into_iter().map(|line| {
                    format!(
                        "methods from elsewhere: {owner} is given methods outside of its floor\n    \
                         {name}/src/{file}:{line}\n  \
                         move them to {home}, or make them functions"
                    )
                }));
            }
        }
        faults
    }

    /// Returns the number of the floor that a file is on. A file that is named is not where its folder is.
    fn floor(&self, file: &str) -> Option<usize> {
        let named = |Floor(_, places): &Floor| places.contains(&file);
        let has = |Floor(_, places): &Floor| places.iter().any(|place| contains(place, file));
        let floors = || self.floors.iter();
        floors().position(named).or_else(|| floors().position(has))
    }
}

fn is_needed(exception: &Exception, all: &Graph, imports: &Imports) -> bool {
    let mut pairs = imports.keys().filter(|pair| exception.is_for(pair));
    pairs.any(|(from, to)| way(all, to, from).is_some())
}

/// Returns the lines where a type is given methods that are not those of a trait.
fn inherent(tokens: &[Token], owner: &str) -> Vec<usize> {
    let begins = tokens.windows(3);
    let begins = begins.filter(|three| starts_with(three, &["impl", owner, "{"]));
    begins.map(|three| three[0].line).collect()
}

/// Tells of a cycle, import by import.
fn cycle(name: &str, knot: &Knot, imports: &Imports) -> String {
    let mut text = format!("cycle: files of {name}/src import each other in a circle");
    let around = knot.shortest.iter().cycle().skip(1);
    for (from, to) in knot.shortest.iter().zip(around) {
        if let Some(Import { line, path }) = imports.get(&(from.clone(), to.clone())) {
            let _ = write!(text, "\n    {name}/src/{from}:{line} imports {to} ({path})");
        }
    }
    let others = knot.files.len() - knot.shortest.len();
    if others > 0 {
        let _ = write!(
            text,
            "\n    and {others} more files reach these and are reached by them"
        );
    }
    text.push_str(
        "\n  move what both need into a file below them, or hand it in from the file above",
    );
    text
}
