//! `cargo xtask small`: programs that have to be small and need nothing else, for an initramfs.

use std::path::PathBuf;
use std::process::Command;

use crate::outcome::Outcome;
use crate::run::{cargo, output, run};

/// Bytes that the program may have.
const BYTES_MAX: u64 = 1_500_000;

/// Builds `anteros-warm` statically, and runs it.
///
/// # Errors
/// When it cannot be built, needs a library, or is too large.
pub(crate) fn small() -> Outcome {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc -vV names no host")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = PathBuf::from(target).join("small");
    // With a target that is told, the flags are not those of macros.
    let mut build = cargo();
    build.args([
        "build",
        "--locked",
        "--profile",
        "small",
        "--package",
        "anteros-warm",
    ]);
    build
        .arg("--target")
        .arg(host)
        .arg("--target-dir")
        .arg(&target);
    run(build.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let program = target.join(host).join("small/anteros-warm");
    run(Command::new(&program).arg("--version"))?;
    let content = std::fs::read(&program)?;
    let bytes = content.len() as u64;
    if asks_for_a_loader(&content).ok_or("no 64-bit ELF")? {
        return Err(format!("{}: names a dynamic loader", program.display()).into());
    }
    if bytes > BYTES_MAX {
        return Err(format!("{}: {bytes} bytes, at most {BYTES_MAX}", program.display()).into());
    }
    println!("{}: {bytes} bytes, static", program.display());
    Ok(())
}

/// Returns whether a 64-bit little-endian ELF has a segment `PT_INTERP`; `None` if it is none.
fn asks_for_a_loader(content: &[u8]) -> Option<bool> {
    let number = |at: usize, bytes: usize| {
        let field = content.get(at..at + bytes)?;
        let digits = field.iter().rev();
        Some(digits.fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    if !content.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, bytes, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let kinds: Option<Vec<_>> = (0..count).map(|n| number(at + n * bytes, 4)).collect();
    Some(kinds?.contains(&PT_INTERP))
}

/// The kind of the segment that names the dynamic loader.
const PT_INTERP: usize = 3;
