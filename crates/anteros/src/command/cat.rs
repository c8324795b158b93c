//! `anteros cat`

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anteros_core::FileKind;
use anteros_image::{Error, Image, Reader, Source};

use crate::args::ImageArgs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Print files of an image
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Paths in the image
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let image = self.image.open()?;
        for path in &self.paths {
            print(&image, path.as_bytes())?;
        }
        Ok(Verdict::Good)
    }
}

/// Errors of reading an image and of writing what was read.
enum Trouble {
    Image(Error),
    Output(std::io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

fn print(image: &Image, path: &[u8]) -> Result<(), Failure> {
    let name = || format!("{}: {}", image.name(), output::name(path));
    let failure = |error| Failure::image(name(), &error);
    let inode = image.find(path).map_err(failure)?;
    if inode.kind != FileKind::Regular {
        let message = format!("{} is a {}, not a file", name(), inode.kind.name());
        return Err(Failure::new(Kind::Usage, message));
    }
    let map = image.map(&inode).map_err(failure)?;
    let mut reader = Reader::new(image);
    let mut out = std::io::stdout().lock();
    for extent in image.extents(&inode, &map) {
        let extent = extent.map_err(failure)?;
        if extent.source == Source::Hole {
            std::io::copy(
                &mut std::io::Read::take(std::io::repeat(0), extent.len),
                &mut out,
            )?;
            continue;
        }
        let read = reader.read_extent(&inode, &extent, |_, data| {
            out.write_all(data).map_err(Trouble::Output)
        });
        read.map_err(|trouble| match trouble {
            Trouble::Image(error) => failure(error),
            Trouble::Output(error) => error.into(),
        })?;
    }
    Ok(out.flush()?)
}
