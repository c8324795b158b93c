//! State of a log that nobody has mounted, as most of the tools for one know it: they clean nothing.

use crate::durable::Durable;

pub(crate) type State = Durable;
