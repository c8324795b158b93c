//! Sums over files, and histograms by size and by extension, in the rows and columns of the peer.

use std::io::{self, Write};

use anteros_core::FileKind;
use anteros_format::inode::Inode;
use anteros_image::Image;

/// Rows by size: less than 1 KiB, 1, 2, 4, …, and all from 32 MiB on.
const ROWS: usize = 17;

/// Extensions that have a row of their own.
const EXTENSIONS: [&str; 9] = [
    ".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf",
];

/// Columns of a bar, each for so many percent.
const BAR_COLUMNS: usize = 50;
const COLUMN_PERCENT: f64 = 2.0;

/// Files, counted once for each name. The packed inode has none, and counts among what takes room.
#[derive(Debug, Default)]
pub struct Histograms {
    /// Names of whatever is compressed, directories included.
    pub compressed: u64,
    /// Sizes of regular files.
    pub bytes: u64,
    /// Bytes that regular files take.
    pub stored_bytes: u64,
    /// Names of regular files.
    names: u64,
    sizes: [u64; ROWS],
    stored: [u64; ROWS],
    extensions: [u64; EXTENSIONS.len()],
}

impl Histograms {
    /// Counts a name.
    pub fn add(&mut self, image: &Image, name: &[u8], inode: &Inode) {
        if inode.kind != FileKind::Regular {
            self.compressed += u64::from(inode.layout.is_compressed());
            return;
        }
        self.names += 1;
        self.sizes[row_of(inode.size)] += 1;
        self.bytes = self.bytes.saturating_add(inode.size);
        self.add_stored(image, inode);
        let dot = name.iter().rposition(|&byte| byte == b'.');
        let extension = dot.map_or(&[][..], |dot| &name[dot..]);
        let mut known = EXTENSIONS.iter().zip(&mut self.extensions);
        let found = known.find(|(known, _)| known.as_bytes() == extension);
        if let Some((_, count)) = found {
            *count += 1;
        }
    }

    /// Counts what takes room, whether or not it has a name.
    pub fn add_stored(&mut self, image: &Image, inode: &Inode) {
        let stored = stored(image, inode);
        self.compressed += u64::from(inode.layout.is_compressed());
        self.stored[row_of(stored)] += 1;
        self.stored_bytes = self.stored_bytes.saturating_add(stored);
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for (title, counts) in [("Original", &self.sizes), ("On-disk", &self.stored)] {
            head(
                out,
                &format!("{title} file size distribution"),
                ">=(KB) .. <(KB) ",
            )?;
            for (row, count) in counts.iter().enumerate() {
                self.row(out, &label(row), *count)?;
            }
        }
        head(out, "File type distribution", "type            ")?;
        for (extension, count) in EXTENSIONS.iter().zip(self.extensions) {
            self.row(out, &format!("{extension:<17}"), count)?;
        }
        let others = self.names - self.extensions.iter().sum::<u64>();
        self.row(out, &format!("{:<17}", "others"), others)
    }

    fn row(&self, out: &mut impl Write, label: &str, count: u64) -> io::Result<()> {
        let percent = 100.0 * count as f64 / self.names.max(1) as f64;
        let bar = "#".repeat((percent / COLUMN_PERCENT) as usize);
        writeln!(
            out,
            "{label}\t{count:<10}{percent:>10.2}% |{bar:<BAR_COLUMNS$}|"
        )
    }
}

fn head(out: &mut impl Write, title: &str, first: &str) -> io::Result<()> {
    let bar = format!("{:<BAR_COLUMNS$}", "distribution");
    writeln!(
        out,
        "\n{title}:\n{first}       count            ratio |{bar}|"
    )
}

/// The row of a size: that of its KiB's highest bit.
fn row_of(size: u64) -> usize {
    let kib = size >> 10;
    let bits = (u64::BITS - kib.leading_zeros()) as usize;
    bits.min(ROWS - 1)
}

fn label(row: usize) -> String {
    let start = match row {
        0 => 0,
        row => 1 << (row - 1),
    };
    match row {
        row if row == ROWS - 1 => format!("{start:>6} .. {:<6}", ""),
        row => format!("{start:>6} .. {:<6}", 1 << row),
    }
}

/// Bytes that a file takes; what is not compressed counts as large as it is, holes included.
fn stored(image: &Image, inode: &Inode) -> u64 {
    match inode.layout.is_compressed() {
        true => inode
            .compressed_blocks
            .saturating_mul(image.superblock().block_bytes().into()),
        false => inode.size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_rows() {
        for (size, row) in [
            (0, 0),
            (1023, 0),
            (1024, 1),
            (2047, 1),
            (2048, 2),
            ((32 << 20) - 1, 15),
            (32 << 20, 16),
            (u64::MAX, 16),
        ] {
            assert_eq!(row_of(size), row, "{size}");
        }
        assert_eq!(label(0), "     0 .. 1     ");
        assert_eq!(label(15), " 16384 .. 32768 ");
        assert_eq!(label(16), " 32768 ..       ");
    }
}
