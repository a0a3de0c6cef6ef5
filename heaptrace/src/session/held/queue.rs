//! A queue of events that are held in their order, with limits of time and memory.
//!
//! Part of the session. Must not know what the events are, nor what they wait for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Events in their order.
pub(super) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    most_bytes: usize,
}

struct Waiting<T> {
    since: Instant,
    bytes: usize,
    item: T,
}

impl<T> Queue<T> {
    /// An empty queue that is full with so many bytes.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            most_bytes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.most_bytes
    }

    /// Adds an event, which uses so many bytes beside its entry in the queue.
    pub(super) fn push(&mut self, item: T, bytes_apart: usize, now: Instant) {
        let bytes = size_of::<Waiting<T>>() + bytes_apart;
        self.bytes += bytes;
        self.waiting.push_back(Waiting {
            since: now,
            bytes,
            item,
        });
    }

    /// Hands out the first events, until one must wait, which `join` then returns. `join` is also told whether the event has waited
    /// for so long that it must not wait on.
    pub(super) fn proceed(
        &mut self,
        now: Instant,
        most_wait: Duration,
        mut join: impl FnMut(T, bool) -> Option<T>,
    ) {
        while let Some(Waiting { since, bytes, item }) = self.waiting.pop_front() {
            let is_due = now.saturating_duration_since(since) >= most_wait;
            if let Some(item) = join(item, is_due) {
                return self.waiting.push_front(Waiting { since, bytes, item });
            }
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What a queue hands out if the numbers below 10 are not ready.
    fn handed_out(queue: &mut Queue<u32>, now: Instant, ready_from: u32) -> Vec<u32> {
        let mut joined = Vec::new();
        queue.proceed(now, 2 * SECOND, |item, is_due| {
            if item < ready_from && !is_due {
                return Some(item);
            }
            joined.push(item);
            None
        });
        joined
    }

    /// Check that no event passes one that waits, and that each waits no longer than the limit, counted from when it came.
    #[test]
    fn events_keep_their_order() {
        let begin = Instant::now();
        let mut queue = Queue::new(usize::MAX);
        for item in [20, 1, 21, 2, 22] {
            let now = begin + if item == 2 { SECOND } else { Duration::ZERO };
            queue.push(item, 0, now);
        }
        assert_eq!(handed_out(&mut queue, begin, 10), [20]);
        assert_eq!(handed_out(&mut queue, begin + SECOND, 10), [0; 0]);
        assert_eq!(handed_out(&mut queue, begin + 2 * SECOND, 10), [1, 21]);
        assert!(!queue.is_empty());
        assert_eq!(handed_out(&mut queue, begin + 2 * SECOND, 2), [2, 22]);
        assert!(queue.is_empty());
    }

    /// Check that a queue is full with too many bytes, and has room again when they were handed out.
    #[test]
    fn queues_are_bounded() {
        let now = Instant::now();
        let mut queue = Queue::new(1000);
        queue.push(1, 500, now);
        assert!(!queue.is_full());
        queue.push(2, 500, now);
        assert!(queue.is_full());
        assert_eq!(handed_out(&mut queue, now, 10), [0; 0]);
        assert!(queue.is_full());
        assert_eq!(handed_out(&mut queue, now, 0), [1, 2]);
        assert!(!queue.is_full() && queue.bytes == 0);
    }
}
