//! Options, each alone and each pair of them, judged by all processors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// Nothing, each atom alone, and each pair of atoms of different groups, the first atom in front.
pub fn combinations<T>(atoms: &[T], group: impl Fn(&T) -> &str) -> Vec<Vec<&T>> {
    let mut all = vec![Vec::new()];
    for (index, atom) in atoms.iter().enumerate() {
        all.push(vec![atom]);
        let others = atoms[index + 1..].iter();
        let others = others.filter(|other| group(other) != group(atom));
        all.extend(others.map(|other| vec![atom, other]));
    }
    all
}

/// The results of some work on each item, in their order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (sender, results) = channel();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    sender.send((index, work(item))).unwrap();
                }
            });
        }
    });
    drop(sender);
    results
        .into_iter()
        .collect::<BTreeMap<_, _>>()
        .into_values()
        .collect()
}
