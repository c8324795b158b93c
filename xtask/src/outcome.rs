//! The outcome of a chore.

use std::error::Error;

/// Holds what a chore gives back: nothing, or what went wrong in words for a person.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;
