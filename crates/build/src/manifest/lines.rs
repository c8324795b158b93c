//! Lines of a manifest, in bounded memory.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tar::fault::{Fault, broken};

/// Longest line. An inode has at most so many bytes of attributes, each of which may take four here.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read at once.
const STEP_BYTES: usize = 128 << 10;

/// The lines of a manifest, one after the other.
pub(super) struct Lines<'a> {
    reader: BufReader<Box<dyn Read + 'a>>,
    /// The line that was read last, without its end.
    pub line: Vec<u8>,
    /// Lines that were read.
    read: u64,
    /// The number of the line that was read last, or of the first one that makes it up.
    pub number: u64,
    cancel: &'a AtomicBool,
}

impl<'a> Lines<'a> {
    pub fn new(reader: Box<dyn Read + 'a>, cancel: &'a AtomicBool) -> Self {
        Self {
            reader: BufReader::with_capacity(STEP_BYTES, reader),
            line: Vec::new(),
            read: 0,
            number: 0,
            cancel,
        }
    }

    /// Reads a line, if there is one; with `long`, one that a backslash ends goes on with the next.
    pub fn next(&mut self, long: bool) -> Result<bool, Fault> {
        self.line.clear();
        self.number = self.read + 1;
        while self.piece()? {
            self.read += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            }
            if !(long && goes_on(&self.line)) {
                return Ok(true);
            }
            self.line.pop();
            self.line.push(b' ');
        }
        Ok(!self.line.is_empty())
    }

    /// Appends what comes up to the end of a line; answers whether there was anything.
    fn piece(&mut self) -> Result<bool, Fault> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Fault::Cancelled);
        }
        let most = (LINE_BYTES_MAX + 1 - self.line.len()) as u64;
        let mut rest = self.reader.by_ref().take(most);
        let len = rest.read_until(b'\n', &mut self.line);
        let len = len.map_err(Fault::Read)?;
        match self.line.len() <= LINE_BYTES_MAX {
            true => Ok(len > 0),
            false => broken(format!("a line of more than {LINE_BYTES_MAX} bytes")),
        }
    }
}

/// Returns whether a line ends with a backslash that no other one escapes.
fn goes_on(line: &[u8]) -> bool {
    let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], long: bool) -> Result<Vec<(u64, String)>, Fault> {
        let never = AtomicBool::new(false);
        let mut lines = Lines::new(Box::new(text), &never);
        let mut found = Vec::new();
        while lines.next(long)? {
            let line = lines.line.escape_ascii().to_string();
            found.push((lines.number, line));
        }
        Ok(found)
    }

    #[test]
    fn lines_end_and_go_on() {
        let text = b"a\nb\\\n c\\\\\n\nd";
        let expected = [(1, "a"), (2, "b  c\\\\\\\\"), (4, ""), (5, "d")];
        let expected = expected.map(|(number, line)| (number, line.to_owned()));
        assert_eq!(lines(text, true).unwrap(), expected);
        assert_eq!(lines(text, false).unwrap().len(), 5);
        assert_eq!(lines(b"a\\", true).unwrap(), [(1, "a ".to_owned())]);
        assert!(lines(b"", true).unwrap().is_empty());
    }

    #[test]
    fn lines_are_bounded() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&long, true).unwrap().len(), 1);
        assert!(lines(&[&long[..], b"x"].concat(), true).is_err());
        assert!(lines(&b"x\\\n".repeat(LINE_BYTES_MAX / 2 + 2), true).is_err());
    }
}
