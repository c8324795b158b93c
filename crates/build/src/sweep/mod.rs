//! The sweep: content that is known to be read is stored in front of all other, in the order of first access.
//!
//! A start then reads a few clusters that lie behind each other, and no cluster for the sake of a few bytes of it. The
//! inodes of what is read lie together as well.
//!
//! ```text
//! usual   | a a A a | b B | c c c | d D d | inodes a b c d |        capitals are read
//! swept   | A B D | a a a | c c c | d d | inodes a b d | c |        b lies there as a whole, a and d are cut
//! ```
//!
//! A cut costs room, so files are cut where there is much that nobody reads, and no more of them than a share of the
//! image allows. The other files of which anything is read lie in the sweep as a whole.
//!
//! | module | job |
//! |---|---|
//! | `hot` | ranges that are read to files and parts of them |
//! | `choose` | which of these files are cut |
//! | `settle` | parts that several files share |
//! | `steps` | the order in which all of that is stored |

mod choose;
mod hot;
mod settle;
mod steps;

use std::collections::HashMap;

use hot::Hot;

pub(crate) use settle::settle;
pub(crate) use steps::{Step, Sweep};

use crate::look::Look;
use crate::plan::Plan;
use crate::tree::NodeId;

/// Finds what is read, and decides how it is stored. Returns a warning, if something of it is not there.
pub(crate) fn find(look: &Look<'_>, plan: &mut Plan) -> Option<String> {
    let Look { tree, options, .. } = *look;
    if options.hot.is_empty() {
        return None;
    }
    let hot = Hot::find(&options.hot, tree, plan, options.block_bytes().into());
    let warning = hot.warning(options.hot.len());
    plan.sweep = choose::sweep(hot, tree, plan, options);
    warning
}

/// Puts the files of the sweep in front of all others.
pub(crate) fn put_first(order: &mut [NodeId], sweep: &Sweep) {
    let places: HashMap<NodeId, usize> = sweep
        .files()
        .enumerate()
        .map(|(place, id)| (id, place))
        .collect();
    if !places.is_empty() {
        order.sort_by_key(|id| places.get(id).copied().unwrap_or(usize::MAX));
    }
}
