//! Names of what a walk comes by.

use std::fmt;
use std::sync::Arc;

/// A path inside an image, relative to its root and without a leading `/`.
///
/// Shown with the leading `/`, and with control characters and bytes that are no UTF-8 escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImagePath(Vec<u8>);

impl ImagePath {
    /// The bytes, as `usr/bin/env`; empty for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, for whoever keeps them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for ImagePath {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char.is_control() {
                    true => write!(f, "{}", char.escape_default())?,
                    false => write!(f, "{char}")?,
                }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// The way from the root of a walk to a file: its own name, and its directory's trail. However deep
/// a tree is, its trails together take no more memory than its names.
#[derive(Debug)]
pub(crate) struct Trail {
    pub(crate) parent: Option<Arc<Trail>>,
    pub(crate) name: Box<[u8]>,
    /// Tells how many directories lie above.
    pub(crate) depth: usize,
}

impl Trail {
    /// Returns where a walk begins: at a path of the image.
    pub(crate) fn root(path: &[u8]) -> Arc<Self> {
        let names: Vec<_> = path
            .split(|&b| b == b'/')
            .filter(|n| !n.is_empty())
            .collect();
        Arc::new(Self {
            parent: None,
            name: names.join(&b'/').into(),
            depth: 0,
        })
    }

    /// One name further.
    pub(crate) fn child(self: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            parent: Some(self.clone()),
            name: name.into(),
            depth: self.depth + 1,
        })
    }

    /// The path in the image.
    pub(crate) fn path(&self) -> ImagePath {
        let above = std::iter::successors(self.parent.as_deref(), |trail| trail.parent.as_deref());
        let mut names: Vec<&[u8]> = above.map(|trail| &*trail.name).collect();
        names.reverse();
        names.push(&self.name);
        names.retain(|name| !name.is_empty());
        ImagePath(names.join(&b'/'))
    }
}

impl Drop for Trail {
    /// Lets go of one directory after the other: dropping them inside each other would take a
    /// stack as deep as the tree.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut trail) = above.and_then(Arc::into_inner) {
            above = trail.parent.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_names_of_its_trail() {
        assert_eq!(Trail::root(b"").path().to_string(), "/");
        let below = Trail::root(b"/usr//share/").child(b"a").child(b"b");
        assert_eq!(below.path().as_bytes(), b"usr/share/a/b");
        let odd = ImagePath::from(b"na\xefve/na\xc3\xafve/new\nline".to_vec());
        assert_eq!(odd.to_string(), "/na\\xefve/naïve/new\\nline");
    }

    #[test]
    fn a_trail_of_any_depth_can_be_dropped() {
        let mut trail = Trail::root(b"");
        for _ in 0..1_000_000 {
            trail = trail.child(b"d");
        }
        assert_eq!(trail.depth, 1_000_000);
        drop(trail);
    }
}
