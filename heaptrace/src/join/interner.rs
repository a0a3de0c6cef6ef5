//! An append-only table in which equal things have one index.
//!
//! Stage: join.

use std::collections::HashMap;
use std::hash::Hash;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Interner<T> {
    items: Vec<T>,
    index: HashMap<T, u32>,
    /// How many were handed out by [`Interner::take_new`].
    handed_out: usize,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            index: HashMap::new(),
            handed_out: 0,
        }
    }

    /// Index of an item.
    pub(super) fn intern(&mut self, item: &T) -> u32 {
        if let Some(index) = self.index.get(item) {
            return *index;
        }
        let index = self.items.len() as u32;
        self.items.push(item.clone());
        self.index.insert(item.clone(), index);
        index
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.items.get(index as usize)
    }

    /// The items that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<T> {
        let new = self
            .items
            .get(self.handed_out..)
            .unwrap_or_default()
            .to_vec();
        self.handed_out = self.items.len();
        new
    }
}
