//! The virtual machine in which the kernel judges: what it is made of, how it is started, what it has said.

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::guest::{BEGUN, END, FIRST, MAGIC, MODULES};
use crate::outcome::Outcome;
use crate::peers;
use crate::run::output;

const QEMU: &str = "qemu-system-x86_64";

/// Room for the answers to a batch; the file has holes.
const ANSWERS_BYTES: u64 = 4 << 30;
/// The kernel is given up when it has said nothing for so long.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Tells what the kernel made of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Means what it found, or why it refused.
    Said(String),
    /// It died, or hung; the last that it said.
    Died(String),
}

/// A kernel and a program for it.
pub(crate) struct Machine {
    kernel: PathBuf,
    modules: PathBuf,
    root: PathBuf,
    scratch: PathBuf,
}

impl Machine {
    /// Puts it together in a directory.
    ///
    /// # Errors
    /// When QEMU or the kernel is missing; it is said how they come.
    pub(crate) fn new(scratch: &Path) -> Outcome<Self> {
        let place = peers::kernel()?;
        let has_qemu = Command::new(QEMU)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok();
        if !has_qemu {
            return Err(
                format!("{QEMU} is missing; `scripts/peers.sh kernel` brings it in").into(),
            );
        }
        let kernel = only(&place.join("boot"), "vmlinuz")?;
        let modules = only(&place.join("lib/modules"), "")?;
        let root = scratch.join("root.cpio");
        fs::write(&root, root_of(&modules)?)?;
        Ok(Self {
            kernel,
            modules,
            root,
            scratch: scratch.to_owned(),
        })
    }

