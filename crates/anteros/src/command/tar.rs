//! `anteros tar`

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anteros_image::{
    ImagePath, TarError, TarObserver, TarOptions, TarProblem, TarSummary, tar, tar_diff,
};
use indicatif::ProgressBar;

use crate::args::{ImageArgs, WorkerArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict, kind_of_walk};
use crate::{interrupt, output, places, volume};

/// Write the files of an image as a tar archive, without mounting it and without root
///
/// Owners, times to the nanosecond, hard links, devices and extended attributes are kept. The same image gives the same
/// archive, byte by byte.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The archive; - stands for standard output, which is the default
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Write what changed since the image OLD, as a layer of containers: what is new or different, and whiteouts (`.wh.NAME`,
    /// `.wh..wh..opq`) for what is gone
    #[arg(long, value_name = "OLD", conflicts_with = "path")]
    diff: Option<PathBuf>,

    /// Only this path of the image and what is below it, with names that begin there
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: OsString,

    /// Leave out holes of files, in the form of GNU tar, which not every reader knows; else they are zeros
    #[arg(short = 'S', long)]
    sparse: bool,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Print nothing but errors and warnings
    #[arg(short, long)]
    quiet: bool,
}

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 256 << 10;

impl Args {
    pub fn run(self) -> Outcome {
        let is_stream = self.output.as_os_str() == "-";
        if is_stream && io::stdout().is_terminal() {
            let message =
                "standard output is a terminal, which an archive would fill with what is no text";
            return Err(Failure::new(Kind::Usage, message).hint("-o FILE writes it into a file"));
        }
        let summary = match is_stream {
            true => self.write(&mut stdout()?)?,
            false => self.write_file()?,
        };
        Ok(match summary.left_out {
            0 => Verdict::Good,
            _ => Verdict::Partial,
        })
    }

    /// Writes a file beside, which then takes the place of what was there; into a pipe or a device as it is.
    fn write_file(&self) -> Result<TarSummary, Failure> {
        let fail = |error: io::Error| Failure::system(&self.output, &error);
        match fs::metadata(&self.output) {
            Ok(found) if self.files().contains(&(found.dev(), found.ino())) => {
                let message = format!("{}: is an image that is read", self.output.display());
                return Err(
                    Failure::new(Kind::Usage, message).hint("name another file for the archive")
                );
            }
            Ok(found) if !found.is_file() => {
                let file = OpenOptions::new().write(true).open(&self.output);
                return self.write(&mut file.map_err(fail)?);
            }
            _ => {}
        }
        let path = places::behind_links(&self.output).map_err(fail)?;
        let beside = places::beside(&path).map_err(fail)?;
        let mut file = File::create_new(&beside).map_err(fail)?;
        let written = self.write(&mut file);
        let placed = written.and_then(|summary| {
            fs::rename(&beside, &path).map_err(fail)?;
            Ok(summary)
        });
        if placed.is_err() {
            let _ = fs::remove_file(&beside);
        }
        placed
    }

    /// The files of all images, by device and inode.
    fn files(&self) -> Vec<(u64, u64)> {
        let old = self.diff.as_ref().and_then(|old| fs::metadata(old).ok());
        let old = old.map(|old| (old.dev(), old.ino()));
        self.image.files().into_iter().chain(old).collect()
    }

    fn write(&self, out: &mut dyn Write) -> Result<TarSummary, Failure> {
        anteros_codec::keep_heap_small();
        let image = self.image.open()?;
        let cancel = interrupt::flag()?;
        let bar = output::progress(self.quiet, "archiving");
        volume::tell(&bar, &image, self.path.as_bytes(), &cancel);
        let watch = Watch(bar.clone());
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let options = TarOptions {
            workers: self.workers.count(),
            sparse: self.sparse,
        };
        let from = self.path.as_bytes();
        let written = match &self.diff {
            None => tar(&image, from, &options, &mut out, &watch, &cancel),
            Some(old) => {
                let old = ImageArgs::alone(old).open()?;
                tar_diff(&old, &image, &options, &mut out, &watch, &cancel)
            }
        };
        bar.finish_and_clear();
        written.map_err(|error| {
            // What is still in memory would come behind the error.
            let _ = out.into_parts();
            failure(&self.output, &image.name(), error)
        })
    }
}

/// Standard output without the cutting at lines that Rust's own does.
fn stdout() -> io::Result<File> {
    Ok(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?.into())
}

struct Watch(ProgressBar);

impl TarObserver for Watch {
    fn wrote(&self, bytes: u64) {
        volume::advance(&self.0, bytes);
    }

    fn left_out(&self, path: &ImagePath) {
        let text = format!("{path}: the socket was left out: an archive cannot hold it");
        self.0.suspend(|| output::complain("warning", text));
    }
}

fn failure(archive: &Path, image: &str, error: TarError) -> Failure {
    let kind = match &error.problem {
        TarProblem::MarkName => Kind::Unsupported,
        TarProblem::Walk(problem) => kind_of_walk(problem),
        TarProblem::Old(problem) => kind_of_walk(problem),
        TarProblem::Output(_) => Kind::System,
    };
    let failure = Failure::new(kind, format_args!("{image}: {error}"));
    match (error.problem, kind) {
        (TarProblem::Output(error), _) if archive.as_os_str() == "-" => error.into(),
        (TarProblem::Output(error), _) => Failure::system(archive, &error),
        (_, Kind::Interrupted) => Failure::new(kind, "interrupted; the archive is not complete"),
        (_, Kind::Corrupt) => failure.hint(
            "`anteros check` lists every fault; `anteros extract --keep-going` takes out what can be read",
        ),
        _ => failure,
    }
}
