//! Sums of counters.
//!
//! Stage: output.

use crate::join::{Errors, Totals, Unseen};

/// Sums of counters.
///
/// The samples of different sites are independent, so the variances of their counters add up. Only the sum is rounded: rounded after each site,
/// the errors of many small sites beside a large one would be lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    /// Without errors.
    totals: Totals,
    variances: [f64; 10],
}

impl Sum {
    /// Adds counters, saturating, because a crafted file can hold any number.
    pub(super) fn add(&mut self, part: &Totals) {
        add(&mut self.totals, part);
        for (sum, error) in self.variances.iter_mut().zip(errors(&part.errors)) {
            *sum += error as f64 * error as f64;
        }
    }

    /// The counters, with their errors.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.totals;
        let all = errors_mut(&mut totals.errors);
        for (error, variance) in all.into_iter().zip(self.variances) {
            *error = variance.sqrt().round() as u64;
        }
        totals
    }
}

/// The sums of these counters.
pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a Totals>) -> Totals {
    let mut sum = Sum::default();
    parts.into_iter().for_each(|part| sum.add(part));
    sum.totals()
}

/// Adds counters, but their standard errors.
fn add(sum: &mut Totals, part: &Totals) {
    let Totals {
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        left_allocations,
        left_bytes,
        uncertain_allocations,
        uncertain_bytes,
        peak_live_bytes,
        temporary_allocations,
        errors,
    } = part;
    for (sum, part) in [
        (&mut sum.allocations, allocations),
        (&mut sum.allocated_bytes, allocated_bytes),
        (&mut sum.frees, frees),
        (&mut sum.freed_bytes, freed_bytes),
        (&mut sum.live_allocations, live_allocations),
        (&mut sum.live_bytes, live_bytes),
        (&mut sum.left_allocations, left_allocations),
        (&mut sum.left_bytes, left_bytes),
        (&mut sum.uncertain_allocations, uncertain_allocations),
        (&mut sum.uncertain_bytes, uncertain_bytes),
        (&mut sum.peak_live_bytes, peak_live_bytes),
        (&mut sum.temporary_allocations, temporary_allocations),
    ] {
        *sum = sum.saturating_add(*part);
    }
    let Errors {
        unseen, mean_bytes, ..
    } = errors;
    let Unseen {
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        peak_live_bytes,
        left_allocations,
        left_bytes,
        temporary_allocations,
    } = unseen;
    let all = &mut sum.errors.unseen;
    for (sum, part) in [
        (&mut all.allocations, allocations),
        (&mut all.allocated_bytes, allocated_bytes),
        (&mut all.frees, frees),
        (&mut all.freed_bytes, freed_bytes),
        (&mut all.live_allocations, live_allocations),
        (&mut all.live_bytes, live_bytes),
        (&mut all.left_allocations, left_allocations),
        (&mut all.left_bytes, left_bytes),
        (&mut all.peak_live_bytes, peak_live_bytes),
        (&mut all.temporary_allocations, temporary_allocations),
    ] {
        *sum = sum.saturating_add(*part);
    }
    sum.errors.mean_bytes = sum.errors.mean_bytes.max(*mean_bytes);
}

/// The standard errors.
fn errors(errors: &Errors) -> [u64; 10] {
    let mut errors = *errors;
    errors_mut(&mut errors).map(|it| *it)
}

fn errors_mut(errors: &mut Errors) -> [&mut u64; 10] {
    let Errors {
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        left_allocations,
        left_bytes,
        peak_live_bytes,
        temporary_allocations,
        unseen: _,
        mean_bytes: _,
    } = errors;
    [
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        left_allocations,
        left_bytes,
        peak_live_bytes,
        temporary_allocations,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(live_bytes: u64, error: u64) -> Totals {
        Totals {
            live_bytes,
            errors: Errors {
                live_bytes: error,
                mean_bytes: 64,
                ..Errors::default()
            },
            ..Totals::default()
        }
    }

    /// Check that the errors of many small sites beside a large one add up. (They were lost when each sum was rounded.)
    #[test]
    fn small_errors_add_up() {
        let large = part(1_000_000, 100);
        let small = part(10, 3);
        let parts = std::iter::once(&large).chain(std::iter::repeat_n(&small, 10_000));
        let sum = of(parts);
        assert_eq!(sum.live_bytes, 1_100_000);
        // The root of 100² + 10,000 · 3².
        assert_eq!(sum.errors.live_bytes, 316);
        assert_eq!(sum.errors.mean_bytes, 64);
    }

    /// Check that a sum of one part is that part, and that large numbers of a damaged file end at the largest one.
    #[test]
    fn one_part_stays_as_it_is() {
        let one = part(7, 5);
        assert_eq!(of([&one]), one);
        let most = part(u64::MAX, u64::MAX);
        assert_eq!(of([&most, &most]), most);
    }
}
