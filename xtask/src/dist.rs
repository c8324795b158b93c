//! `cargo xtask dist`: programs to hand out, which are small and need nothing else: static, stripped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::Outcome;
use crate::run::{cargo, output, run};

/// A program to hand out.
struct Program {
    name: &'static str,
    package: &'static str,
    /// Arguments of cargo that choose what is in it.
    features: &'static [&'static str],
    /// Bytes that it may have.
    bytes_max: u64,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "anteros",
        package: "anteros",
        features: &[],
        bytes_max: 9_000_000,
    },
    // The commands that read images.
    Program {
        name: "anteros-read",
        package: "anteros",
        features: &["--no-default-features"],
        bytes_max: 4_000_000,
    },
    Program {
        name: "anteros-warm",
        package: "anteros-warm",
        features: &[],
        bytes_max: 1_500_000,
    },
];

/// Builds the programs that are named, or all, and puts them into `target/dist`: `[--target TARGET] [NAME]...`. With
/// `--packages` alone, puts all of them into packages as well.
///
/// # Errors
/// When one cannot be built, needs a library, or is too large; or there is none of a name.
pub(crate) fn dist(words: &[&str]) -> Outcome {
    if words == ["--packages"] {
        dist(&[])?;
        return pack(&host()?);
    }
    let (target, names) = match words {
        ["--target", target, names @ ..] => ((*target).to_owned(), names),
        names => (host()?, names),
    };
    let is_known = |name: &&&str| PROGRAMS.iter().any(|program| program.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known = PROGRAMS.map(|program| program.name).join(", ");
        return Err(format!("{unknown}: no such program; there are {known}").into());
    }
    for program in &PROGRAMS {
        if names.is_empty() || names.contains(&program.name) {
            program.make(&target)?;
        }
    }
    Ok(())
}

/// Puts the programs of a target into packages. They run here, and tell of themselves for that.
fn pack(target: &str) -> Outcome {
    let architecture = match target.split('-').next() {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        _ => return Err(format!("{target}: no name of Debian's is known for it").into()),
    };
    let mut script = Command::new("scripts/packages.sh");
    run(script.arg(directory(target)).arg(architecture))
}

/// Returns where the programs of a target are.
fn directory(target: &str) -> PathBuf {
    base().join("dist").join(target)
}

fn base() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// The name of the target that this machine is.
fn host() -> Outcome<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

impl Program {
    /// Builds it, makes sure of what is promised, and puts it where all are.
    fn make(&self, target: &str) -> Outcome {
        let small = base().join("small");
        self.build(target, &small)?;
        let built = small.join(target).join("small");
        let content = fs::read(built.join(self.package))?;
        self.check(&content)?;
        let to = directory(target).join(self.name);
        put(&built.join(self.package), &to)?;
        // What is built for another machine is not run.
        if target == host()? {
            self.trial(&to)?;
        }
        println!("{}: {} bytes, static", to.display(), content.len());
        Ok(())
    }

    /// Runs it: what reads images reads one of each codec.
    fn trial(&self, program: &Path) -> Outcome {
        run(Command::new(program).arg("--version"))?;
        if self.package != "anteros" {
            return Ok(());
        }
        for codec in ["lz4", "lzma", "deflate", "zstd"] {
            let image = format!("tests/fixtures/{codec}.erofs");
            run(Command::new(program).args(["check", "--quiet", &image]))?;
        }
        match self.features {
            [] => Ok(()),
            _ => self.refusal(program),
        }
    }

    /// Calls a command that it lacks.
    fn refusal(&self, program: &Path) -> Outcome {
        let told = Command::new(program)
            .args(["mkfs", "image", "tree"])
            .output()?;
        let told = String::from_utf8_lossy(&told.stderr);
        match told.starts_with("error: mkfs: this program has") {
            true => Ok(()),
            false => {
                Err(format!("{}: of a command that it lacks it says: {told}", self.name).into())
            }
        }
    }

    fn build(&self, target: &str, directory: &Path) -> Outcome {
        let mut build = cargo();
        build.args(["build", "--locked", "--profile", "small"]);
        build.args(["--package", self.package]).args(self.features);
        // With a target that is told, the flags are not those of macros.
        build.args(["--target", target]);
        build.arg("--target-dir").arg(directory);
        run(build.env("RUSTFLAGS", "-C target-feature=+crt-static"))
    }

    fn check(&self, content: &[u8]) -> Outcome {
        let (name, bytes) = (self.name, content.len() as u64);
        if asks_for_a_loader(content).ok_or("no 64-bit ELF")? {
            return Err(format!("{name}: it names a dynamic loader").into());
        }
        if bytes > self.bytes_max {
            let most = self.bytes_max;
            return Err(format!("{name}: {bytes} bytes, at most {most}").into());
        }
        Ok(())
    }
}

fn put(from: &Path, to: &Path) -> Outcome {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::copy(from, to)?;
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
