//! `-z`: a codec, its level and its dictionary, in the words of `mkfs.erofs`.

use std::str::FromStr;

use anteros_build::{Codec, Effort};
use anteros_codec::Params;

/// The value of `-z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    /// Files are stored as they are.
    None,
    /// A codec. The dictionary depends on the size of clusters unless it was given.
    Some {
        codec: Codec,
        dict_bytes: Option<u32>,
    },
}

/// Needs as many blocks as level 9 of liblz4 or fewer, and about as much time or less.
pub const LEVEL_9: Effort = Effort::Lazy(160);
/// Needs as many blocks as level 12 of liblz4 or fewer.
pub const LEVEL_12: Effort = Effort::Optimal(1024);

/// Input beyond which a stream of a cluster's size seldom goes, in clusters: so far its matches reach.
const LZMA_DICT_CLUSTERS: u32 = 4;
const ZSTD_WINDOW_CLUSTERS: u32 = 8;
/// The smallest dictionary of LZMA that is not asked for.
const LZMA_DICT_BYTES_USUAL: u32 = 32 << 10;
const LZMA_DICT_BYTES_MAX: u32 = Params::LZMA_DICT_BYTES_MAX;
const ZSTD_WINDOW_BYTES_MIN: u32 = 1 << Params::ZSTD_WINDOW_LOG_MIN;
const ZSTD_WINDOW_BYTES_MAX: u32 = 1 << Params::ZSTD_WINDOW_LOG_MAX;
/// The window of DEFLATE.
const DEFLATE_WINDOW_BYTES: u32 = 1 << Params::DEFLATE_WINDOW_BITS;

/// Levels from here on are those of liblzma's `-e`: 100 to 109.
const LZMA_EXTREME: u32 = 100;

impl Compressor {
    /// The codec with the dictionary that it has in clusters of so many bytes.
    pub fn codec(self, cluster_bytes: u32) -> Option<Codec> {
        let Self::Some { codec, dict_bytes } = self else {
            return None;
        };
        let clusters = |count: u32| cluster_bytes.saturating_mul(count);
        Some(match codec {
            Codec::Lzma { level, extreme, .. } => {
                let usual = clusters(LZMA_DICT_CLUSTERS);
                let usual = usual.clamp(LZMA_DICT_BYTES_USUAL, LZMA_DICT_BYTES_MAX);
                Codec::Lzma {
                    level,
                    extreme,
                    dict_bytes: dict_bytes.unwrap_or(usual),
                }
            }
            Codec::Zstd { level, .. } => {
                let usual = clusters(ZSTD_WINDOW_CLUSTERS).min(ZSTD_WINDOW_BYTES_MAX);
                let bytes = dict_bytes.unwrap_or(usual.next_power_of_two());
                Codec::Zstd {
                    level,
                    window_log: bytes.ilog2() as u8,
                }
            }
            codec => codec,
        })
    }
}

impl Compressor {
    /// The dictionary of LZMA in clusters of so many bytes; 0 for any other codec.
    pub fn dict_bytes(self, cluster_bytes: u32) -> u32 {
        match self.codec(cluster_bytes) {
            Some(Codec::Lzma { dict_bytes, .. }) => dict_bytes,
            _ => 0,
        }
    }

    /// Gives it a dictionary of so many bytes.
    pub fn with_dict(self, bytes: u32) -> Self {
        match self {
            Self::None => Self::None,
            Self::Some { codec, .. } => Self::Some {
                codec,
                dict_bytes: Some(bytes),
            },
        }
    }
}

/// The value of `-z`: one compressor, or several, of which hints choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressors(Vec<Compressor>);

impl Compressors {
    /// All of them, at least one.
    pub fn all(&self) -> &[Compressor] {
        &self.0
    }
}

impl FromStr for Compressors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(':')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for Compressor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or(text);
        let (mut level, mut dict_bytes) = (None, None);
        for word in words {
            match word.split_once('=') {
                None => level = Some(number(word)?),
                Some(("level", value)) => level = Some(number(value)?),
                Some(("dictsize", value)) => dict_bytes = Some(size(value)?),
                Some((key, _)) => {
                    return Err(format!(
                        "`{key}` is no setting of {name}; level and dictsize are"
                    ));
                }
            }
        }
        if name == "none" {
            return match (level, dict_bytes) {
                (None, None) => Ok(Self::None),
                _ => Err("none has no levels".into()),
            };
        }
        let codec = codec(name, level)?;
        check_dict(name, &codec, dict_bytes)?;
        codec.check().map_err(|e| e.to_string())?;
        Ok(Self::Some { codec, dict_bytes })
    }
}

/// The codec of a name and a level. Level 0 is mkfs.erofs' word for the default of most.
fn codec(name: &str, level: Option<u32>) -> Result<Codec, String> {
    let byte = |level: u32| u8::try_from(level).unwrap_or(u8::MAX);
    let or = |default: u8| level.filter(|&level| level > 0).map_or(default, byte);
    Ok(match (name, level) {
        ("lz4", None) => Effort::Fast.into(),
        ("liblz4", None) => Effort::FastLiblz4.into(),
        ("lz4" | "liblz4", Some(_)) => {
            return Err(format!("{name} has no levels; {name}hc has"));
        }
        ("lz4hc", None | Some(0 | 9)) => LEVEL_9.into(),
        ("lz4hc", Some(10)) => Effort::Optimal(16).into(),
        ("lz4hc", Some(11)) => Effort::Optimal(256).into(),
        ("lz4hc", Some(12)) => LEVEL_12.into(),
        ("lz4hc" | "liblz4hc", _) => Effort::High(or(9)).into(),
        ("lzma", _) => {
            let level = level.unwrap_or(6);
            let extreme = level >= LZMA_EXTREME;
            Codec::Lzma {
                level: byte(level - if extreme { LZMA_EXTREME } else { 0 }),
                extreme,
                dict_bytes: LZMA_DICT_BYTES_MAX,
            }
        }
        ("deflate" | "libdeflate", _) => Codec::Deflate { level: or(6) },
        ("zstd", _) => Codec::Zstd {
            level: or(3),
            window_log: Params::ZSTD_WINDOW_LOG_MAX,
        },
        _ => return Err("lz4, lz4hc, lzma, deflate and zstd are known, and none".into()),
    })
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no level"))
}

