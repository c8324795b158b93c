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

mod blob;
mod docker;
mod place;
mod store;

use anteros_build::Layer;
use serde::Deserialize;

use crate::failure::{Failure, Kind};
use blob::{Descriptor, blob_document, document, layer};
use place::{missing, of_no_platform};
use store::Store;

pub use place::{Place, Platform};

/// File that tells the version of a layout.
const LAYOUT: &str = "oci-layout";
/// Most indexes that lead to each other.
const INDEXES_MAX: usize = 4;

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
