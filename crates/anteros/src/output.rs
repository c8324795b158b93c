//! Text for people, JSON for scripts, and progress for those who wait.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

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
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
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
    let template = "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(verb);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

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
