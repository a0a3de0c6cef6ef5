//! Where a process has code without a file, as ranges of addresses.
//!
//! Stage: join. A runtime changes the rights of its code page by page, so neighbours become one range. Knows no times: code
//! that was there once counts, until a file is looked up there.

/// Most ranges of a program image. Code beyond them counts as unknown.
const MAX_RANGES: usize = 256;

/// Ranges of addresses that neither overlap nor touch each other, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeRanges(Vec<(u64, u64)>);

impl CodeRanges {
    /// Adds a range.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.0.partition_point(|it| it.1 < start);
        let to = self.0.partition_point(|it| it.0 <= end);
        if let (Some(first), Some(last)) = (
            self.0.get(from).copied(),
            to.checked_sub(1).and_then(|to| self.0.get(to)).copied(),
        ) && from < to
        {
            let joined = (start.min(first.0), end.max(last.1));
            self.0.splice(from..to, [joined]);
        } else if self.0.len() < MAX_RANGES {
            self.0.insert(from, (start, end));
        }
    }

    /// Whether an address is in a range.
    pub(super) fn contains(&self, address: u64) -> bool {
        let before = self.0.partition_point(|it| it.0 <= address);
        let range = before.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|it| address < it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// Check that random ranges contain the same addresses as an array with an entry for each, that neighbours become one, and that
    /// the number of ranges is bounded.
    #[test]
    fn ranges_are_joined() {
        let mut ranges = CodeRanges::default();
        let mut truth = [false; 300];
        let mut random = numbers(7);
        for _ in 0..60 {
            let start = random(280);
            let end = start + random(20);
            ranges.add(start, end);
            for at in start..end {
                truth[at as usize] = true;
            }
            for (at, is_in) in truth.iter().enumerate() {
                assert_eq!(ranges.contains(at as u64), *is_in, "{at}");
            }
            let is_apart = |pair: &[(u64, u64)]| pair[0].1 < pair[1].0;
            assert!(ranges.0.windows(2).all(is_apart), "{ranges:?}");
        }
        for start in 0..2 * MAX_RANGES as u64 {
            ranges.add(1000 + start * 10, 1005 + start * 10);
        }
        assert_eq!(ranges.0.len(), MAX_RANGES);
        ranges.add(0, u64::MAX);
        assert_eq!(ranges.0, [(0, u64::MAX)]);
    }
}
