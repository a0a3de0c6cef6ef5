//! Differences of counters that only grow.
//!
//! Stage: profile. Saturates everywhere: a crafted file can hold any number.

use crate::join::{Errors, Totals};

/// A counter, its standard error, and what of it was not seen.
type Counter<'a> = [&'a mut u64; 3];

/// The counters that only grow. What is live, and what may be, is a state, and so is the peak.
fn growing(totals: &mut Totals) -> [Counter<'_>; 7] {
    let errors = &mut totals.errors;
    let unseen = &mut errors.unseen;
    [
        [
            &mut totals.allocations,
            &mut errors.allocations,
            &mut unseen.allocations,
        ],
        [
            &mut totals.allocated_bytes,
            &mut errors.allocated_bytes,
            &mut unseen.allocated_bytes,
        ],
        [&mut totals.frees, &mut errors.frees, &mut unseen.frees],
        [
            &mut totals.freed_bytes,
            &mut errors.freed_bytes,
            &mut unseen.freed_bytes,
        ],
        [
            &mut totals.left_allocations,
            &mut errors.left_allocations,
            &mut unseen.left_allocations,
        ],
        [
            &mut totals.left_bytes,
            &mut errors.left_bytes,
            &mut unseen.left_bytes,
        ],
        [
            &mut totals.temporary_allocations,
            &mut errors.temporary_allocations,
            &mut unseen.temporary_allocations,
        ],
    ]
}

/// Subtracts earlier counters.
pub(super) fn subtract(now: &mut Totals, before: &Totals) {
    let mut before = *before;
    for (now, before) in growing(now).into_iter().zip(growing(&mut before)) {
        let [value, error, unseen] = now;
        let [old_value, old_error, old_unseen] = before;
        *value = value.saturating_sub(*old_value);
        *unseen = unseen.saturating_sub(*old_unseen);
        // Each sample adds its own variance.
        *error = match *value {
            0 => 0,
            _ => difference(*error, *old_error),
        };
    }
}

/// The part of a standard error that came after an earlier one. Both were rounded up.
fn difference(now: u64, before: u64) -> u64 {
    let (now, before) = (now as f64, before.saturating_sub(1) as f64);
    (now * now - before * before).max(0.0).sqrt().ceil() as u64
}

/// Adds counters of the same time.
pub(super) fn add(sum: &mut Totals, part: &Totals) {
    let mut part = *part;
    for (sum, part) in growing(sum).into_iter().zip(growing(&mut part)) {
        let [value, error, unseen] = sum;
        let [other_value, other_error, other_unseen] = part;
        *value = value.saturating_add(*other_value);
        *error = Errors::both(*error, *other_error);
        *unseen = unseen.saturating_add(*other_unseen);
    }
}

/// Whether nothing was allocated, freed or there.
pub(super) fn is_nothing(totals: &Totals) -> bool {
    let Totals {
        allocations,
        frees,
        live_allocations,
        left_allocations,
        uncertain_allocations,
        peak_live_bytes,
        ..
    } = totals;
    let counters = [
        allocations,
        frees,
        live_allocations,
        left_allocations,
        uncertain_allocations,
        peak_live_bytes,
    ];
    counters.into_iter().all(|it| *it == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sums are subtracted and states are not, and that errors are those of the samples in between.
    #[test]
    fn differences_of_totals() {
        let before = Totals {
            allocations: 10,
            allocated_bytes: 1_000,
            frees: 4,
            live_allocations: 6,
            peak_live_bytes: 900,
            errors: Errors {
                allocations: 30,
                live_allocations: 25,
                ..Errors::default()
            },
            ..Totals::default()
        };
        let mut now = Totals {
            allocations: 25,
            allocated_bytes: 7_000,
            frees: 4,
            live_allocations: 21,
            peak_live_bytes: 950,
            errors: Errors {
                allocations: 50,
                frees: 11,
                live_allocations: 45,
                ..Errors::default()
            },
            ..before
        };
        subtract(&mut now, &before);
        assert_eq!(
            (now.allocations, now.allocated_bytes, now.frees),
            (15, 6_000, 0)
        );
        assert_eq!((now.live_allocations, now.peak_live_bytes), (21, 950));
        // √(50² − 29²), as 30 was rounded up.
        assert_eq!((now.errors.allocations, now.errors.frees), (41, 0));
        assert_eq!(now.errors.live_allocations, 45);
        assert!(!is_nothing(&now) && is_nothing(&Totals::default()));
    }
}
