//! State of a mounted log: the owner of the topmost floor, which holds all others.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.

use crate::cleaning::Cleaning;
use crate::durable::Durable;

/// State of a mounted log.
pub(crate) struct State {
    cleaning: Cleaning,
}

stands_on!(State { cleaning: Cleaning });

impl State {
    /// A log that was opened, of which nothing has been asked yet.
    pub(crate) fn new(durable: Durable) -> Self {
        Self {
            cleaning: Cleaning::new(durable),
        }
    }
}
