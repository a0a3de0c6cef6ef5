//! What many blocks have in common, once: the mean they were sampled at, and the turn of their process.
//!
//! Stage: join. There are one or two at a time, over a long run any number. So the places of those that no block has any
//! more are given to others.

use crate::join::keyed_hash::HashMap;

/// How many are asked for at least before it is asked which are in use.
const FEW: usize = 64;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Terms {
    list: Vec<Entry>,
    by_value: HashMap<(u64, u32), u16>,
    vacant: Vec<u16>,
    /// How many more may be asked for before it is asked again.
    patience: usize,
    /// What was asked for last.
    last: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mean: u64,
    turn: u32,
    blocks: u32,
}

impl Terms {
    /// The index of a mean and a turn, for one block more; none where there are too many.
    pub(super) fn index(&mut self, mean: u64, turn: u32) -> Option<u16> {
        let is_it = |entry: &&mut Entry| entry.mean == mean && entry.turn == turn;
        if let Some(entry) = self.list.get_mut(usize::from(self.last)).filter(is_it) {
            entry.blocks = entry.blocks.checked_add(1)?;
            return Some(self.last);
        }
        let index = match self.by_value.get(&(mean, turn)) {
            Some(index) => *index,
            None => self.add(mean, turn)?,
        };
        let entry = self.list.get_mut(usize::from(index))?;
        entry.blocks = entry.blocks.checked_add(1)?;
        self.last = index;
        Some(index)
    }

    /// What an index stands for, which a block less has now.
    pub(super) fn release(&mut self, index: u16) -> (u64, u32) {
        let Some(entry) = self.list.get_mut(usize::from(index)) else {
            return (1, 0);
        };
        entry.blocks = entry.blocks.saturating_sub(1);
        (entry.mean, entry.turn)
    }

    fn add(&mut self, mean: u64, turn: u32) -> Option<u16> {
        if self.vacant.is_empty() {
            match self.patience.checked_sub(1) {
                Some(left) => self.patience = left,
                None => self.reclaim(),
            }
        }
        let entry = Entry {
            mean,
            turn,
            blocks: 0,
        };
        let index = match self.vacant.pop() {
            Some(index) => {
                *self.list.get_mut(usize::from(index))? = entry;
                index
            }
            None => {
                let index = u16::try_from(self.list.len()).ok()?;
                self.list.push(entry);
                index
            }
        };
        self.by_value.insert((mean, turn), index);
        Some(index)
    }

    /// Finds those that no block has.
    fn reclaim(&mut self) {
        for (index, entry) in (0..=u16::MAX).zip(&self.list) {
            if entry.blocks == 0 {
                self.by_value.remove(&(entry.mean, entry.turn));
                self.vacant.push(index);
            }
        }
        let used = self.list.len() - self.vacant.len();
        // So that it costs little, also where all are in use and none more can be had.
        self.patience = used.max(FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each keeps its index as long as it has a block, that those without make room, and that there are
    /// never more than an index can tell.
    #[test]
    fn places_are_given_away() {
        let mut terms = Terms::default();
        let mut kept = Vec::new();
        for turn in 0..200_000 {
            let index = terms.index(1, turn).unwrap();
            assert_eq!(terms.index(1, turn), Some(index));
            assert_eq!(terms.release(index), (1, turn));
            if turn % 10 == 0 {
                kept.push((index, turn));
            } else {
                terms.release(index);
            }
        }
        assert!(terms.list.len() < 3 * kept.len(), "{}", terms.list.len());
        for (index, turn) in kept.drain(..) {
            assert_eq!(terms.index(1, turn), Some(index));
            terms.release(index);
            terms.release(index);
        }
        let some = (0..100_000).filter(|turn| terms.index(2, *turn).is_some());
        assert_eq!(some.count(), 1 << 16);
        // One that is gone makes room for one, though not at once.
        terms.release(7);
        let some = (0..200_000).filter(|turn| terms.index(3, *turn).is_some());
        assert_eq!(some.count(), 1);
    }
}
