//! An oracle for all states, on all processors.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::{Plan, Recording, State, StateId};

/// More failures than these tell nothing new.
const FAILURES_MAX: usize = 10;

/// A state that an oracle does not accept.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Tells which one.
    pub id: StateId,
    /// Holds what is wrong.
    pub message: String,
}

/// Holds what came of looking at the states of a plan.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// Tells how many states were looked at.
    pub states: usize,
    /// Tells how many more the plan had asked for that had been there before.
    pub duplicates: usize,
    /// Holds what was found, by id; after a few, the search ends.
    pub failures: Vec<Failure>,
}

impl Explored {
    /// Fails the test if any state was not accepted, and names those.
    ///
    /// # Panics
    ///
    /// Then.
    #[track_caller]
    pub fn expect_none_failed(&self) {
        self.expect_none_failed_in("the states");
    }

    /// The same of the states of something that is named. Says how many there were.
    ///
    /// # Panics
    ///
    /// If any was not accepted.
    #[track_caller]
    pub fn expect_none_failed_in(&self, what: impl fmt::Display) -> usize {
        assert!(self.failures.is_empty(), "{what}: {self}");
        self.states
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states, duplicates, ..
        } = self;
        write!(f, "{states} states and {duplicates} duplicates")?;
        for failure in &self.failures {
            write!(f, "\nreplay with `{}`: {}", failure.id, failure.message)?;
        }
        Ok(())
    }
}

impl Recording {
    /// Gives all states of a plan to an oracle, which says what is wrong, or panics.
    ///
    /// # Panics
    ///
    /// Never because of the oracle.
    pub fn explore(
        &self,
        plan: &Plan,
        oracle: impl Fn(&State) -> Result<(), String> + Sync,
    ) -> Explored {
        self.explore_one_in(1, plan, oracle)
    }

    /// Gives one in so many states of a plan to an oracle.
    ///
    /// # Panics
    ///
    /// If that is one in none.
    pub fn explore_one_in(
        &self,
        one_in: usize,
        plan: &Plan,
        oracle: impl Fn(&State) -> Result<(), String> + Sync,
    ) -> Explored {
        let states = Mutex::new(self.states(plan));
        let found = Mutex::new(Explored::default());
        let work = || {
            while let Some(state) = next(&states, one_in, &found) {
                let accepted = catch_unwind(AssertUnwindSafe(|| oracle(&state)));
                let accepted = accepted.unwrap_or_else(|panic| Err(said(&*panic)));
                if let Err(message) = accepted {
                    let id = state.id().clone();
                    let failures = &mut found.lock().unwrap().failures;
                    failures.push(Failure { id, message });
                }
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        });
        let mut found = found.into_inner().unwrap();
        found.duplicates = states.into_inner().unwrap().duplicates();
        found.failures.sort_by_key(|failure| failure.id.prefix);
        found
    }
}

/// The last of the next `one_in` states, unless enough has been found.
fn next(
    states: &Mutex<impl Iterator<Item = State>>,
    one_in: usize,
    found: &Mutex<Explored>,
) -> Option<State> {
    if found.lock().unwrap().failures.len() >= FAILURES_MAX {
        return None;
    }
    let state = states.lock().unwrap().nth(one_in - 1)?;
    found.lock().unwrap().states += 1;
    Some(state)
}

/// The words of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panic without words").to_owned()
}
