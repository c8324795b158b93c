//! Lines of a dump for people.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a name and its value.
pub fn row(out: &mut impl Write, name: &str, value: impl Display) -> io::Result<()> {
    writeln!(out, "{name:<22}{value}")
}
