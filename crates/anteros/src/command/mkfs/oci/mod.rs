//! An OCI image layout as a source, in a directory or an archive: the layers of an image in it, the lowest first.
//!
//! ```text
//! index.json ─► (index ─►) manifest ─► layers
//!               └── blobs/sha256/DIGEST ────┘
//! ```
//!
//! The index lists images by name and platform; it may list another index, as it does for an image of
//! several platforms. If it tells no platform, the image's configuration does. Every blob is compared
//! with its size and its digest: documents before they are parsed, layers while they are read.
//! [`docker`] reads what Docker saved before it wrote image layouts.

mod docker;
mod store;

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};

use anteros_build::{Archive, Layer};
use anteros_core::unpoisoned;
use anteros_verity::hex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Kind};
use store::{Part, Store};

/// Beginning of a source that is an image layout.
const PREFIX: &[u8] = b"oci:";
/// File that tells the version of a layout.
const LAYOUT: &str = "oci-layout";
/// Annotation of an image's name.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Largest index or manifest, which registries bound as well.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Most indexes that lead to each other.
const INDEXES_MAX: usize = 4;

/// The place of an image: `oci:PATH[:REF]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    name: Option<String>,
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

    fn failure(&self, kind: Kind, text: impl std::fmt::Display) -> Failure {
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
    fn usual() -> Self {
        Self {
            os: "linux".into(),
            architecture: "amd64".into(),
            variant: None,
        }
    }

    fn is_met_by(&self, other: &Self) -> bool {
        let variants =
            (self.variant.as_ref()).is_none_or(|own| other.variant.as_ref() == Some(own));
        self.os == other.os && self.architecture == other.architecture && variants
    }
}

/// A blob as documents name it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    annotations: Option<HashMap<String, String>>,
}

impl Descriptor {
    fn name(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(REF_NAME).map(String::as_str)
    }

    fn is_index(&self) -> bool {
        self.media_type.contains("image.index") || self.media_type.contains("manifest.list")
    }

    fn is_layer(&self) -> bool {
        let kinds = [".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip"];
        kinds.iter().any(|kind| self.media_type.ends_with(kind))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutVersion {
    image_layout_version: String,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    /// A descriptor, but of artifacts that are no images.
    #[serde(default)]
    config: serde_json::Value,
    layers: Vec<Descriptor>,
}

/// Opens the layers of an image, the lowest first.
pub fn layers(place: &Place, platform: Option<&Platform>) -> Result<Vec<Layer<'static>>, Failure> {
    let store = Store::open(&place.path)?;
    if !store.has(LAYOUT) && store.has(docker::MANIFEST) {
        return docker::layers(place, &store, platform);
    }
    let version: LayoutVersion = document(&store, LAYOUT, None)?;
    let version = version.image_layout_version;
    if !version.starts_with("1.") {
        let text = format!("an image layout of version {version}, which is not supported");
        return Err(place.failure(Kind::Unsupported, text));
    }
    let index: Index = document(&store, "index.json", None)?;
    let named = |found: &Descriptor| place.name.is_none() || found.name() == place.name.as_deref();
    let (named, others): (Vec<_>, _) = index.manifests.into_iter().partition(named);
    if named.is_empty() {
        let names = others.iter().filter_map(Descriptor::name);
        return Err(missing(place, names.collect()));
    }
    let mut found = choose(place, &store, named, platform)?;
    for _ in 0..INDEXES_MAX {
        if !found.is_index() {
            let manifest: Manifest = blob_document(place, &store, &found)?;
            let layers = manifest.layers.iter();
            return layers.map(|blob| layer(place, &store, blob)).collect();
        }
        let index: Index = blob_document(place, &store, &found)?;
        found = choose(place, &store, index.manifests, platform)?;
    }
    Err(place.failure(Kind::Corrupt, "indexes lead to each other"))
}

/// Tells the platform of each image whose index does not, by its configuration.
fn tell_platforms(place: &Place, store: &Store, found: &mut [Descriptor]) -> Result<(), Failure> {
    let untold = |found: &&mut Descriptor| found.platform.is_none() && !found.is_index();
    for found in found.iter_mut().filter(untold) {
        let manifest: Manifest = blob_document(place, store, found)?;
        if let Ok(config) = serde_json::from_value::<Descriptor>(manifest.config) {
            let config: serde_json::Value = blob_document(place, store, &config)?;
            found.platform = serde_json::from_value(config).ok();
        }
    }
    Ok(())
}

/// The failure that no image has the name.
fn missing(place: &Place, names: Vec<&str>) -> Failure {
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

/// Chooses the only image, or that for the platform.
fn choose(
    place: &Place,
    store: &Store,
    mut found: Vec<Descriptor>,
    platform: Option<&Platform>,
) -> Result<Descriptor, Failure> {
    if found.len() > 1 || platform.is_some() {
        tell_platforms(place, store, &mut found)?;
        let wanted = platform.cloned().unwrap_or_else(Platform::usual);
        let is_met = |other: &Platform| wanted.is_met_by(other);
        found.retain(|found| found.platform.as_ref().is_none_or(is_met));
    }
    let mut names = found.iter().filter_map(Descriptor::name);
    match (found.len(), names.next()) {
        (1, _) => Ok(found.remove(0)),
        (0, _) => Err(of_no_platform(place)),
        (count, Some(name)) => Err(place
            .failure(Kind::Usage, format_args!("there are {count} images in it"))
            .hint(format_args!(
                "name one: oci:{}:{name}",
                place.path.display()
            ))),
        (count, None) => Err(place
            .failure(
                Kind::Usage,
                format_args!("there are {count} images in it for this platform"),
            )
            .hint("--platform takes a variant as well, as in linux/arm/v7")),
    }
}

/// The failure that no image is for the platform.
fn of_no_platform(place: &Place) -> Failure {
    let failure = place.failure(Kind::Usage, "no image in it is for this platform");
    failure.hint("--platform names another")
}

/// Opens a layer.
fn layer(place: &Place, store: &Store, found: &Descriptor) -> Result<Layer<'static>, Failure> {
    if !found.is_layer() {
        let kind = found.media_type.escape_debug();
        let text = format!("a layer of type `{kind}`, which is not supported");
        return Err(place.failure(Kind::Unsupported, text));
    }
    let name = blob_name(place, found)?;
    let (path, part) = (store.path(&name), store.file(&name)?);
    same_size(found, part.len()).map_err(|text| corrupt(&path, &text))?;
    let blob = Arc::new(Mutex::new(Blob {
        part,
        told: found.clone(),
        bytes: 0,
        sum: Sha256::new(),
    }));
    let (reader, end) = (Shared(Arc::clone(&blob)), Shared(blob));
    let archive = Archive::from_reader(path, reader).checked(move || end.lock().check());
    Ok(Layer::Tar(archive))
}

/// Reads a document that is a blob.
fn blob_document<T: DeserializeOwned>(
    place: &Place,
    store: &Store,
    found: &Descriptor,
) -> Result<T, Failure> {
    document(store, &blob_name(place, found)?, Some(found))
}

/// Reads a document; if a descriptor names it, as that says.
fn document<T: DeserializeOwned>(
    store: &Store,
    name: &str,
    told: Option<&Descriptor>,
) -> Result<T, Failure> {
    let path = store.path(name);
    let corrupt = |text: String| corrupt(&path, &text);
    let mut text = Vec::new();
    let mut most = store.file(name)?.take(DOCUMENT_BYTES_MAX + 1);
    most.read_to_end(&mut text)
        .map_err(|e| Failure::system(&path, &e))?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(corrupt(format!(
            "a document of more than {DOCUMENT_BYTES_MAX} bytes"
        )));
    }
    if let Some(told) = told {
        let sum = Sha256::new().chain_update(&text);
        same(told, text.len() as u64, sum).map_err(corrupt)?;
    }
    serde_json::from_slice(&text).map_err(|e| corrupt(e.to_string()))
}

