//! Hard links: names that lead to the same file.

use std::collections::HashMap;
use std::sync::Arc;

use anteros_format::Nid;

use super::difference::Mismatch;
use super::run::Run;
use crate::host::descent::Identity;
use crate::trail::Trail;

/// The files that were met by one of several names.
#[derive(Default)]
pub(super) struct Links {
    in_image: HashMap<Nid, Linked<Identity>>,
    in_source: HashMap<Identity, Linked<Nid>>,
}

/// The first name of a file, and who has it on the other side.
struct Linked<T> {
    other: T,
    trail: Arc<Trail>,
}

impl Links {
    /// Compares who else has the names of a file: those that lead to the same file on one side must do
    /// so on the other. Returns whether both files were compared before, by other names.
    pub(super) fn compare(
        &mut self,
        run: &Run<'_>,
        trail: &Arc<Trail>,
        nid: Nid,
        file: Identity,
    ) -> bool {
        let linked = Linked {
            other: file,
            trail: trail.clone(),
        };
        let in_image = self.in_image.entry(nid).or_insert(linked);
        let linked = Linked {
            other: nid,
            trail: trail.clone(),
        };
        let in_source = self.in_source.entry(file).or_insert(linked);
        if in_image.other != file {
            let other = in_image.trail.path();
            run.differ(
                trail,
                Mismatch::Links {
                    in_image: true,
                    other,
                },
            );
        }
        if in_source.other != nid {
            let other = in_source.trail.path();
            run.differ(
                trail,
                Mismatch::Links {
                    in_image: false,
                    other,
                },
            );
        }
        in_image.other == file && !Arc::ptr_eq(&in_image.trail, trail)
    }
}
