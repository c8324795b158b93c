//! `--compress-hints`: a file that says how the files of some paths are compressed.
//!
//! A line has a cluster size, the place of a codec in `-z` from 0 on (0 if it is left out), and a regular expression:
//!
//! ```text
//! # programs are read at random, archives are compressed already
//! 16384      ^usr/bin/
//! 1048576 1  \.html$
//! 0          \.(gz|xz|png)$
//! ```

use std::path::Path;

use anteros_build::{Hint, PCLUSTER_BLOCKS_MAX, Setting};

use super::compressor::Compressor;
use crate::failure::{Failure, Kind};
use crate::output;

/// Codecs and clusters that hints choose from.
pub struct Choice<'a> {
    pub compressors: &'a [Compressor],
    pub block_bytes: u32,
}

impl Choice<'_> {
    /// Reads a file of hints. A cluster size that there cannot be is told, and its line left out.
    pub fn read(&self, path: &Path) -> Result<Vec<Hint>, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::system(path, &e))?;
        let mut hints = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let at = || format!("{}, line {}", path.display(), number + 1);
            let usage = |text: String| Failure::new(Kind::Usage, format!("{}: {text}", at()));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (size, place, expression) = words(line).map_err(usage)?;
            let cluster_bytes = size_of(size).map_err(usage)?;
            if !self.is_possible(cluster_bytes) {
                let text = format!(
                    "{}: no cluster has {size} bytes; the line is left out",
                    at()
                );
                output::complain("warning", text);
                continue;
            }
            let setting = self.setting(cluster_bytes, place).map_err(usage)?;
            let hint = Hint::new(expression, setting);
            hints.push(hint.map_err(|e| usage(e.to_string()))?);
        }
        Ok(hints)
    }

    fn is_possible(&self, cluster_bytes: u32) -> bool {
        cluster_bytes % self.block_bytes == 0
            && cluster_bytes / self.block_bytes <= PCLUSTER_BLOCKS_MAX
    }

    /// The codec at a place of `-z`, in clusters of so many bytes; `None` for files that stay as they are.
    fn setting(&self, cluster_bytes: u32, place: &str) -> Result<Option<Setting>, String> {
        let number = place.parse::<usize>();
        let number = number.map_err(|_| format!("`{place}` is no place in -z"))?;
        let compressor = self.compressors.get(number).ok_or_else(|| {
            let count = self.compressors.len();
            format!("-z has no codec {number}; it has {count}, the first is 0")
        })?;
        let codec = compressor.codec(cluster_bytes);
        let is_compressed = cluster_bytes > 0;
        Ok(codec.filter(|_| is_compressed).map(|codec| Setting {
            codec,
            pcluster_bytes: cluster_bytes,
            quick: None,
        }))
    }
}

/// The cluster size, the place of the codec and the expression of a line.
fn words(line: &str) -> Result<(&str, &str, &str), String> {
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(size), Some(expression), None, None) => Ok((size, "0", expression)),
        (Some(size), Some(place), Some(expression), None) => Ok((size, place, expression)),
        (_, None, ..) => Err("no regular expression behind the cluster size".into()),
        _ => Err("more than a cluster size, a place in -z and a regular expression".into()),
    }
}

fn size_of(text: &str) -> Result<u32, String> {
    let bytes = anteros_core::parse_size(text).map_err(|e| format!("cluster size: {e}"))?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use anteros_build::{Codec, Effort};

    use super::*;

    fn read(text: &str) -> Result<Vec<Hint>, Failure> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let choice = Choice {
            compressors: &["lz4".parse().unwrap(), "lzma,9".parse().unwrap()],
            block_bytes: 4096,
        };
        choice.read(file.path())
    }

    fn settings(text: &str) -> Vec<Option<Setting>> {
        let hints = read(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        hints.iter().map(Hint::setting).collect()
    }

    #[test]
    fn a_line_has_a_size_a_codec_and_an_expression() {
        let lz4 = |pcluster_bytes| {
            Some(Setting {
                codec: Effort::Fast.into(),
                pcluster_bytes,
                quick: None,
            })
        };
        let lzma = Some(Setting {
            codec: Codec::Lzma {
                level: 9,
                extreme: false,
                dict_bytes: 256 << 10,
            },
            pcluster_bytes: 65536,
            quick: None,
        });
        let text = "# none\n\n16384 ^usr/bin/\n  8K\t0 a b\n";
        assert!(read(text).is_err(), "a blank ends an expression");
        let text = "# none\n\n16384 ^usr/bin/\n  8K\t0 a.b\n65536 1 [.]html$\n0 [.]gz$\n0 1 x\n";
        assert_eq!(settings(text), [lz4(16384), lz4(8192), lzma, None, None]);
        assert_eq!(settings(""), []);
    }

    #[test]
    fn impossible_clusters_are_left_out() {
        assert_eq!(settings("5000 a\n2M b\n99999999999 c\n").len(), 0);
    }

    #[test]
    fn whatever_is_no_hint_is_refused_with_its_line() {
        for (bad, why) in [
            ("4096", "no regular expression"),
            ("4096 2 a", "no codec 2"),
            ("4096 -1 a", "no place"),
            ("x a", "cluster size"),
            ("4096 0 a b", "more than"),
            ("4096 (", "the hint"),
        ] {
            let failure = read(&format!("\n{bad}\n")).map(|_| ()).unwrap_err();
            let text = format!("{failure:?}");
            assert!(text.contains("line 2") && text.contains(why), "{text}");
        }
    }
}
