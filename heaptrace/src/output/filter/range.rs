//! A range of numbers: `10..20`, `>=1MiB`.
//!
//! Stage: output. Pure.

use std::cmp::Ordering;
use std::ops::Bound;

/// A range of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    low: Bound<u64>,
    high: Bound<u64>,
}

impl Range {
    /// The numbers that compare with a number by an operator.
    pub(super) fn of(operator: &str, number: u64) -> Self {
        let (low, high) = match operator {
            "<" => (Bound::Unbounded, Bound::Excluded(number)),
            "<=" => (Bound::Unbounded, Bound::Included(number)),
            ">" => (Bound::Excluded(number), Bound::Unbounded),
            ">=" => (Bound::Included(number), Bound::Unbounded),
            _ => (Bound::Included(number), Bound::Included(number)),
        };
        Self { low, high }
    }

    /// Reads a number or a range with both of its ends, one of which may be missing: `7`, `10..20`, `10..`. `number` reads a number.
    pub(super) fn parse(
        text: &str,
        number: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Self, String> {
        let Some((low, high)) = text.split_once("..") else {
            return Ok(Self::of("=", number(text)?));
        };
        let end = |text: &str| match text.trim() {
            "" => Ok(Bound::Unbounded),
            text => number(text).map(Bound::Included),
        };
        let range = Self {
            low: end(low)?,
            high: end(high)?,
        };
        match (range.low, range.high) {
            (Bound::Unbounded, Bound::Unbounded) => {
                Err("a range needs a number: 10..20".to_owned())
            }
            (Bound::Included(from), Bound::Included(to)) if from > to => Err(format!(
                "the range is empty: {} is more than {}",
                low.trim(),
                high.trim()
            )),
            _ => Ok(range),
        }
    }

    /// Its ends.
    pub(super) fn ends(self) -> (Bound<u64>, Bound<u64>) {
        (self.low, self.high)
    }

    /// Whether a fraction is in the range. One of nothing is in none.
    pub(super) fn contains(self, sum: u64, parts: u64) -> bool {
        let compare = |bound: u64| u128::from(sum).cmp(&(u128::from(bound) * u128::from(parts)));
        let is_above = match self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => compare(low) != Ordering::Less,
            Bound::Excluded(low) => compare(low) == Ordering::Greater,
        };
        let is_below = match self.high {
            Bound::Unbounded => true,
            Bound::Included(high) => compare(high) != Ordering::Greater,
            Bound::Excluded(high) => compare(high) == Ordering::Less,
        };
        parts > 0 && is_above && is_below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ranges and comparisons have their ends, of whole numbers and of means, and that wrong ranges are refused.
    #[test]
    fn ranges_have_their_ends() {
        let number = |text: &str| text.parse().map_err(|_| "no number".to_owned());
        let range = |text| Range::parse(text, number).unwrap();
        let inside = |range: Range| [9, 10, 15, 20, 21].map(|it| range.contains(it, 1));
        assert_eq!(inside(range("10..20")), [false, true, true, true, false]);
        assert_eq!(inside(range("15..")), [false, false, true, true, true]);
        assert_eq!(inside(range("..10")), [true, true, false, false, false]);
        assert_eq!(inside(range("20")), [false, false, false, true, false]);
        for (operator, expected) in [
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
            (">", [false, false, true]),
            (">=", [false, true, true]),
            ("=", [false, true, false]),
        ] {
            let range = Range::of(operator, 10);
            assert_eq!([19, 20, 21].map(|sum| range.contains(sum, 2)), expected);
            assert!(!range.contains(0, 0), "{operator}");
        }
        assert!(Range::of(">=", u64::MAX).contains(u64::MAX, 1));
        for (text, reason) in [("..", "needs"), ("5..2", "empty"), ("a..2", "no number")] {
            let error = Range::parse(text, number).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
