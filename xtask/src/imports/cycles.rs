//! Cycles in a graph of files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which file imports which.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Files that all reach each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Knot {
    pub(super) files: BTreeSet<String>,
    /// The shortest way around; the last imports the first.
    pub(super) shortest: Vec<String>,
}

/// Returns the graph of these pairs.
pub(super) fn graph<'a>(pairs: impl Iterator<Item = &'a (String, String)>) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in pairs {
        graph.entry(from.clone()).or_default().insert(to.clone());
    }
    graph
}

/// Returns the knots of a graph; none if it has no cycle.
pub(super) fn knots(graph: &Graph) -> Vec<Knot> {
    let mut knots: Vec<Knot> = Vec::new();
    for start in graph.keys() {
        if knots.iter().any(|knot| knot.files.contains(start)) {
            continue;
        }
        let reached = reached(graph, start);
        if !reached.contains(start) {
            continue;
        }
        let files: BTreeSet<_> = reached
            .into_iter()
            .filter(|file| self::reached(graph, file).contains(start))
            .collect();
        let ways = files.iter().filter_map(|file| way(graph, file, file));
        let shortest = ways.min_by_key(Vec::len).unwrap_or_default();
        knots.push(Knot { files, shortest });
    }
    knots
}

/// Returns all that a file reaches by one import or more.
fn reached(graph: &Graph, start: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for next in graph.get(file).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the shortest way from a file to another, without its end.
pub(super) fn way(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(file) = open.pop_front() {
        for next in graph.get(file).into_iter().flatten() {
            if next == to {
                let step = |file: &&str| before.get(file).copied();
                let back = std::iter::successors(Some(file), step);
                let mut way: Vec<_> = back.map(String::from).collect();
                way.reverse();
                return Some(way);
            }
            if next != from && !before.contains_key(next.as_str()) {
                before.insert(next, file);
                open.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Graph {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|&(from, to)| (from.to_string(), to.to_string()))
            .collect();
        graph(pairs.iter())
    }

    #[test]
    fn a_graph_without_cycles_has_no_knots() {
        let graph = of(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]);
        assert_eq!(knots(&graph), []);
        assert_eq!(way(&graph, "a", "d"), Some(vec!["a".into(), "b".into()]));
        assert_eq!(way(&graph, "d", "a"), None);
    }

    #[test]
    fn a_knot_tells_its_files_and_the_shortest_way_around() {
        let graph = of(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "d"),
            ("d", "b"),
            ("c", "b"),
            ("d", "e"),
            ("x", "y"),
            ("y", "x"),
        ]);
        let files = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|&name| name.into()).collect()
        };
        let found = knots(&graph);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].files, files(&["b", "c", "d"]));
        assert_eq!(found[0].shortest, ["b", "c"]);
        assert_eq!(found[1].shortest, ["x", "y"]);
    }
}
