//! The place of an image, and the platform that it is for.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use crate::failure::{Failure, Kind};

/// Beginning of a source that is an image layout.
const PREFIX: &[u8] = b"oci:";

/// The place of an image: `oci:PATH[:REF]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    pub name: Option<String>,
}

impl Place {
    /// The place that a source names; `None` if it is a plain path.
    pub fn of(source: &Path) -> Option<Self> {
        let rest = source.as_os_str().as_bytes().strip_prefix(PREFIX)?;
        let colon = rest.iter().position(|byte| *byte == b':');
        let (path, name) = match colon {
            Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
            None => (rest, None),
        };
        Some(Self {
            path: std::ffi::OsStr::from_bytes(path).into(),
            name: name.map(|name| String::from_utf8_lossy(name).into_owned()),
        })
    }

    pub fn failure(&self, kind: Kind, text: impl std::fmt::Display) -> Failure {
        Failure::new(kind, format!("{}: {text}", self.path.display()))
    }
}

/// A platform that an image is for. Without a variant it stands for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = text.split('/').collect();
        match names[..] {
            [os, architecture, ref variant @ ..] if variant.len() < 2 && !names.contains(&"") => {
                Ok(Self {
                    os: os.into(),
                    architecture: architecture.into(),
                    variant: variant.first().map(|&variant| variant.into()),
                })
            }
            _ => Err("a platform is like linux/amd64, or linux/arm/v7".into()),
        }
    }
}

impl Platform {
    pub fn usual() -> Self {
        Self {
            os: "linux".into(),
            architecture: "amd64".into(),
            variant: None,
        }
    }

    pub fn is_met_by(&self, other: &Self) -> bool {
        let variants =
            (self.variant.as_ref()).is_none_or(|own| other.variant.as_ref() == Some(own));
        self.os == other.os && self.architecture == other.architecture && variants
    }
}

/// The failure that no image has the name.
pub fn missing(place: &Place, names: Vec<&str>) -> Failure {
    let Some(name) = &place.name else {
        return place.failure(Kind::Usage, "there is no image in it");
    };
    let failure = place.failure(
        Kind::Usage,
        format_args!("no image in it is named `{name}`"),
    );
    match names.is_empty() {
        true => failure,
        false => failure.hint(format_args!("its images are {}", names.join(", "))),
    }
}

/// The failure that no image is for the platform.
pub fn of_no_platform(place: &Place) -> Failure {
    let failure = place.failure(Kind::Usage, "no image in it is for this platform");
    failure.hint("--platform names another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |path: &str, name: Option<&str>| {
            Some(Place {
                path: path.into(),
                name: name.map(Into::into),
            })
        };
        for (source, expected) in [
            ("oci:a/b", place("a/b", None)),
            ("oci:a:b:c", place("a", Some("b:c"))),
            ("./oci:a", None),
            ("oci", None),
        ] {
            assert_eq!(Place::of(Path::new(source)), expected, "{source}");
        }
    }

    #[test]
    fn platforms() {
        let platform = |text: &str| text.parse::<Platform>();
        let arm = platform("linux/arm").unwrap();
        assert!(arm.is_met_by(&platform("linux/arm/v7").unwrap()));
        assert!(!platform("linux/arm/v6").unwrap().is_met_by(&arm));
        assert!(!arm.is_met_by(&Platform::usual()));
        for bad in ["linux", "linux/", "/arm", "linux/arm/v7/x", ""] {
            assert!(platform(bad).is_err(), "{bad}");
        }
    }
}
