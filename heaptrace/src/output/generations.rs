//! What was allocated since a mark, as a profile of its own, and the generations of selected sites.
//!
//! Stage: output. The result is a profile whose totals add up again, so formats need no code for marks.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::sum::Sum;
use crate::join::{Generation, Kind, Mark, OwnPeak, ProcessId, Site, StackId, ThreadNameId};
use crate::profile::Profile;
use crate::text;

/// A mark, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedMark {
    /// By its number.
    Number(u32),
    /// The last one.
    Last,
}

impl fmt::Display for WantedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Last => f.write_str("last"),
        }
    }
}

impl WantedMark {
    /// The mark in a profile; an error that names those that are there.
    pub fn find(self, marks: &[Mark]) -> Result<Mark, String> {
        let found = match self {
            Self::Last => marks.last(),
            Self::Number(number) => marks.iter().find(|it| it.number == number),
        };
        found.copied().ok_or_else(|| {
            if marks.is_empty() {
                return "there are no marks up to this moment of the recording: `heaptrace leaks` lists those of all of it; \
                     `record --mark-every`, or SIGUSR2 to heaptrace, make some"
                    .to_owned();
            }
            let all: Vec<_> = marks
                .iter()
                .map(|it| format!("{} ({})", it.number, text::duration(it.at_ns)))
                .collect();
            format!("the file has no mark {self}; its marks are {}", all.join(", "))
        })
    }
}

/// What makes a site the same one in all generations.
#[derive(PartialEq, Eq, Hash)]
struct Key(ProcessId, StackId, Option<ThreadNameId>, Kind);

impl Key {
    fn of(site: &Site) -> Self {
        Self(site.process, site.stack, site.thread, site.kind)
    }
}

/// What was allocated since a mark. There are no peaks: when most of it was live is not known.
pub fn since_mark(mut profile: Profile, mark: u32) -> Profile {
    profile.generations.retain(|it| it.mark >= mark);
    // What they say is of the whole run.
    profile.usages.clear();
    let mut sums: HashMap<Key, Sum> = HashMap::new();
    for generation in &profile.generations {
        let sum = sums.entry(Key::of(&generation.site)).or_default();
        sum.add(&generation.site.totals);
    }
    let mut totals = Sum::default();
    let mut of_process = vec![Sum::default(); profile.processes.len()];
    // In their old order, so that equal ones don't change places.
    profile.sites.retain_mut(|site| {
        let Some(sum) = sums.remove(&Key::of(site)) else {
            return false;
        };
        site.totals = sum.totals();
        site.own_peak = OwnPeak::default();
        totals.add(&site.totals);
        if let Some(of_process) = of_process.get_mut(site.process.0 as usize) {
            of_process.add(&site.totals);
        }
        true
    });
    profile.totals = totals.totals();
    for (process, totals) in profile.processes.iter_mut().zip(of_process) {
        process.totals = totals.totals();
    }
    profile
}

/// Keeps the generations of these sites.
pub(super) fn retain(generations: &mut Vec<Generation>, sites: &[Site]) {
    let kept: HashSet<_> = sites.iter().map(Key::of).collect();
    generations.retain(|it| kept.contains(&Key::of(&it.site)));
}
