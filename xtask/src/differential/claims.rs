//! What a program says that it did, and what the preloaded oracle says.
//!
//! Part of differential. It must not know heaptrace.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Numbers of a site.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "[u64; 4]")]
pub(super) struct Counts {
    pub(super) allocations: u64,
    pub(super) bytes: u64,
    pub(super) frees: u64,
    pub(super) freed_bytes: u64,
}

/// What one process says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claim {
    /// The number of the action that began the process; 0 for the first one.
    pub(super) role: u32,
    pub(super) pid: u32,
    pub(super) failed: u64,
    /// By the numbers of the sites.
    pub(super) sites: BTreeMap<u32, Counts>,
}

/// What the oracle says of one process.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Witness {
    #[serde(rename = "oracle")]
    pub(super) pid: u32,
    pub(super) allocations: u64,
    pub(super) bytes: u64,
    /// Allocations whose callers it can't know, because another tracer probed its functions.
    hidden: u64,
    /// Functions, with their allocations and bytes.
    by: Vec<(String, u64, u64)>,
}

/// What was said in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    pub(super) claims: Vec<Claim>,
    pub(super) witnesses: Vec<Witness>,
}

impl From<[u64; 4]> for Counts {
    fn from([allocations, bytes, frees, freed_bytes]: [u64; 4]) -> Self {
        Self {
            allocations,
            bytes,
            frees,
            freed_bytes,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.allocations += other.allocations;
        self.bytes += other.bytes;
        self.frees += other.frees;
        self.freed_bytes += other.freed_bytes;
    }
}

impl Counts {
    /// What these have more than the others; nothing if they have less of anything.
    pub(super) fn minus(self, less: Self) -> Option<Self> {
        Some(Self {
            allocations: self.allocations.checked_sub(less.allocations)?,
            bytes: self.bytes.checked_sub(less.bytes)?,
            frees: self.frees.checked_sub(less.frees)?,
            freed_bytes: self.freed_bytes.checked_sub(less.freed_bytes)?,
        })
    }
}

impl Claims {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut all = Self::default();
        for line in text.lines() {
            let context = || format!("a program printed: {line}");
            if line.starts_with("{\"oracle\"") {
                let witness = serde_json::from_str(line).with_context(context)?;
                all.witnesses.push(witness);
            } else {
                let claim = serde_json::from_str(line).with_context(context)?;
                all.claims.push(claim);
            }
        }
        Ok(all)
    }

    /// The sites of each process. A process that executed a program anew is still the same process.
    pub(super) fn by_process(&self) -> BTreeMap<(u32, u32), Counts> {
        let mut sums: BTreeMap<(u32, u32), Counts> = BTreeMap::new();
        for claim in &self.claims {
            for (&site, &counts) in &claim.sites {
                *sums.entry((claim.pid, site)).or_default() += counts;
            }
        }
        sums
    }

    /// Allocations and bytes that the oracle saw, by what their process began with. Processes that executed a program
    /// anew have several witnesses.
    pub(super) fn witnessed(&self) -> BTreeMap<u32, (u64, u64)> {
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for witness in &self.witnesses {
            let first = self.claims.iter().find(|it| it.pid == witness.pid);
            let sum = sums.entry(first.map_or(0, |it| it.role)).or_default();
            sum.0 += witness.allocations;
            sum.1 += witness.bytes;
        }
        sums
    }

    /// The allocations and bytes of a site that the oracle saw.
    pub(super) fn witnessed_at(&self, site: u32) -> (u64, u64) {
        let name = format!("s{site:03}_");
        let mut sum = (0, 0);
        for witness in &self.witnesses {
            for (_, allocations, bytes) in witness.by.iter().filter(|(by, ..)| *by == name) {
                sum.0 += allocations;
                sum.1 += bytes;
            }
        }
        sum
    }

    /// Whether another tracer hid callers from the oracle.
    pub(super) fn are_callers_hidden(&self) -> bool {
        self.witnesses.iter().any(|it| it.hidden > 0)
    }

    /// All allocations and frees.
    pub(super) fn events(&self) -> u64 {
        let sites = self.claims.iter().flat_map(|it| it.sites.values());
        sites.map(|it| it.allocations + it.frees).sum()
    }
}
