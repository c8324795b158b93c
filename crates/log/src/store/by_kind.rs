//! A value for each kind of head.

use std::ops::{Index, IndexMut};

use crate::layout::checkpoint::HeadKind;

/// A value for each kind of head, of which there is one whatever the kind.
#[derive(Debug, Default)]
pub(crate) struct ByKind<T>([T; HeadKind::ALL.len()]);

impl<T> ByKind<T> {
    /// All of them, in the order of the kinds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Takes all of them out, in the order of the kinds.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.0.into_iter()
    }
}

impl<T> Index<HeadKind> for ByKind<T> {
    type Output = T;

    fn index(&self, kind: HeadKind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<HeadKind> for ByKind<T> {
    fn index_mut(&mut self, kind: HeadKind) -> &mut T {
        &mut self.0[kind as usize]
    }
}
