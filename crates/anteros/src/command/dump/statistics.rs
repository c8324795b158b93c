//! `anteros dump --statistics`

use std::collections::BTreeMap;
use std::io::Write;

use anteros_image::{Error, ExtentStatistics, Image, Statistics, statistics};
use serde::Serialize;

use super::text::row;
use crate::output;

/// States how many file name extensions are printed for people.
const EXTENSIONS_SHOWN: usize = 15;

/// The statistics as scripts see them.
#[derive(Serialize)]
pub struct View {
    inodes: u64,
    kinds: BTreeMap<&'static str, u64>,
    layouts: BTreeMap<&'static str, u64>,
    extended_inodes: u64,
    hard_links: u64,
    compressed_files: u64,
    uncompressed_files: u64,
    file_bytes: u64,
    file_bytes_stored: u64,
    directory_bytes: u64,
    metadata_bytes: u64,
    extents: BTreeMap<&'static str, ExtentsView>,
    inline_pclusters: u64,
    fragments: u64,
    fragment_bytes: u64,
    holes: u64,
    hole_bytes: u64,
    /// Pclusters by their size in bytes.
    pclusters: BTreeMap<u32, u64>,
    /// Files by size: those in `2^(n-1)..2^n` bytes under `n`, empty ones under 0.
    file_sizes: BTreeMap<u32, u64>,
    xattr_inodes: u64,
    xattrs_inline: u64,
    xattrs_shared: u64,
    extensions: Vec<ExtensionView>,
}

#[derive(Serialize)]
struct ExtentsView {
    extents: u64,
    bytes: u64,
    stored_bytes: u64,
}

#[derive(Serialize)]
struct ExtensionView {
    extension: String,
    files: u64,
    bytes: u64,
    stored_bytes: u64,
}

impl View {
    /// Visits the whole image.
    pub fn new(image: &Image) -> Result<Self, Error> {
        let found = statistics(image)?;
        let extensions = extensions(&found);
        let plain = std::iter::once(("plain", found.plain_extents));
        let algorithms = found
            .algorithms
            .iter()
            .map(|(algorithm, e)| (algorithm.name(), *e));
        Ok(Self {
            inodes: found.inodes(),
            kinds: found
                .kinds
                .iter()
                .map(|(kind, count)| (kind.name(), *count))
                .collect(),
            layouts: found
                .layouts
                .iter()
                .map(|(layout, count)| (layout.name(), *count))
                .collect(),
            extended_inodes: found.extended_inodes,
            hard_links: found.hard_links,
            compressed_files: found.compressed_files,
            uncompressed_files: found.uncompressed_files,
            file_bytes: found.file_bytes,
            file_bytes_stored: found.file_bytes_stored,
            directory_bytes: found.directory_bytes,
            metadata_bytes: found.metadata_bytes,
            extents: plain
                .chain(algorithms)
                .map(|(name, e)| (name, e.into()))
                .collect(),
            inline_pclusters: found.inline_pclusters,
            fragments: found.fragments.0,
            fragment_bytes: found.fragments.1,
            holes: found.holes.0,
            hole_bytes: found.holes.1,
            pclusters: found.pclusters,
            file_sizes: found.file_sizes,
            xattr_inodes: found.xattr_inodes,
            xattrs_inline: found.xattrs_inline,
            xattrs_shared: found.xattrs_shared,
            extensions,
        })
    }

    /// For people.
    pub fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let list = |counts: &BTreeMap<&str, u64>| {
            let parts = counts
                .iter()
                .map(|(name, n)| format!("{} {name}", output::count(*n)));
            parts.collect::<Vec<_>>().join(", ")
        };
        row(out, "inodes", output::count(self.inodes))?;
        row(out, "kinds", list(&self.kinds))?;
        row(out, "layouts", list(&self.layouts))?;
        row(out, "extended inodes", output::count(self.extended_inodes))?;
        let share = 100.0 * self.file_bytes_stored as f64 / self.file_bytes.max(1) as f64;
        let (bytes, stored) = (
            output::bytes(self.file_bytes),
            output::bytes(self.file_bytes_stored),
        );
        row(
            out,
            "file data",
            format_args!("{bytes}, stored in {stored} ({share:.1} %)"),
        )?;
        let (compressed, other) = (
            output::count(self.compressed_files),
            output::count(self.uncompressed_files),
        );
        row(
            out,
            "files",
            format_args!("{compressed} compressed, {other} not"),
        )?;
        row(out, "metadata", output::bytes(self.metadata_bytes))?;
        for (name, extents) in &self.extents {
            let ExtentsView {
                extents,
                bytes,
                stored_bytes,
            } = extents;
            let (bytes, stored) = (output::bytes(*bytes), output::bytes(*stored_bytes));
            row(
                out,
                &format!("extents, {name}"),
                format_args!("{}: {bytes} in {stored}", output::count(*extents)),
            )?;
        }
        let tails = output::count(self.inline_pclusters);
        row(out, "inline pclusters", tails)?;
        row(
            out,
            "fragments",
            format_args!(
                "{}: {}",
                output::count(self.fragments),
                output::bytes(self.fragment_bytes)
            ),
        )?;
        row(
            out,
            "holes",
            format_args!(
                "{}: {}",
                output::count(self.holes),
                output::bytes(self.hole_bytes)
            ),
        )?;
        let (inline, shared) = (
            output::count(self.xattrs_inline),
            output::count(self.xattrs_shared),
        );
        row(
            out,
            "xattrs",
            format_args!(
                "{inline} inline, {shared} shared, in {} inodes",
                output::count(self.xattr_inodes)
            ),
        )?;
        self.print_extensions(out)
    }

    fn print_extensions(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:<12} {:>10} {:>12} {:>12}",
            "extension", "files", "bytes", "stored"
        )?;
        for view in self.extensions.iter().take(EXTENSIONS_SHOWN) {
            let ExtensionView {
                extension,
                files,
                bytes,
                stored_bytes,
            } = view;
            let (bytes, stored) = (output::bytes(*bytes), output::bytes(*stored_bytes));
            writeln!(out, "{extension:<12} {files:>10} {bytes:>12} {stored:>12}")?;
        }
        Ok(())
    }
}

impl From<ExtentStatistics> for ExtentsView {
    fn from(found: ExtentStatistics) -> Self {
        let ExtentStatistics {
            extents,
            bytes,
            stored_bytes,
        } = found;
        Self {
            extents,
            bytes,
            stored_bytes,
        }
    }
}

/// Those that take most first.
fn extensions(found: &Statistics) -> Vec<ExtensionView> {
    let view = |(extension, e): (&Vec<u8>, &anteros_image::ExtensionStatistics)| ExtensionView {
        extension: if extension.is_empty() {
            "none".into()
        } else {
            output::name(extension)
        },
        files: e.files,
        bytes: e.bytes,
        stored_bytes: e.stored_bytes,
    };
    let mut views: Vec<_> = found.extensions.iter().map(view).collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.stored_bytes));
    views
}
