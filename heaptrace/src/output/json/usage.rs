//! How a site uses its blocks, in JSON.
//!
//! Stage: output. Field names and their order are stable.

use serde::Serialize;

use crate::join::{self, Kind, RoundingClass, Tally};
use crate::output::usage::{self, Row};

/// Histograms of a site. Absent in files of versions that did not record them.
#[derive(Serialize)]
pub(super) struct Usage {
    /// Blocks by requested bytes.
    sizes: Vec<Range>,
    #[serde(flatten)]
    lives: Option<Lives>,
}

/// What is known of blocks, and not of mapped memory.
#[derive(Serialize)]
struct Lives {
    /// Freed blocks by nanoseconds from their allocation to their free.
    lifetimes: Vec<Range>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_quantiles: Option<Quantiles>,
    /// Freed blocks whose lifetime is not known.
    untimed_frees: Number,
    freed_by_other_threads: Number,
    reallocations: Number,
    /// Reallocations of blocks that come from no reallocation. Not known of a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    realloc_chains: Option<Number>,
    /// Reallocations that changed the address, with the bytes that were copied.
    realloc_moves: Number,
    /// Usable bytes beyond the requested ones, if all blocks are of this allocator.
    rounding: Vec<Rounding>,
}

/// A range, both ends included.
#[derive(Serialize)]
struct Range {
    from: u64,
    to: u64,
    #[serde(flatten)]
    blocks: Number,
}

#[derive(Serialize)]
struct Number {
    count: u64,
    bytes: u64,
    #[serde(flatten)]
    errors: Option<Errors>,
}

/// Standard errors of a sampled run.
#[derive(Serialize)]
struct Errors {
    count_error: u64,
    bytes_error: u64,
}

/// The ranges in which half of the blocks, nine tenths and 99 of 100 end, shortest first.
#[derive(Serialize)]
struct Quantiles {
    p50: Ends,
    p90: Ends,
    p99: Ends,
}

#[derive(Serialize)]
struct Ends {
    from: u64,
    to: u64,
}

#[derive(Serialize)]
struct Rounding {
    allocator: &'static str,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_error: Option<u64>,
    /// The part in blocks whose free was not seen.
    unfreed_bytes: u64,
    /// The size classes that waste something.
    classes: Vec<Class>,
}

/// A size class, or, where both ends differ, neighbouring ones.
#[derive(Serialize)]
struct Class {
    usable_from: u64,
    usable_to: u64,
    blocks: u64,
    requested_bytes: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_error: Option<u64>,
    unfreed_bytes: u64,
}

impl Usage {
    pub(super) fn new(usage: &join::Usage, kind: Kind, is_sampled: bool) -> Self {
        let ranges = |buckets| {
            let rows = usage::rows(buckets).into_iter();
            rows.map(|row| Range::new(&row, is_sampled)).collect()
        };
        let number = |tally| Number::new(tally, is_sampled);
        let ends = |part| {
            let (from, to) = usage::quantile(&usage.lifetimes, part)?;
            Some(Ends { from, to })
        };
        let quantiles = || {
            Some(Quantiles {
                p50: ends(0.5)?,
                p90: ends(0.9)?,
                p99: ends(0.99)?,
            })
        };
        Self {
            sizes: ranges(&usage.sizes),
            lives: (kind == Kind::Heap).then(|| Lives {
                lifetimes: ranges(&usage.lifetimes),
                lifetime_quantiles: quantiles(),
                untimed_frees: number(&usage.untimed),
                freed_by_other_threads: number(&usage.freed_elsewhere),
                reallocations: number(&usage.reallocations),
                realloc_chains: (!is_sampled).then(|| number(&usage.chains)),
                realloc_moves: number(&usage.moves),
                rounding: usage
                    .rounding
                    .iter()
                    .map(|it| Rounding {
                        allocator: it.family.name(),
                        bytes: it.bytes,
                        bytes_error: is_sampled.then_some(it.error),
                        unfreed_bytes: it.unfreed,
                        classes: it
                            .classes
                            .iter()
                            .map(|it| Class::new(it, is_sampled))
                            .collect(),
                    })
                    .collect(),
            }),
        }
    }
}

impl Class {
    fn new(class: &RoundingClass, is_sampled: bool) -> Self {
        Self {
            usable_from: class.from,
            usable_to: class.to,
            blocks: class.blocks,
            requested_bytes: class.requested,
            bytes: class.bytes,
            bytes_error: is_sampled.then_some(class.error),
            unfreed_bytes: class.unfreed,
        }
    }
}

impl Range {
    fn new(row: &Row, is_sampled: bool) -> Self {
        Self {
            from: row.from,
            to: row.to,
            blocks: Number::new(&row.blocks, is_sampled),
        }
    }
}

impl Number {
    fn new(tally: &Tally, is_sampled: bool) -> Self {
        Self {
            count: tally.count,
            bytes: tally.bytes,
            errors: is_sampled.then_some(Errors {
                count_error: tally.count_error,
                bytes_error: tally.bytes_error,
            }),
        }
    }
}
