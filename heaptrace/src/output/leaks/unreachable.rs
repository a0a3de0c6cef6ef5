//! What nothing in a process points to, by stack.
//!
//! Stage: output. Knows no format.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::suppressions::Suppressions;
use crate::join::{Errors, ProcessId, Reachability, StackId, Totals, UnreachableSum, Unseen};
use crate::output::report_input::ReportInput;
use crate::output::sum;

/// What searches of memory have found.
#[derive(Clone, Debug, Default)]
pub struct Unreachable {
    /// The searches, one of each process. Their sites are in `sites`.
    pub searches: Vec<Reachability>,
    /// Stacks with blocks that nothing points to: first those with blocks to which no unreachable block points, by their bytes.
    pub sites: Vec<UnreachableSite>,
    /// Stacks that are left out because they are suppressed.
    pub suppressed: usize,
}

/// Blocks of a stack that nothing points to.
#[derive(Clone, Debug)]
pub struct UnreachableSite {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// All of them, as live memory.
    pub all: Totals,
    /// Those that no other unreachable block points to.
    pub direct: Totals,
    /// The others.
    pub indirect: Totals,
}

/// The findings in a profile, without those that are suppressed or don't pass its filters.
pub(super) fn find(input: &ReportInput<'_>, suppressions: &Suppressions) -> Unreachable {
    let sites = input.profile.sites.iter();
    let shown: HashSet<_> = sites.map(|it| (it.process, it.stack)).collect();
    let mut found = Unreachable::default();
    for search in &input.profile.reachability {
        for site in &search.sites {
            let is_shown = shown.contains(&(search.process, site.stack));
            if !is_shown {
                continue;
            }
            if suppressions.matching(input, site.stack).is_some() {
                found.suppressed += 1;
                continue;
            }
            let [direct, indirect] = [totals(&site.direct), totals(&site.indirect)];
            let all = sum::of([&direct, &indirect]);
            found.sites.push(UnreachableSite {
                process: search.process,
                stack: site.stack,
                all,
                direct,
                indirect,
            });
        }
        found.searches.push(Reachability {
            sites: Vec::new(),
            ..search.clone()
        });
    }
    // What hangs on other blocks is freed with them.
    found
        .sites
        .sort_by_key(|it| (it.direct.live_allocations == 0, Reverse(it.all.live_bytes)));
    found
}

/// A sum as counters, in which it is live memory.
fn totals(sum: &UnreachableSum) -> Totals {
    Totals {
        live_allocations: sum.blocks,
        live_bytes: sum.bytes,
        errors: Errors {
            live_allocations: sum.blocks_error,
            live_bytes: sum.bytes_error,
            unseen: Unseen {
                live_allocations: sum.blocks_unseen,
                live_bytes: sum.bytes_unseen,
                ..Unseen::default()
            },
            mean_bytes: sum.mean_bytes,
            ..Errors::default()
        },
        ..Totals::default()
    }
}
