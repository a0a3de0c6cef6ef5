//! The types of the blocks that are shown while a run goes on.
//!
//! Part of the command line. Events wait while types are found, so only a few are found at a time, the largest first, and each stack is looked
//! at once. Must not know what is shown.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::join::{LocationId, OpenFiles, StackId};
use crate::output::Metric;
use crate::profile::Profile;
use crate::symbolize::Symbolizer;
use crate::types;
use crate::view::ranked;

/// Stacks whose types are found at once.
const BATCH: usize = 32;

/// Most sites that are looked at.
const MOST: usize = 1 << 16;

/// The stacks whose types were looked for.
#[derive(Debug, Default)]
pub(super) struct LiveTypes {
    asked: BTreeSet<StackId>,
}

impl LiveTypes {
    /// Finds types until this time has passed. Returns whether all were looked for.
    pub(super) fn find(
        &mut self,
        symbolizer: &mut Symbolizer,
        profile: &Profile,
        files: &OpenFiles,
        metric: Metric,
        patience: Duration,
    ) -> bool {
        let begun = Instant::now();
        let stacks = ranked(profile, metric, MOST).into_iter();
        let stacks = stacks.filter_map(|id| profile.sites.get(id.0 as usize));
        let mut seen = BTreeSet::new();
        let new: Vec<StackId> = stacks
            .map(|site| site.stack)
            .filter(|stack| !self.asked.contains(stack) && seen.insert(*stack))
            .collect();
        for batch in new.chunks(BATCH) {
            if begun.elapsed() > patience {
                return false;
            }
            // Types follow from the names of all functions of a stack.
            let known = batch
                .iter()
                .filter_map(|stack| profile.stacks.get(stack.0 as usize));
            let locations: Vec<LocationId> = known
                .flat_map(|stack| stack.locations.iter().copied())
                .collect();
            symbolizer.symbolize(profile, files, locations);
            let batch = batch.iter().copied().collect();
            types::add_types(symbolizer, profile, files, &batch);
            self.asked.extend(batch);
        }
        true
    }
}
