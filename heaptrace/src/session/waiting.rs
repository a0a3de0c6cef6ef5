//! What waits to be looked at, in fair turns: each owner has a queue of its own.
//!
//! Part of the session. There is room for so much in all. Where it is full, what came last of the owner with most is
//! left out, and counted: who maps thousands of files is in nobody's way but its own. Knows nothing of what waits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::proc::owner::Owner;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// None of the queues is empty.
    queues: BTreeMap<Owner, VecDeque<T>>,
    /// Whose turn was last.
    last: Option<Owner>,
    count: usize,
    room: usize,
    left_out: u64,
}

impl<T> Waiting<T> {
    /// Nothing yet; room for so much.
    pub(super) fn new(room: usize) -> Self {
        Self {
            queues: BTreeMap::new(),
            last: None,
            count: 0,
            room: room.max(1),
            left_out: 0,
        }
    }

    /// Adds something of an owner's.
    pub(super) fn push(&mut self, owner: Owner, it: T) {
        if self.count >= self.room {
            self.left_out += 1;
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

    /// Takes what comes next: the oldest of the owner behind the one whose turn was last.
    pub(super) fn pop(&mut self) -> Option<(Owner, T)> {
        let behind = match &self.last {
            Some(last) => (Bound::Excluded(last), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let mut next = self.queues.range::<Owner, _>(behind);
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

    /// How much waits.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.count
    }

    /// How much was left out so far, for want of room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that who adds thousands is left out at its own cost, and that everybody else is served in turns.
    #[test]
    fn a_flood_is_in_its_own_way() {
        let mut waiting = Waiting::new(100);
        for n in 0..5_000 {
            waiting.push(Owner::User(1), n);
        }
        assert_eq!((waiting.count(), waiting.left_out()), (100, 4_900));
        for n in 0..30 {
            waiting.push(Owner::User(2), n);
        }
        assert_eq!((waiting.count(), waiting.left_out()), (100, 4_930));
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

    /// Check that of many with one each, in a queue that is full, the new one is left out and counted.
    #[test]
    fn a_full_queue_of_equals() {
        let mut waiting = Waiting::new(3);
        for user in 0..5 {
            waiting.push(Owner::User(user), ());
        }
        assert_eq!((waiting.count(), waiting.left_out()), (3, 2));
    }
}
