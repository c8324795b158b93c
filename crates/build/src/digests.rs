//! Digests of content, which files get as attributes if that is wished.
//!
//! They are known before it is decided where anything lies, so the files are read once more than others. Those that have
//! the same content have the same attribute, which is stored once if there are enough of them.

use std::sync::atomic::AtomicBool;

use anteros_core::FileKind;
use sha2::{Digest as _, Sha256};

use crate::look::Look;
use crate::source::Source;
use crate::tree::{NodeId, Tree};
use crate::{Error, Options};

/// Stands in front of the 32 bytes of a digest.
const ALGORITHM: &[u8] = b"sha256:";

/// Gives all regular files with content their digests, if that was asked for.
pub(crate) fn assign(
    tree: &mut Tree,
    source: &Source,
    options: &Options,
    cancel: &AtomicBool,
) -> Result<(), Error> {
    let Some(name) = &options.digest_xattr else {
        return Ok(());
    };
    let has_content = |id: &NodeId| {
        let node = tree.node(*id);
        node.kind == FileKind::Regular && node.size > 0
    };
    let files: Vec<NodeId> = tree.ids().filter(has_content).collect();
    let look = Look {
        source,
        tree,
        options,
        cancel,
    };
    let digests = look.all(&files, |look, id| look.sha256(*id))?;
    for (id, digest) in files.into_iter().zip(digests) {
        let value = [ALGORITHM, &digest[..]].concat();
        tree.set_xattr(id, name, Some(&value));
    }
    Ok(())
}

impl Look<'_> {
    fn sha256(&self, id: NodeId) -> Result<[u8; 32], Error> {
        let mut digest = Sha256::new();
        self.read(id, |part| digest.update(part))?;
        Ok(digest.finalize().into())
    }
}
