//! The summary of a build: for scripts, and for people.

use std::io::{self, Write};
use std::path::Path;

use anteros_build::Summary;
use serde::Serialize;

use super::verity;
use crate::command::verify;
use crate::{linux, output};

/// The summary as scripts see it.
#[derive(Serialize)]
pub struct Report<'a> {
    image: String,
    uuid: String,
    input_bytes: u64,
    image_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_bytes: Option<u64>,
    metadata_bytes: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    hard_links: u64,
    compressed_files: u64,
    packed_files: u64,
    chunked_files: u64,
    inline_files: u64,
    flat_files: u64,
    shared_xattrs: u64,
    warnings: u64,
    /// The hash tree, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verity: Option<verity::View>,
    linux: linux::View,
    seconds: f64,
    version: &'a str,
    /// The comparison with its source, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<verify::Report>,
}

impl Report<'_> {
    pub fn new(
        image: &Path,
        summary: &Summary,
        seconds: f64,
        verify: Option<verify::Report>,
    ) -> Self {
        Self {
            image: image.display().to_string(),
            uuid: output::uuid(&summary.uuid),
            input_bytes: summary.input_bytes,
            image_bytes: summary.image_bytes,
            device_bytes: Some(summary.device_bytes).filter(|bytes| *bytes > 0),
            metadata_bytes: summary.metadata_bytes,
            files: summary.files,
            directories: summary.directories,
            symlinks: summary.symlinks,
            specials: summary.specials,
            hard_links: summary.hard_links,
            compressed_files: summary.compressed_files,
            packed_files: summary.packed_files,
            chunked_files: summary.chunked_files,
            inline_files: summary.inline_files,
            flat_files: summary.flat_files,
            shared_xattrs: summary.shared_xattrs,
            warnings: summary.warnings,
            verity: summary.verity.as_ref().map(verity::View::new),
            linux: linux::View::new(&summary.linux),
            seconds,
            version: env!("CARGO_PKG_VERSION"),
            verify,
        }
    }
}

/// Prints the summary for people.
pub fn print(image: &Path, summary: &Summary, seconds: f64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let size = output::bytes(summary.image_bytes);
    let share = share(summary.image_bytes, summary.input_bytes);
    writeln!(out, "{}: {size}{share}, in {seconds:.2} s", image.display())?;
    let count = output::count;
    writeln!(
        out,
        "  {} files ({} compressed), {} directories, {} symlinks, {} others, {} further links",
        count(summary.files),
        count(summary.compressed_files),
        count(summary.directories),
        count(summary.symlinks),
        count(summary.specials),
        count(summary.hard_links),
    )?;
    writeln!(
        out,
        "  {} of metadata, UUID {}",
        output::bytes(summary.metadata_bytes),
        output::uuid(&summary.uuid)
    )?;
    let linux = linux::View::new(&summary.linux);
    writeln!(
        out,
        "  oldest Linux {}, memory of its decoders {}",
        linux.version(),
        linux.memory()
    )?;
    summary
        .verity
        .iter()
        .try_for_each(|verity| verity::print(&mut out, verity))
}

/// The size of an image beside its source. Nothing is a part of nothing, and of little no percentage says much.
fn share(image_bytes: u64, input_bytes: u64) -> String {
    let input = output::bytes(input_bytes);
    match 100.0 * image_bytes as f64 / input_bytes as f64 {
        percent if percent < 1000.0 => format!(", {percent:.1} % of {input}"),
        _ if input_bytes == 0 => String::new(),
        _ => format!(" of {input}"),
    }
}
