//! Text for people, JSON for scripts, and progress for those who wait.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anteros_core::Timestamp;
use anteros_verity::hex;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Writes a line to standard error. That nobody reads it any more is no reason to fail.
pub fn complain(what: &str, text: impl Display) {
    let _ = writeln!(io::stderr(), "{what}: {text}");
}

/// Prints a value as JSON, indented.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Prints text as it is.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Bytes as people read them: `1.4 GiB`.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// A count with thousands apart: `12,345`.
pub fn count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

/// A name or a path: as it is if it is text without control characters, else escaped.
pub fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.into(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// A UUID in its usual form.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex = hex::encode(bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// A progress bar over bytes with rate and time left, on a terminal only.
pub fn progress(quiet: bool, verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
    if quiet || !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    bar.set_style(style());
    bar.set_message(verb);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A progress bar over steps, each with a message, on a terminal only.
pub fn steps(quiet: bool, count: u64) -> ProgressBar {
    let bar = progress(quiet, "");
    bar.set_length(count);
    let template = "[{bar:20}] {pos} of {len}, {elapsed}: {wide_msg}";
    let style = ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// The form of a line of progress: the bar takes what the numbers leave, so that it never wraps.
fn style() -> ProgressStyle {
    let template = "{msg} [{wide_bar}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("a valid template");
    style.progress_chars("=> ")
}

/// A time as people read it, UTC; in seconds where the calendar ends.
pub fn time(at: Timestamp) -> String {
    match jiff::Timestamp::new(at.secs, at.nanos as i32) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{} s and {} ns after 1970", at.secs, at.nanos),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 80 columns that keeps its longest line.
    #[derive(Debug, Clone, Default)]
    struct Terminal(Arc<Mutex<usize>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            let mut longest = self.0.lock().unwrap();
            *longest = text.trim_end().chars().count().max(*longest);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn progress_does_not_wrap() {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ProgressBar::with_draw_target(Some(1 << 44), target);
        bar.set_style(style());
        bar.set_message("extracting");
        for position in [0, 1023 << 30, (1 << 44) - 1] {
            bar.set_position(position);
            bar.tick();
        }
        let longest = *terminal.0.lock().unwrap();
        assert!((40..=80).contains(&longest), "{longest} columns");
        bar.finish_and_clear();
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let time = |secs, nanos| time(Timestamp { secs, nanos });
        assert_eq!(time(1_700_000_000, 0), "2023-11-14T22:13:20Z");
        assert_eq!(time(0, 5_000_000), "1970-01-01T00:00:00.005Z");
        assert_eq!(
            time(i64::MAX, 1),
            "9223372036854775807 s and 1 ns after 1970"
        );
    }

    #[test]
    fn names_are_shown_without_control_characters() {
        assert_eq!(name("grün".as_bytes()), "grün");
        assert_eq!(name(b"a\nb"), "a\\nb");
        assert_eq!(name(b"\xff"), "\\xff");
        assert_eq!(name("\u{9b}31m".as_bytes()), "\\xc2\\x9b31m");
    }

    #[test]
    fn uuids_have_their_usual_form() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
