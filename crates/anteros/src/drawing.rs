//! Files that drawings are written into.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::failure::{Failure, Kind};
use crate::places;

/// A form of what is drawn.
struct Form {
    /// The first bytes of such a file.
    begin: &'static [u8],
    /// The name that people have for it.
    name: &'static str,
    /// The kind of file that may be overwritten.
    overwritten: &'static str,
}

const DRAWING: Form = Form {
    begin: b"<svg ",
    name: "drawing",
    overwritten: "an SVG",
};

const PAGE: Form = Form {
    begin: b"<!DOCTYPE html>",
    name: "page",
    overwritten: "a page of HTML",
};

/// Writes a drawing into a file: one that is not there yet, is empty, or holds a drawing already; or into a pipe or terminal. Whatever
/// goes wrong, what was there is there.
///
/// # Errors
///
/// When something else is there; else what the system says.
pub fn write(path: &Path, svg: &str) -> Result<(), Failure> {
    write_as(&DRAWING, path, svg)
}

/// Writes a page of HTML likewise.
///
/// # Errors
///
/// Those of [`write()`].
pub fn write_page(path: &Path, html: &str) -> Result<(), Failure> {
    write_as(&PAGE, path, html)
}

fn write_as(form: &Form, path: &Path, svg: &str) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::system(path, &error);
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found.map_err(fail)?),
    };
    match found {
        Some(found) if found.file_type().is_fifo() || found.file_type().is_char_device() => {
            let mut stream = OpenOptions::new().write(true).open(path).map_err(fail)?;
            return stream.write_all(svg.as_bytes()).map_err(fail);
        }
        Some(found) if !found.is_file() => {
            let message = format!("{}: is no regular file", path.display());
            let hint = format!("name a file for the {}", form.name);
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        Some(_) => {
            access(path, Access::WRITE_OK).map_err(|errno| fail(errno.into()))?;
            if !may_be_replaced(form, path).map_err(fail)? {
                let message = format!(
                    "{}: exists and is no {}; it is not overwritten",
                    path.display(),
                    form.name
                );
                let hint = format!("name a file that does not exist, or {}", form.overwritten);
                return Err(Failure::new(Kind::Usage, message).hint(hint));
            }
        }
        None => {}
    }
    replace(path, svg).map_err(fail)
}

fn may_be_replaced(form: &Form, path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?
        .take(form.begin.len() as u64)
        .read_to_end(&mut begin)?;
    Ok(begin.is_empty() || begin == form.begin)
}

/// Writes a file beside, which then takes the place; a symbolic link stays one.
fn replace(path: &Path, svg: &str) -> io::Result<()> {
    let path = places::behind_links(path)?;
    let temporary = places::beside(&path)?;
    let mut file = File::create_new(&temporary)?;
    let written = file
        .write_all(svg.as_bytes())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
