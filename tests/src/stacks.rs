//! Comparison of heaptrace's stacks with gdb's, frame by frame, at the same allocations.
//!
//! Part of the harness. It runs neither of them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::gdb::{Backtrace, GdbFrame};
use crate::report::{Frame, Report, Site};

/// The part of a function's name that both write alike: without parameters, namespaces, and the prefixes of the C
/// library's aliases.
fn plain(name: &str) -> &str {
    let name = name.trim_start_matches("(anonymous namespace)::");
    let name = name.split('(').next().unwrap_or(name);
    let name = name.rsplit("::").next().unwrap_or(name);
    name.trim_start_matches("__GI_").trim_start_matches('_')
}

/// Whether both describe the same frame.
fn same(ours: &Frame, theirs: &GdbFrame) -> Result<bool> {
    let name = ours.function.as_deref().filter(|name| !name.is_empty());
    // Only gdb has a name for the code to which a signal handler returns.
    let named = match (name, theirs.function.as_deref()) {
        (Some(ours), Some(theirs)) => plain(ours) == plain(theirs),
        (None, Some(theirs)) => theirs == "<signal handler called>" || theirs == "__restore_rt",
        (_, None) => true,
    };
    let (file, offset) = &theirs.place;
    let digits = ours.address.trim_start_matches("0x");
    let address = u64::from_str_radix(digits, 16)?;
    // Our address is inside of the call, or exactly at the instruction that a signal interrupted.
    let placed = address == *offset || address + 1 == *offset;
    Ok(named && placed && ours.module.as_deref() == Some(file.as_str()))
}

impl Site {
    /// Fails unless its stack is gdb's. An incomplete stack must be the inner part of gdb's.
    fn has_stack_of(&self, theirs: &Backtrace) -> Result<()> {
        if self.stack_end == "complete" {
            let (ours, theirs) = (self.stack.len(), theirs.len());
            ensure!(ours == theirs, "{ours} frames, of gdb's {theirs}");
        }
        for (number, (ours, theirs)) in self.stack.iter().zip(theirs).enumerate() {
            ensure!(
                same(ours, theirs)?,
                "frame {number}: ours {ours:?}, gdb's {theirs:?}"
            );
        }
        Ok(())
    }
}

impl Report {
    /// The sites with a single block, of a size that no other such site has.
    pub fn sites_by_size(&self) -> BTreeMap<u64, &Site> {
        let mut sites = BTreeMap::<u64, Vec<&Site>>::new();
        for site in &self.sites {
            let totals = &site.totals;
            if totals.allocations == 1 {
                sites.entry(totals.allocated_bytes).or_default().push(site);
            }
        }
        let single = sites.into_iter().filter(|(_, sites)| sites.len() == 1);
        single.map(|(size, sites)| (size, sites[0])).collect()
    }

    /// Fails unless the stack of the only block of each of these sizes is gdb's. Returns the number of frames.
    pub fn has_stacks_of_gdb(&self, stacks: &BTreeMap<u64, Backtrace>) -> Result<usize> {
        let sites = self.sites_by_size();
        let mut frames = 0;
        for (size, stack) in stacks {
            let site = sites
                .get(size)
                .with_context(|| format!("no site of {size} bytes"))?;
            site.has_stack_of(stack)
                .with_context(|| format!("{size} bytes"))?;
            frames += site.stack.len();
        }
        Ok(frames)
    }
}
