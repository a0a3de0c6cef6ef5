//! How much of what was allocated between two marks lives on, in all and by site.
//!
//! Stage: output. Knows no format.

use std::collections::HashMap;

use super::suppressions::Suppressions;
use crate::join::{Generation, Kind, Mark, Note, ProcessId, StackId, Totals};
use crate::output::report_input::ReportInput;
use crate::output::sum;

/// Most sites that are kept apart: each has numbers for each two marks.
const MOST: usize = 100;

/// What was allocated between two marks.
#[derive(Clone, Debug)]
pub struct Born {
    /// The mark before; `None` for what was allocated before the first one.
    pub mark: Option<Mark>,
    /// The time of the next mark, or of the end of the recording.
    pub until_ns: u64,
    /// Its counters, without a peak.
    pub totals: Totals,
    /// The bytes that were not freed at each later mark; empty for what was allocated before the first one.
    pub survived: Vec<(Mark, u64)>,
}

/// A site with memory that has survived a mark.
#[derive(Clone, Debug)]
pub struct Survivor {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// Kind of memory.
    pub kind: Kind,
    /// Counters of what it allocated between the first mark and the last.
    pub totals: Totals,
    /// What it allocated between two marks each, also after the last.
    pub born: Vec<Born>,
}

impl Born {
    /// What is not freed.
    pub fn held(&self) -> u64 {
        held(&self.totals)
    }
}

impl Survivor {
    /// The oldest generation of which something is not freed.
    pub fn oldest(&self) -> Option<&Born> {
        self.born.iter().find(|it| it.held() > 0)
    }
}

/// What is known of generations.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    /// All that was allocated, in the order of time; empty without marks.
    pub all: Vec<Born>,
    /// The sites of which most survived a mark, the largest first.
    pub survivors: Vec<Survivor>,
    /// How many such sites there are.
    pub surviving: usize,
    /// How many marks and allocations found no room in generations.
    pub without_room: u64,
}

pub(super) fn held(totals: &Totals) -> u64 {
    totals.live_bytes.saturating_add(totals.left_bytes)
}

/// The generations of a profile.
pub(super) fn find(input: &ReportInput<'_>, suppressions: &Suppressions) -> Generations {
    let profile = input.profile;
    let marks = &profile.marks;
    let Some(last) = marks.last() else {
        return Generations::default();
    };
    let ends: HashMap<u32, u64> = marks
        .windows(2)
        .map(|pair| (pair[0].number, pair[1].at_ns))
        .collect();
    let until = |mark: &Mark| {
        ends.get(&mark.number)
            .copied()
            .unwrap_or(profile.duration_ns)
    };
    let everything: Vec<&Generation> = profile.generations.iter().collect();
    let mut all = vec![before(input, marks)];
    all.extend(born(&everything, marks, &until));
    let mut by_site: HashMap<_, Vec<&Generation>> = HashMap::new();
    for it in everything {
        let key = (it.site.process, it.site.stack, it.site.kind);
        by_site.entry(key).or_default().push(it);
    }
    let mut survivors: Vec<_> = by_site
        .into_iter()
        .filter_map(|((process, stack, kind), generations)| {
            let closed = generations.iter().filter(|it| it.mark < last.number);
            let totals = sum::of(closed.map(|it| &it.site.totals));
            let is_shown = held(&totals) > 0 && suppressions.matching(input, stack).is_none();
            is_shown.then_some((process, stack, kind, totals, generations))
        })
        .collect();
    // Sites with equal numbers have an order, too.
    survivors.sort_by_key(|it| (std::cmp::Reverse(held(&it.3)), it.0, it.1, it.2));
    let surviving = survivors.len();
    survivors.truncate(MOST);
    let survivor = |(process, stack, kind, totals, generations): (_, _, _, _, Vec<_>)| Survivor {
        process,
        stack,
        kind,
        totals,
        born: born(&generations, marks, &until),
    };
    Generations {
        all,
        survivors: survivors.into_iter().map(survivor).collect(),
        surviving,
        without_room: profile
            .quality
            .noted
            .get(Note::MarksWithoutRoom.name())
            .copied()
            .unwrap_or_default(),
    }
}

/// What was allocated before the first mark: the rest.
fn before(input: &ReportInput<'_>, marks: &[Mark]) -> Born {
    let profile = input.profile;
    let mut totals = sum::of(profile.sites.iter().map(|it| &it.totals));
    let later = sum::of(profile.generations.iter().map(|it| &it.site.totals));
    for (all, later) in [
        (&mut totals.allocations, later.allocations),
        (&mut totals.allocated_bytes, later.allocated_bytes),
        (&mut totals.frees, later.frees),
        (&mut totals.freed_bytes, later.freed_bytes),
        (&mut totals.live_allocations, later.live_allocations),
        (&mut totals.live_bytes, later.live_bytes),
        (&mut totals.left_allocations, later.left_allocations),
        (&mut totals.left_bytes, later.left_bytes),
        (
            &mut totals.temporary_allocations,
            later.temporary_allocations,
        ),
        (
            &mut totals.uncertain_allocations,
            later.uncertain_allocations,
        ),
        (&mut totals.uncertain_bytes, later.uncertain_bytes),
    ] {
        *all = all.saturating_sub(later);
    }
    totals.peak_live_bytes = 0;
    totals.errors.peak_live_bytes = 0;
    totals.errors.unseen.peak_live_bytes = 0;
    Born {
        mark: None,
        until_ns: marks.first().map_or(profile.duration_ns, |it| it.at_ns),
        totals,
        survived: Vec::new(),
    }
}

/// The sums of generations, for each mark that has any.
fn born(generations: &[&Generation], marks: &[Mark], until: &impl Fn(&Mark) -> u64) -> Vec<Born> {
    let mut by_mark: HashMap<u32, Vec<&Generation>> = HashMap::new();
    for it in generations {
        by_mark.entry(it.mark).or_default().push(it);
    }
    let born = marks.iter().enumerate().filter_map(|(at, mark)| {
        let generations = by_mark.get(&mark.number)?;
        let totals = sum::of(generations.iter().map(|it| &it.site.totals));
        let later = marks.get(at + 1..).unwrap_or_default();
        let mut survived: Vec<_> = later.iter().map(|later| (*later, 0)).collect();
        for generation in generations {
            add_survived(&mut survived, generation);
        }
        Some(Born {
            mark: Some(*mark),
            until_ns: until(mark),
            totals,
            survived,
        })
    });
    born.collect()
}

/// Adds what was not freed of a generation at each mark. Its own numbers are in the same order.
fn add_survived(survived: &mut [(Mark, u64)], generation: &Generation) {
    let mut numbers = generation.survived.iter().peekable();
    for (mark, sum) in survived {
        while numbers.next_if(|it| it.0 < mark.number).is_some() {}
        let held = numbers.peek().map_or_else(|| generation.held(), |it| it.1);
        *sum = sum.saturating_add(held);
    }
}
