//! The ways in which files are compressed: the usual one, and those of hints.

use anteros_codec::Codec;
use anteros_core::FileKind;

use crate::options::{Hint, Options, Setting};
use crate::tree::{NodeId, Tree};

/// The ways in which files are compressed.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// The usual way, and those of hints.
    settings: Vec<Option<Setting>>,
    /// The way of each node; all go the usual way if it is empty.
    of: Vec<usize>,
}

impl Ways {
    /// Finds the first hint for each file, and tells which hints are of use.
    pub fn new(tree: &Tree, options: &Options) -> (Self, Vec<Hint>) {
        let mut ways = Self {
            settings: vec![options.setting()],
            of: Vec::new(),
        };
        if options.hints.is_empty() {
            return (ways, Vec::new());
        }
        let mut used = vec![false; options.hints.len()];
        for id in tree.ids() {
            let hint = hint_for(tree, id, &options.hints);
            if let Some(used) = used.get_mut(hint) {
                *used = true;
            }
            let setting = options
                .hints
                .get(hint)
                .map_or(options.setting(), Hint::setting);
            let way = ways.way_of(setting);
            ways.of.push(way);
        }
        let hints = options.hints.iter().zip(used);
        let hints = hints
            .filter(|(_, used)| *used)
            .map(|(hint, _)| hint.clone());
        (ways, hints.collect())
    }

    fn way_of(&mut self, setting: Option<Setting>) -> usize {
        let known = self.settings.iter().position(|known| *known == setting);
        known.unwrap_or_else(|| {
            self.settings.push(setting);
            self.settings.len() - 1
        })
    }

    /// Returns how a file is compressed; `None` if it stays as it is.
    pub fn setting(&self, id: NodeId) -> Option<Setting> {
        let way = self.of.get(id as usize).copied().unwrap_or_default();
        self.settings.get(way).copied().flatten()
    }

    /// The codec of the packed inode.
    fn usual_codec(&self) -> Option<Codec> {
        self.settings.first()?.map(|setting| setting.codec)
    }

    /// Returns the codecs that files have, each pair once.
    pub fn all_codecs(&self) -> Vec<(Codec, Option<Codec>)> {
        let mut all = Vec::new();
        for setting in self.settings.iter().flatten() {
            let codecs = setting.codecs();
            if !all.contains(&codecs) {
                all.push(codecs);
            }
        }
        all
    }

    /// Returns the codecs of a file.
    pub fn codecs(&self, id: NodeId) -> Option<(Codec, Option<Codec>)> {
        self.setting(id).map(|setting| setting.codecs())
    }

    /// Returns whether a file may have a part in the packed inode: it has to be compressed by that one's codec.
    pub fn packs(&self, id: NodeId) -> bool {
        let codec = self.setting(id).map(|setting| setting.codec);
        codec.is_some() && codec == self.usual_codec()
    }
}

/// The first hint for a regular file; the number of hints if there is none.
fn hint_for(tree: &Tree, id: NodeId, hints: &[Hint]) -> usize {
    if tree.node(id).kind != FileKind::Regular {
        return hints.len();
    }
    let path = tree.path(id);
    let hint = hints.iter().position(|hint| hint.is_for(&path));
    hint.unwrap_or(hints.len())
}
