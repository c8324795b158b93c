//! Layers as the source of an image: each file is read from the layer that it comes from, as if that
//! were the only source.

use std::path::{Path, PathBuf};

use super::{OpenFile, Scanned};
use crate::Error;
use crate::tree::{Node, NodeId};

/// A node of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number of the layer, 0 for the lowest.
    pub layer: u32,
    pub node: NodeId,
}

/// Layers with their own trees.
#[derive(Debug)]
pub(crate) struct Layers {
    layers: Vec<Scanned>,
    /// The origin of each node of the merged tree; of a directory, that of its properties.
    origins: Vec<Origin>,
}

impl Layers {
    /// Layers, the lowest first. There is at least one.
    pub fn new(layers: Vec<Scanned>) -> Self {
        Self {
            layers,
            origins: Vec::new(),
        }
    }

    /// Adds the origins of all nodes.
    pub fn with(self, origins: Vec<Origin>) -> Self {
        Self { origins, ..self }
    }

    pub fn count(&self) -> u32 {
        self.layers.len() as u32
    }

    pub fn all(&self) -> &[Scanned] {
        &self.layers
    }

    /// The layer of an origin.
    pub fn layer(&self, at: Origin) -> &Scanned {
        &self.layers[at.layer as usize]
    }

    pub fn node(&self, at: Origin) -> &Node {
        self.layer(at).tree.node(at.node)
    }

    /// The layer that a node of the merged tree comes from, and its number there.
    pub fn origin(&self, id: NodeId) -> (u32, &Scanned, NodeId) {
        let at = self.origins[id as usize];
        (at.layer, self.layer(at), at.node)
    }

    /// Returns the path of the uppermost layer, for messages about the whole.
    pub fn path(&self) -> &Path {
        self.layers[self.layers.len() - 1].source.path()
    }

    /// Returns where the origin of a merged node lies.
    pub fn full_path(&self, id: NodeId) -> PathBuf {
        self.place(self.origins[id as usize])
    }

    /// Returns where an origin lies.
    pub fn place(&self, at: Origin) -> PathBuf {
        let Scanned { source, tree, .. } = self.layer(at);
        source.full_path(tree, at.node)
    }

    pub fn open_file(&self, id: NodeId) -> Result<OpenFile<'_>, Error> {
        let at = self.origins[id as usize];
        let Scanned { source, tree, .. } = self.layer(at);
        source.open_file(tree, at.node)
    }
}