fn size(text: &str) -> Result<u32, String> {
    let bytes = anteros_core::parse_size(text).map_err(|e| e.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("a dictionary of {text} is too large"))
}

fn check_dict(name: &str, codec: &Codec, dict_bytes: Option<u32>) -> Result<(), String> {
    let Some(bytes) = dict_bytes else {
        return Ok(());
    };
    let is_possible = match codec {
        Codec::Lz4(_) => return Err(format!("{name} has no dictsize")),
        Codec::Lzma { .. } => (Codec::LZMA_DICT_BYTES_MIN..=LZMA_DICT_BYTES_MAX).contains(&bytes),
        Codec::Deflate { .. } => bytes == DEFLATE_WINDOW_BYTES,
        Codec::Zstd { .. } => {
            (ZSTD_WINDOW_BYTES_MIN..=ZSTD_WINDOW_BYTES_MAX).contains(&bytes)
                && bytes.is_power_of_two()
        }
    };
    let possible = match codec {
        Codec::Lzma { .. } => "4K to 8M are",
        Codec::Deflate { .. } => "32K is",
        _ => "powers of two from 1K to 1M are",
    };
    match is_possible {
        true => Ok(()),
        false => Err(format!("{bytes} is no dictsize of {name}; {possible}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec_of(text: &str, cluster_bytes: u32) -> Codec {
        let parsed: Compressor = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        parsed.codec(cluster_bytes).unwrap()
    }

    #[test]
    fn lz4_has_the_levels_of_liblz4() {
        assert_eq!(codec_of("lz4", 4096), Effort::Fast.into());
        for (text, level) in [
            ("lz4hc,level=3", 3),
            ("lz4hc,8", 8),
            ("liblz4hc", 9),
            ("liblz4hc,12", 12),
        ] {
            assert_eq!(codec_of(text, 4096), Effort::High(level).into(), "{text}");
        }
        assert_eq!(codec_of("liblz4", 4096), Effort::FastLiblz4.into());
        for text in ["lz4hc", "lz4hc,0", "lz4hc,level=9"] {
            assert_eq!(codec_of(text, 4096), LEVEL_9.into(), "{text}");
        }
        for (text, candidates) in [("lz4hc,10", 16), ("lz4hc,level=12", 1024)] {
            assert_eq!(
                codec_of(text, 4096),
                Effort::Optimal(candidates).into(),
                "{text}"
            );
        }
    }

    #[test]
    fn dictionaries_grow_with_clusters_unless_they_are_given() {
        let lzma = |text, cluster| match codec_of(text, cluster) {
            Codec::Lzma {
                level,
                extreme,
                dict_bytes,
            } => (level, extreme, dict_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(lzma("lzma", 4096), (6, false, 32 << 10));
        assert_eq!(lzma("lzma,0", 64 << 10), (0, false, 256 << 10));
        assert_eq!(lzma("lzma,109", 1 << 20), (9, true, 4 << 20));
        assert_eq!(
            lzma("lzma,level=9,dictsize=8M", 1 << 20),
            (9, false, 8 << 20)
        );
        let zstd = |text, cluster| match codec_of(text, cluster) {
            Codec::Zstd { level, window_log } => (level, window_log),
            other => panic!("{other:?}"),
        };
        assert_eq!(zstd("zstd", 4096), (3, 15));
        assert_eq!(zstd("zstd,22", 1 << 20), (22, 20));
        assert_eq!(zstd("zstd,15,dictsize=65536", 1 << 20), (15, 16));
        assert_eq!(codec_of("deflate,9", 4096), Codec::Deflate { level: 9 });
        assert_eq!(
            codec_of("libdeflate,12,dictsize=32768", 4096),
            Codec::Deflate { level: 12 }
        );
    }

    #[test]
    fn several_stand_behind_colons() {
        let several: Compressors = "lz4hc,12:lzma,9,dictsize=1M:none".parse().unwrap();
        let each = ["lz4hc,12", "lzma,9,dictsize=1M", "none"].map(|text| text.parse().unwrap());
        assert_eq!(several.all(), each);
        for bad in ["", ":", "lz4:", ":lz4", "lz4:gzip"] {
            assert!(bad.parse::<Compressors>().is_err(), "{bad}");
        }
    }

    #[test]
    fn none_is_no_codec() {
        assert_eq!("none".parse::<Compressor>().unwrap().codec(4096), None);
    }

    #[test]
    fn whatever_there_is_not_is_refused() {
        for bad in [
            "",
            "none,1",
            "lz4,3",
            "liblz4,3",
            "lz4hc,13",
            "lz4hc,x",
            "lz4hc,9,dictsize=64K",
            "lz4:lzma",
            "gzip",
            "zstd,23",
            "zstd,dictsize=48K",
            "zstd,dictsize=2M",
            "zstd,dictsize=0",
            "zstd,-1",
            "lzma,10",
            "lzma,110",
            "lzma,99",
            "lzma,dictsize=16M",
            "lzma,dictsize=100G",
            "lzma,lc=4",
            "deflate,13",
            "deflate,dictsize=8K",
        ] {
            assert!(bad.parse::<Compressor>().is_err(), "{bad}");
        }
    }
}
