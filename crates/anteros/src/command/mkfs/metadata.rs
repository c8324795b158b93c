//! `-m`: how metadata is compressed.

use std::str::FromStr;

use anteros_build::{Codec, Setting};

use super::compressor::Compressor;

/// The value of `-m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    cluster_bytes: u32,
    by: By,
}

/// Codec of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The codec of files.
    Files,
    /// The codec at a place of `-z`.
    Place(usize),
    /// A codec of its own.
    Own(Compressor),
}

impl Metadata {
    /// Returns how metadata is compressed, where files are compressed by the first of these, which is `usual`.
    ///
    /// # Errors
    ///
    /// The text of what is wrong, if there is no such codec.
    pub fn setting(
        self,
        usual: Option<Codec>,
        compressors: &[Compressor],
    ) -> Result<Setting, String> {
        let none = || "-m: there is no codec for metadata; `-m4096:lz4hc` names one".to_owned();
        let compressor = match self.by {
            By::Files => return Ok(self.with(usual.ok_or_else(none)?)),
            By::Own(compressor) => compressor,
            By::Place(number) => *compressors.get(number).ok_or_else(|| {
                let count = compressors.len();
                format!("-m: -z has no codec {number}; it has {count}, the first is 0")
            })?,
        };
        let codec = compressor.codec(self.cluster_bytes).ok_or_else(none)?;
        Ok(self.with(codec))
    }

    fn with(self, codec: Codec) -> Setting {
        Setting {
            codec,
            pcluster_bytes: self.cluster_bytes,
            quick: None,
        }
    }
}

impl FromStr for Metadata {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (size, by) = match text.split_once(':') {
            None => (text, By::Files),
            Some((size, by)) => (size, by.parse()?),
        };
        let bytes = anteros_core::parse_size(size).map_err(|e| e.to_string())?;
        let cluster_bytes = u32::try_from(bytes).map_err(|_| "clusters have at most 1M")?;
        Ok(Self { cluster_bytes, by })
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number) => Ok(Self::Place(number)),
            Err(_) => text.parse().map(Self::Own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Result<Setting, String> {
        let compressors = ["lz4", "deflate,9", "none"];
        let compressors = compressors.map(|text| text.parse::<Compressor>().unwrap());
        let metadata: Metadata = text.parse()?;
        metadata.setting(compressors[0].codec(65_536), &compressors)
    }

    #[test]
    fn the_codec_is_that_of_files_or_another() {
        let lz4 = anteros_build::Effort::Fast.into();
        let deflate = |level| Codec::Deflate { level };
        for (text, codec, pcluster_bytes) in [
            ("4096", lz4, 4096),
            ("64K:0", lz4, 65_536),
            ("8K:1", deflate(9), 8192),
            ("4K:deflate,3", deflate(3), 4096),
        ] {
            let expected = Setting {
                codec,
                pcluster_bytes,
                quick: None,
            };
            assert_eq!(setting(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_codec_is_refused() {
        for (text, said) in [
            ("4K:2", "no codec for metadata"),
            ("4K:none", "no codec for metadata"),
            ("4K:3", "no codec 3"),
            ("4K:", "are known"),
            ("4K:gzip", "are known"),
            ("x", "x"),
            ("", ""),
            ("9G", "at most 1M"),
        ] {
            let refused = setting(text).unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
        }
        let metadata: Metadata = "4096".parse().unwrap();
        assert!(metadata.setting(None, &[]).is_err());
    }
}
