//! `--fs-config-out` and `--file-contexts-out`: what an extraction without root cannot keep.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anteros_image::{Image, ImagePath, ListError, ListProblem, Lists, write_lists};

use crate::failure::{Failure, Kind, kind_of_walk};
use crate::output;

#[derive(Debug, Default, clap::Args)]
pub struct ListArgs {
    /// Write owners, permissions and capabilities into FILE, as `mkfs --fs-config-file` reads them: so an image of what was
    /// extracted without root has them again. Where no owners are set, you may read every file that is extracted, whatever its
    /// permissions say
    #[arg(long, value_name = "FILE")]
    fs_config_out: Option<PathBuf>,

    /// Write labels of SELinux into FILE, as `mkfs --file-contexts` reads them
    #[arg(long, value_name = "FILE")]
    file_contexts_out: Option<PathBuf>,

    /// The directory on which the image is mounted: by the paths below it, lists know its files
    #[arg(long, value_name = "PATH", default_value = "/")]
    mount_point: OsString,
}

impl ListArgs {
    /// Returns whether there is to be a list of owners.
    pub fn has_owners(&self) -> bool {
        self.fs_config_out.is_some()
    }

    /// Writes the lists that are wanted; says whether they hold all there is.
    pub fn write(&self, image: &Image, from: &[u8], cancel: &AtomicBool) -> Result<bool, Failure> {
        if self.fs_config_out.is_none() && self.file_contexts_out.is_none() {
            return Ok(true);
        }
        let create = |path: &Option<PathBuf>| path.as_deref().map(create).transpose();
        let mut fs_config = create(&self.fs_config_out)?;
        let mut file_contexts = create(&self.file_contexts_out)?;
        let mut lists = Lists {
            fs_config: fs_config.as_mut().map(|file| file as &mut dyn Write),
            file_contexts: file_contexts.as_mut().map(|file| file as &mut dyn Write),
            mount_point: self.mount_point.as_bytes().to_vec(),
        };
        let is_complete = Cell::new(true);
        let left_out = |path: &ImagePath, text: &str| {
            is_complete.set(false);
            output::complain("warning", format_args!("{path}: {text}"));
        };
        let written = write_lists(image, from, &mut lists, &left_out, cancel);
        written.map_err(|error| self.failure(image, &error))?;
        finish(&self.fs_config_out, fs_config)?;
        finish(&self.file_contexts_out, file_contexts)?;
        Ok(is_complete.get())
    }

    fn failure(&self, image: &Image, error: &ListError) -> Failure {
        let kind = match &error.problem {
            ListProblem::Walk(problem) => kind_of_walk(problem),
            ListProblem::NoDirectory(_) => Kind::Usage,
            ListProblem::FsConfig(error) => return system(&self.fs_config_out, error),
            ListProblem::FileContexts(error) => return system(&self.file_contexts_out, error),
        };
        Failure::new(kind, format_args!("{}: {error}", image.name()))
            .hint("the lists are not complete; what was extracted stays")
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let file = File::create(path).map_err(|error| Failure::system(path, &error))?;
    Ok(BufWriter::new(file))
}

fn finish(path: &Option<PathBuf>, file: Option<BufWriter<File>>) -> Result<(), Failure> {
    let flushed = file.map_or(Ok(()), |mut file| file.flush());
    flushed.map_err(|error| system(path, &error))
}

fn system(path: &Option<PathBuf>, error: &std::io::Error) -> Failure {
    Failure::system(path.as_deref().unwrap_or(Path::new("a list")), error)
}
