//! The images that are read: a corpus in one of several file systems, made once and kept.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::Outcome;
use crate::peers;
use crate::run::run;

/// A file system with the options that its image is made with.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Format {
    /// By `mkfs.erofs` with these options.
    Erofs(&'static [&'static str]),
    /// By this program with a preset.
    Preset(PathBuf, &'static str),
    /// By `mksquashfs` with LZ4 at its best level and blocks of this size.
    Squashfs(&'static str),
    /// By `mksquashfs` with XZ and blocks of 128 KiB.
    SquashfsXz,
    /// Without a journal, by `mkfs.ext4`.
    Ext4,
    /// By `mkdwarfs` as it is.
    Dwarfs,
}

/// The pclusters of 4 KiB that the EROFS paper measures.
pub(super) const EROFS_4K: Format = Format::Erofs(&["-zlz4hc"]);
/// Pclusters of up to 64 KiB.
pub(super) const EROFS_64K: Format = Format::Erofs(&["-zlz4hc", "-C65536"]);
/// Pclusters of up to 1 MiB with the slowest codec.
pub(super) const EROFS_LZMA_1M: Format = Format::Erofs(&["-zlzma", "-C1048576"]);

/// Options of every `mksquashfs`.
const SQUASHFS: [&str; 3] = ["-noappend", "-no-progress", "-quiet"];

/// States what ext4 needs beside the data: a share of it, and bytes besides.
const EXT4_SHARE: u64 = 4;
const EXT4_BYTES: u64 = 64 << 20;

impl Format {
    /// The name as it stands in an image's, such as `lz4hc-C65536.erofs`.
    fn suffix(&self) -> String {
        match self {
            Self::Erofs(options) => {
                let options: String = options.concat();
                format!(
                    "{}.erofs",
                    options.trim_start_matches("-z").replace(',', "+")
                )
            }
            Self::Preset(_, preset) => format!("{}.erofs", preset.trim_start_matches('-')),
            Self::Squashfs(block) => format!("lz4hc-{block}.squashfs"),
            Self::SquashfsXz => "xz-128K.squashfs".to_owned(),
            Self::Ext4 => "ext4".to_owned(),
            Self::Dwarfs => "dwarfs".to_owned(),
        }
    }

    /// Returns what the kernel calls the file system.
    pub(super) fn kernel_name(&self) -> &'static str {
        match self {
            Self::Erofs(_) | Self::Preset(..) => "erofs",
            Self::Squashfs(_) | Self::SquashfsXz => "squashfs",
            Self::Ext4 => "ext4",
            Self::Dwarfs => "dwarfs",
        }
    }

    /// Makes the image of a corpus, unless it is there, and tells where it is.
    ///
    /// # Errors
    /// When the program that makes it is missing or fails.
    pub(super) fn image(&self, directory: &Path, corpus: &Path) -> Outcome<PathBuf> {
        let name = corpus.file_name().unwrap_or_default().to_string_lossy();
        let image = directory.join(format!("{name}-{}", self.suffix()));
        if !image.exists() {
            eprintln!("bench read: making {}", image.display());
            let partial = image.with_extension("partial");
            let _ = fs::remove_file(&partial);
            run(self.maker(&partial, corpus)?.stdout(Stdio::null()))?;
            fs::rename(&partial, &image)?;
        }
        Ok(image)
    }

    fn maker(&self, image: &Path, corpus: &Path) -> Outcome<Command> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut command = match self {
            Self::Erofs(_) => peers::command("mkfs.erofs")?,
            Self::Preset(program, _) => Command::new(program),
            Self::Squashfs(_) | Self::SquashfsXz => peers::command("mksquashfs")?,
            Self::Ext4 => Command::new("mkfs.ext4"),
            Self::Dwarfs => Command::new("mkdwarfs"),
        };
        match self {
            Self::Erofs(options) => command
                .args(["--quiet", "-T0"])
                .args(*options)
                .args([image, corpus]),
            Self::Preset(_, preset) => command
                .args(["mkfs", "--quiet", "-T0", preset])
                .args([image, corpus]),
            Self::Squashfs(block) => command
                .args([corpus, image])
                .args(SQUASHFS)
                .args(["-comp", "lz4", "-Xhc", "-b", block]),
            Self::SquashfsXz => command
                .args([corpus, image])
                .args(SQUASHFS)
                .args(["-comp", "xz", "-b", "128K"]),
            Self::Ext4 => command
                .args(words(&["-q", "-F", "-O", "^has_journal", "-m", "0", "-d"]))
                .args([corpus, image])
                .arg(format!("{}k", ext4_bytes(corpus)? / 1024)),
            Self::Dwarfs => command
                .args([Path::new("-i"), corpus, Path::new("-o"), image])
                .args(["--no-progress", "--log-level=error"]),
        };
        Ok(command)
    }
}

/// Returns how large an ext4 must be for a tree.
fn ext4_bytes(corpus: &Path) -> Outcome<u64> {
    let bytes = crate::bench::tree::stored_bytes(corpus)?;
    Ok(bytes + bytes / EXT4_SHARE + EXT4_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_after_all_their_options() {
        assert_eq!(EROFS_4K.suffix(), "lz4hc.erofs");
        let zstd = Format::Erofs(&["-zzstd,level=9", "-C1048576"]);
        assert_eq!(zstd.suffix(), "zstd+level=9-C1048576.erofs");
        assert_eq!(Format::Squashfs("4K").suffix(), "lz4hc-4K.squashfs");
    }
}