fn blob_name(place: &Place, found: &Descriptor) -> Result<String, Failure> {
    let digits = found.digest.strip_prefix("sha256:");
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match digits.filter(|digits| digits.len() == 64 && digits.bytes().all(is_digit)) {
        Some(digits) => Ok(format!("blobs/sha256/{digits}")),
        None => {
            let digest = found.digest.escape_debug();
            let text = format!("a blob of digest `{digest}`; only those of sha256 are supported");
            Err(place.failure(Kind::Unsupported, text))
        }
    }
}

fn corrupt(path: &Path, text: &str) -> Failure {
    let message = format!("{}: {text}", path.display());
    Failure::new(Kind::Corrupt, message)
}

/// Compares a blob with its descriptor.
fn same(told: &Descriptor, bytes: u64, sum: Sha256) -> Result<(), String> {
    same_size(told, bytes)?;
    let digits = sum.finalize();
    let digits = hex::encode(&digits);
    match told.digest.strip_prefix("sha256:") == Some(&digits) {
        true => Ok(()),
        false => Err(format!(
            "its digest is sha256:{digits}, not that of its name"
        )),
    }
}

fn same_size(told: &Descriptor, bytes: u64) -> Result<(), String> {
    match bytes == told.size {
        true => Ok(()),
        false => Err(format!("it has {bytes} bytes, not {}", told.size)),
    }
}

/// A blob while it is read.
struct Blob {
    part: Part,
    told: Descriptor,
    bytes: u64,
    sum: Sha256,
}

impl Blob {
    /// Reads the rest, and compares all of it with its descriptor.
    fn check(&mut self) -> Result<(), String> {
        io::copy(self, &mut io::sink()).map_err(|e| e.to_string())?;
        same(&self.told, self.bytes, self.sum.clone())
    }
}

impl Read for Blob {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.part.read(buf)?;
        self.sum.update(&buf[..len]);
        self.bytes += len as u64;
        Ok(len)
    }
}

/// A blob that one reads and another checks.
struct Shared(Arc<Mutex<Blob>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Blob> {
        unpoisoned(self.0.lock())
    }
}

impl Read for Shared {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buf)
    }
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