    /// The version of the kernel.
    pub(crate) fn version(&self) -> String {
        let name = self.modules.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Has the kernel look at all images; starts it again after each of which it dies.
    ///
    /// # Errors
    /// When it does not come to look at any.
    pub(crate) fn judge(&self, images: &[&[u8]]) -> Outcome<Vec<Verdict>> {
        self.write_mutants(images)?;
        let mut verdicts = Vec::new();
        while verdicts.len() < images.len() {
            let answers = self.run(verdicts.len())?;
            let before = verdicts.len();
            verdicts.extend(answers.said.into_iter().map(Verdict::Said));
            if verdicts.len() < images.len() {
                let last = self.last_words()?;
                if verdicts.len() == before && answers.begun.is_none() {
                    return Err(format!("the virtual machine does not start:\n{last}").into());
                }
                verdicts.push(Verdict::Died(last));
            }
        }
        Ok(verdicts)
    }

    fn write_mutants(&self, images: &[&[u8]]) -> io::Result<()> {
        let disk = File::create(self.scratch.join("mutants"))?;
        let mut at = (16 * (1 + images.len() as u64)).next_multiple_of(4096);
        let mut table = [MAGIC, images.len() as u64].map(u64::to_le_bytes).concat();
        for image in images {
            let bytes = image.len() as u64;
            table.extend([at, bytes].map(u64::to_le_bytes).concat());
            disk.write_all_at(image, at)?;
            at = (at + bytes).next_multiple_of(4096);
        }
        disk.write_all_at(&table, 0)?;
        disk.set_len(at)
    }

    /// Runs the machine from a mutant on, until it goes off or says nothing any more.
    fn run(&self, first: usize) -> Outcome<Answers> {
        let place = self.scratch.join("answers");
        let disk = File::create(&place)?;
        disk.set_len(ANSWERS_BYTES)?;
        let mut qemu = self.command(first).stdin(Stdio::null()).spawn()?;
        let waited = wait(&mut qemu, &place);
        // It may be gone already.
        let _ = qemu.kill();
        qemu.wait()?;
        waited?;
        Ok(Answers::read(&place, first as u64)?)
    }

    fn command(&self, first: usize) -> Command {
        let disk = |name, options| {
            let path = self.scratch.join(name);
            format!("file={},format=raw,if=virtio,{options}", path.display())
        };
        let mut command = Command::new(QEMU);
        command.args(["-accel", "tcg", "-cpu", "max", "-m", "1024"]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(&self.root);
        let console = self.scratch.join("console");
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        command.args(["-drive", &disk("mutants", "readonly=on")]);
        command.args(["-drive", &disk("answers", "cache=unsafe")]);
        let words = format!(
            "console=ttyS0 loglevel=4 panic=-1 oops=panic softlockup_panic=1 {FIRST}{first}"
        );
        command.args(["-append", &words]);
        command
    }

    /// The end of what the console shows, from a complaint on if there is one.
    fn last_words(&self) -> Outcome<String> {
        let said = fs::read(self.scratch.join("console")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        let is_fatal = |line: &&str| {
            [
                "BUG:",
                "Oops",
                "Kernel panic",
                "kernel BUG",
                "general protection",
            ]
            .iter()
            .any(|word| line.contains(word))
        };
        let from = lines.iter().position(is_fatal);
        let from = from.unwrap_or(lines.len().saturating_sub(15));
        Ok(lines[from..]
            .iter()
            .take(15)
            .copied()
            .collect::<Vec<_>>()
            .join("\n"))
    }
}

/// Waits for the end of a machine, as long as it goes on to answer.
fn wait(qemu: &mut Child, answers: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut seen = (0, Instant::now());
    while qemu.try_wait()?.is_none() {
        let blocks = fs::metadata(answers)?.mtime_nsec() as u64 ^ fs::metadata(answers)?.blocks();
        if blocks != seen.0 {
            seen = (blocks, Instant::now());
        } else if seen.1.elapsed() > SILENCE_MAX {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Holds what a machine has written to its second disk.
struct Answers {
    said: Vec<String>,
    /// The one that it had begun and has not answered.
    begun: Option<u64>,
}

impl Answers {
    fn read(place: &Path, first: u64) -> io::Result<Self> {
        let disk = File::open(place)?;
        let mut said = Vec::new();
        let mut at = 0;
        loop {
            let mut head = [[0; 8]; 2];
            disk.read_exact_at(head.as_flattened_mut(), at)?;
            let [number, bytes] = head.map(u64::from_le_bytes);
            if bytes == BEGUN {
                let begun = (number != END).then_some(number);
                return Ok(Self { said, begun });
            }
            let is_next = number == first + said.len() as u64 && bytes > 0;
            if !is_next || bytes > ANSWERS_BYTES - at {
                return Ok(Self { said, begun: None });
            }
            let mut text = vec![0; bytes as usize];
            disk.read_exact_at(&mut text, at + 16)?;
            said.push(String::from_utf8_lossy(&text).into_owned());
            at += 16 + bytes;
        }
    }
}

/// The root of the machine as a cpio archive: this program, `losetup`, their libraries, the modules.
fn root_of(modules: &Path) -> Outcome<Vec<u8>> {
    let mut archive = Archive::default();
    let this = env::current_exe()?;
    let losetup = ["/usr/sbin/losetup", "/sbin/losetup"].map(Path::new);
    let losetup = losetup.into_iter().find(|path| path.exists());
    let losetup = losetup.ok_or("losetup is missing (package mount)")?;
    let mut libraries = HashSet::new();
    for (program, name) in [(&*this, "init"), (losetup, "bin/losetup")] {
        archive.file(name, &fs::read(program)?)?;
        libraries.extend(libraries_of(program)?);
    }
    for library in libraries {
        archive.file(library.trim_start_matches('/'), &fs::read(&library)?)?;
    }
    for module in MODULES {
        if let Some(path) = find(modules, module)? {
            let end = path.extension().unwrap_or_default().to_string_lossy();
            let end = if end == "ko" { "" } else { ".xz" };
            archive.file(&format!("modules/{module}.ko{end}"), &fs::read(&path)?)?;
        }
    }
    archive.finish()
}

/// The libraries of a program, its loader included.
fn libraries_of(program: &Path) -> Outcome<Vec<String>> {
    let said = output(Command::new("ldd").arg(program))?;
    let words = said.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect())
}

/// The only entry of a directory that begins so.
fn only(directory: &Path, begin: &str) -> Outcome<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(begin) {
            return Ok(entry.path());
        }
    }
    Err(format!("{}: no {begin}*", directory.display()).into())
}

/// A module below a directory.
fn find(directory: &Path, module: &str) -> Outcome<Option<PathBuf>> {
    let names = ["ko", "ko.xz"].map(|end| format!("{module}.{end}"));
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if names.iter().any(|name| entry.file_name() == **name) {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}

/// An archive of the form "newc", which the kernel unpacks into its first root.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directories: HashSet<String>,
}

impl Archive {
    fn file(&mut self, name: &str, content: &[u8]) -> Outcome {
        for (at, _) in name.match_indices('/') {
            if self.directories.insert(name[..at].to_owned()) {
                self.entry(&name[..at], 0o040_755, &[])?;
            }
        }
        self.entry(name, 0o100_755, content)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Outcome {
        let number = self.bytes.len();
        let size = u32::try_from(content.len())?;
        write!(
            self.bytes,
            "070701{number:08x}{mode:08x}{:016x}{:08x}{:08x}",
            0, 1, 0
        )?;
        write!(
            self.bytes,
            "{size:08x}{:032x}{:08x}{:08x}",
            0,
            name.len() + 1,
            0
        )?;
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }

    fn finish(mut self) -> Outcome<Vec<u8>> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.bytes)
    }
}
