//! Blobs: documents and layers, each compared with the size and the digest that name it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use anteros_build::{Archive, Layer};
use anteros_core::unpoisoned;
use anteros_verity::hex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::place::{Place, Platform};
use super::store::{Part, Store};
use crate::failure::{Failure, Kind};

/// Annotation of an image's name.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Largest index or manifest, which registries bound as well.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// A blob as documents name it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    pub platform: Option<Platform>,
    pub annotations: Option<HashMap<String, String>>,
}

impl Descriptor {
    pub fn name(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(REF_NAME).map(String::as_str)
    }

    pub fn is_index(&self) -> bool {
        self.media_type.contains("image.index") || self.media_type.contains("manifest.list")
    }

    pub fn is_layer(&self) -> bool {
        let kinds = [".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip"];
        kinds.iter().any(|kind| self.media_type.ends_with(kind))
    }
}

/// Opens a layer.
pub fn layer(place: &Place, store: &Store, found: &Descriptor) -> Result<Layer<'static>, Failure> {
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
pub fn blob_document<T: DeserializeOwned>(
    place: &Place,
    store: &Store,
    found: &Descriptor,
) -> Result<T, Failure> {
    document(store, &blob_name(place, found)?, Some(found))
}

/// Reads a document; if a descriptor names it, as that says.
pub fn document<T: DeserializeOwned>(
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
