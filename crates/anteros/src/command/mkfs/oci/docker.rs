//! Images as `docker save` wrote them before version 25, and others still do: a manifest names layers by their files.
//!
//! Files have no digests there.

use anteros_build::{Archive, Layer};
use serde::Deserialize;

use super::blob::document;
use super::place::{Place, Platform, missing, of_no_platform};
use super::store::Store;
use crate::failure::{Failure, Kind};

/// The file that lists images.
pub const MANIFEST: &str = "manifest.json";

/// An image.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Image {
    /// Returns whether a name is one of the image's, which may begin with a registry and a library.
    fn is_named(&self, name: &str) -> bool {
        let is_it = |tag: &&str| *tag == name || tag.ends_with(&format!("/{name}"));
        self.tags().any(|tag| is_it(&tag))
    }

    fn tags(&self) -> impl Iterator<Item = &str> {
        self.repo_tags.iter().flatten().map(String::as_str)
    }
}

/// Opens the layers of an image, the lowest first.
pub fn layers(
    place: &Place,
    store: &Store,
    platform: Option<&Platform>,
) -> Result<Vec<Layer<'static>>, Failure> {
    let images: Vec<Image> = document(store, MANIFEST, None)?;
    let is_named = |image: &&Image| {
        place
            .name
            .as_deref()
            .is_none_or(|name| image.is_named(name))
    };
    let named: Vec<&Image> = images.iter().filter(is_named).collect();
    let image = match named[..] {
        [image] => image,
        [] => {
            return Err(missing(
                place,
                images.iter().flat_map(Image::tags).collect(),
            ));
        }
        _ => {
            let text = format!("there are {} images in it", named.len());
            let tag = images.iter().flat_map(Image::tags).next().unwrap_or("NAME");
            let hint = format!("name one: oci:{}:{tag}", place.path.display());
            return Err(place.failure(Kind::Usage, text).hint(hint));
        }
    };
    if let Some(wanted) = platform {
        let found: Platform = document(store, &image.config, None)?;
        if !wanted.is_met_by(&found) {
            return Err(of_no_platform(place));
        }
    }
    let layers = image.layers.iter();
    layers.map(|name| layer(store, name)).collect()
}

fn layer(store: &Store, name: &str) -> Result<Layer<'static>, Failure> {
    let archive = Archive::from_reader(store.path(name), store.file(name)?);
    Ok(Layer::Tar(archive))
}
