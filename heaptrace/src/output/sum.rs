//! Sums of counters.
//!
//! Stage: output.

use crate::join::{Errors, Totals, Unseen};

/// Adds counters, saturating, because a crafted file can hold any number.
pub(super) fn add(sum: &mut Totals, part: &Totals) {
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
        unseen,
        mean_bytes,
    } = errors;
    // The samples of different sites are independent, so their variances add up. Rounded up, as `Errors::both` does, the errors of a thousand
    // sites would add up to a thousand.
    for (sum, part) in [
        (&mut sum.errors.allocations, allocations),
        (&mut sum.errors.allocated_bytes, allocated_bytes),
        (&mut sum.errors.frees, frees),
        (&mut sum.errors.freed_bytes, freed_bytes),
        (&mut sum.errors.live_allocations, live_allocations),
        (&mut sum.errors.live_bytes, live_bytes),
        (&mut sum.errors.left_allocations, left_allocations),
        (&mut sum.errors.left_bytes, left_bytes),
        (&mut sum.errors.peak_live_bytes, peak_live_bytes),
        (&mut sum.errors.temporary_allocations, temporary_allocations),
    ] {
        *sum = (*sum as f64).hypot(*part as f64).round() as u64;
    }
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
