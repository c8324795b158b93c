//! Cleaning: valid blocks move out of segments, which become free.
//!
//! This floor is asked for free segments before anything is written ([`clean`]), to compress executables again in the
//! background ([`compact`]) in the order in which launches read them ([`launches`], [`order`]), or to tell what that would
//! gain ([`estimate`]), and to put the nodes together that launches look up ([`gather`]). It knows of which files large
//! windows are decoded in vain ([`sparse`]). What it moves becomes durable with the next checkpoint. It uses `durable` and
//! what lies below.

pub(crate) mod clean;
pub(crate) mod compact;
pub(crate) mod estimate;
pub(crate) mod gather;
pub(crate) mod launches;
pub(crate) mod order;
pub(crate) mod sparse;

use std::collections::BTreeMap;

use crate::durable::Durable;

/// Cleaning of a mounted log, and all that it moves.
pub(crate) struct Cleaning {
    pub(crate) durable: Durable,
    /// Free and emptied segments and the last checkpoint when there was nothing to win.
    futile: Option<(u32, u32, u64)>,
    /// Count of slots given up and the last checkpoint when no segment of packed blocks was worth it.
    dense: Option<(u64, u64)>,
    /// Inodes of files that are read sparsely, with their generations.
    sparse: BTreeMap<u32, u32>,
}

stands_on!(Cleaning { durable: Durable });

impl Cleaning {
    pub(crate) fn new(durable: Durable) -> Self {
        Self {
            durable,
            futile: None,
            dense: None,
            sparse: BTreeMap::new(),
        }
    }
}
