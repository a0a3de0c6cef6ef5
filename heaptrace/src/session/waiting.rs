//! Items that wait to be processed, shared fairly between owners: each owner has a queue of its own.
//!
//! Part of the session. All queues together have limited room. When they are full, the newest item of the
//! longest queue is dropped, and counted. So an owner that maps thousands of files delays its own files only.
//! Must not know what waits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::proc::owner::Owner;

/// One queue for each owner, with limited room in all.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// None of the queues is empty.
    queues: BTreeMap<Owner, VecDeque<T>>,
    /// The owner that was served last.
    last: Option<Owner>,
    count: usize,
    room: usize,
    dropped: u64,
}

impl<T> Waiting<T> {
    /// Empty queues with room for so many items.
    pub(super) fn new(room: usize) -> Self {
        Self {
            queues: BTreeMap::new(),
            last: None,
            count: 0,
            room: room.max(1),
            dropped: 0,
        }
    }

    /// Adds an item of an owner.
    pub(super) fn push(&mut self, owner: Owner, it: T) {
        if self.count >= self.room {
            self.dropped += 1;
            let own = self.queues.get(&owner).map_or(0, VecDeque::len);
            let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
            let Some((other, _)) = longest.filter(|(_, queue)| queue.len() > own + 1) else {
                return;
            };
            let other = other.clone();
            self.take(&other, VecDeque::pop_back);
        }
        self.queues.entry(owner).or_default().push_back(it);
        self.count += 1;
    }

    /// Takes the oldest item of the owner that follows the last served one.
    pub(super) fn pop(&mut self) -> Option<(Owner, T)> {
        let after_last = match &self.last {
            Some(last) => (Bound::Excluded(last), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let mut next = self.queues.range::<Owner, _>(after_last);
        let owner = next.next().or_else(|| self.queues.iter().next())?.0.clone();
        let it = self.take(&owner, VecDeque::pop_front)?;
        self.last = Some(owner.clone());
        Some((owner, it))
    }

    fn take(
        &mut self,
        owner: &Owner,
        from: impl FnOnce(&mut VecDeque<T>) -> Option<T>,
    ) -> Option<T> {
        let queue = self.queues.get_mut(owner)?;
        let it = from(queue)?;
        self.count -= 1;
        if queue.is_empty() {
            self.queues.remove(owner);
        }
        Some(it)
    }

    /// Number of items that wait.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.count
    }

    /// Number of items that were dropped so far for want of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an owner that adds thousands of items loses its own, and that other owners are served fairly.
    #[test]
    fn a_flood_drops_its_own_items() {
        let mut waiting = Waiting::new(100);
        for n in 0..5_000 {
            waiting.push(Owner::User(1), n);
        }
        assert_eq!((waiting.count(), waiting.dropped()), (100, 4_900));
        for n in 0..30 {
            waiting.push(Owner::User(2), n);
        }
        assert_eq!((waiting.count(), waiting.dropped()), (100, 4_930));
        let served: Vec<_> = std::iter::from_fn(|| waiting.pop()).collect();
        let mut of_second = served
            .iter()
            .take(60)
            .filter(|(owner, _)| *owner == Owner::User(2));
        assert_eq!(of_second.clone().count(), 30);
        assert!(of_second.by_ref().map(|(_, n)| *n).eq(0..30), "{served:?}");
        assert_eq!(served.len(), 100);
        assert_eq!(waiting.count(), 0);
    }

    /// Check that the new item is dropped and counted if the queues are full and no owner has more items than
    /// another.
    #[test]
    fn a_full_queue_of_equals_drops_the_new_item() {
        let mut waiting = Waiting::new(3);
        for user in 0..5 {
            waiting.push(Owner::User(user), ());
        }
        assert_eq!((waiting.count(), waiting.dropped()), (3, 2));
    }
}
