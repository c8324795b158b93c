//! `anteros cat`

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anteros_core::{FileKind, zeros};
use anteros_format::inode::Inode;
use anteros_image::{Error, Image, Reader, Source};

use crate::args::ImageArgs;
use crate::failure::{Failure, Kind, Outcome, Parts};
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
    /// Arguments to print one file.
    pub fn of(image: ImageArgs, path: OsString) -> Self {
        let paths = vec![path];
        Self { image, paths }
    }

    pub fn run(self) -> Outcome {
        let image = self.image.open()?;
        let mut parts = Parts::default();
        for path in &self.paths {
            match print(&image, path.as_bytes())? {
                Ok(()) => parts.done(),
                Err(failure) => parts.left_out(failure),
            }
        }
        parts.end()
    }
}

/// Errors of reading an image and of writing what was read.
enum Trouble {
    Image(Error),
    /// It is no file.
    Kind(Failure),
    Output(std::io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

/// Prints a file. What is wrong with it is no reason not to print the next one; what is wrong with the output is.
fn print(image: &Image, path: &[u8]) -> Result<Result<(), Failure>, Failure> {
    let name = || format!("{}: {}", image.name(), output::name(path));
    match print_content(image, path, &name) {
        Ok(()) => Ok(Ok(())),
        Err(Trouble::Image(error)) => Ok(Err(Failure::image(name(), &error))),
        Err(Trouble::Kind(failure)) => Ok(Err(failure)),
        Err(Trouble::Output(error)) => Err(error.into()),
    }
}

fn print_content(image: &Image, path: &[u8], name: &dyn Fn() -> String) -> Result<(), Trouble> {
    let inode = image.find(path)?;
    if inode.kind != FileKind::Regular {
        let message = format!("{} is a {}, not a file", name(), inode.kind.name());
        return Err(Trouble::Kind(Failure::new(Kind::Usage, message)));
    }
    let mut reader = Reader::new(image);
    let mut out = std::io::stdout().lock();
    read(image, &inode, &mut reader, |data| {
        out.write_all(data).map_err(Trouble::Output)
    })?;
    out.flush().map_err(Trouble::Output)
}

/// Hands on the content of a file in pieces, in their order; holes are zeros.
pub fn read<E: From<Error>>(
    image: &Image,
    inode: &Inode,
    reader: &mut Reader<'_>,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let map = image.map(inode)?;
    for extent in image.extents(inode, &map) {
        let extent = extent?;
        if extent.source != Source::Hole {
            reader.read_extent(inode, &extent, |_, data| take(data))?;
            continue;
        }
        zeros(extent.len).try_for_each(&mut take)?;
    }
    Ok(())
}
