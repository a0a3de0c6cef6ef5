//! Finds the sites that grow, and those that left memory.
//!
//! Stage: output. Knows no format.

use std::collections::HashMap;

use super::generations::{self, Generations};
use super::growth::{FEWEST, Group, Growth, Time};
use super::suppressions::Suppressions;
use super::unreachable::{self, Unreachable};
use crate::join::{Kind, ProcessId, StackId, Totals};
use crate::output::report_input::ReportInput;
use crate::output::sum;
use crate::profile::History;

/// The part of a run at its beginning that is not looked at, unless the user says from when on: programs fill their tables then.
const BEGINNING: u64 = 4;

/// The largest probability that any of the sites that are shown as growing does so by chance.
const CHANCE: f64 = 0.01;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The beginning of the time that is looked at; `None` for the usual one.
    pub from_ns: Option<u64>,
    /// Leaks that are known and accepted.
    pub suppressions: Suppressions,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Leaks {
    /// The time that was looked at, nanoseconds since the run began.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// The steps that it was divided into.
    pub steps: usize,
    /// Whether these are enough to see growth.
    pub is_long_enough: bool,
    /// The number of sites that changed in this time.
    pub changed: usize,
    /// Sites that grow, the fastest first.
    pub growing: Vec<Growth>,
    /// Sites that grew and never shrank, but too seldom to be sure, or not at the end; the largest first.
    pub unsure: Vec<Growth>,
    /// Sites of ended processes with memory that was not freed, the largest first.
    pub left: Vec<Left>,
    /// What was allocated between marks.
    pub generations: Generations,
    /// What nothing pointed to, if that was looked for.
    pub unreachable: Unreachable,
    /// The suppressions that matched.
    pub suppressed: Vec<Suppressed>,
}

impl Leaks {
    /// The fewest steps in which growth can be seen.
    pub const FEWEST: usize = FEWEST;
}

/// A site that left memory when its process ended.
#[derive(Clone, Debug)]
pub struct Left {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// Kind of memory.
    pub kind: Kind,
    /// Its counters.
    pub totals: Totals,
}

/// A suppression that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// As the user wrote it.
    pub pattern: String,
    /// The number of sites that it took from the lists.
    pub sites: u64,
    /// Their live and left bytes.
    pub bytes: u64,
}

/// Finds leaks in a profile, by its history.
pub fn find(input: &ReportInput<'_>, history: &History, options: &Options) -> Leaks {
    let ends = history.ends();
    let until_ns = ends.last().copied().unwrap_or(0);
    let from_ns = options.from_ns.unwrap_or(until_ns / BEGINNING);
    let time = Time::new(ends, from_ns, ends.len());
    let mut leaks = Leaks {
        from_ns,
        until_ns,
        steps: time.steps(),
        is_long_enough: time.steps() >= FEWEST,
        changed: 0,
        growing: Vec::new(),
        unsure: Vec::new(),
        left: Vec::new(),
        generations: generations::find(input, &options.suppressions),
        unreachable: unreachable::find(input, &options.suppressions),
        suppressed: Vec::new(),
    };
    let mut suppressed = HashMap::new();
    let mut grew = Vec::new();
    let process_ends = history.ends_of_processes();
    for group in groups(input) {
        let Some(site) = group.sites.first() else {
            continue;
        };
        let is_ended = input.process(site).is_some_and(|it| it.ended);
        // A process may free everything when it ends.
        let end = process_ends.get(&site.process).filter(|_| is_ended);
        let time = Time::new(ends, from_ns, end.copied().unwrap_or(ends.len()));
        let growth = time.growth(history, &group);
        leaks.changed += usize::from(growth.is_some());
        let growth = growth.filter(|it| it.is_above_error());
        let is_left = group.totals.left_bytes > 0;
        if growth.is_none() && !is_left {
            continue;
        }
        if let Some(number) = options.suppressions.matching(input, site.stack) {
            let sums: &mut (u64, u64) = suppressed.entry(number).or_default();
            let bytes = group
                .totals
                .live_bytes
                .saturating_add(group.totals.left_bytes);
            *sums = (sums.0 + 1, sums.1.saturating_add(bytes));
            continue;
        }
        grew.extend(growth);
        if is_left {
            leaks.left.push(Left {
                process: site.process,
                stack: site.stack,
                kind: site.kind,
                totals: group.totals,
            });
        }
    }
    for mut growth in grew {
        growth.chance = (growth.chance * leaks.changed as f64).min(1.0);
        if growth.chance <= CHANCE && growth.continues() {
            leaks.growing.push(growth);
        } else if growth.never_shrank() {
            leaks.unsure.push(growth);
        }
    }
    leaks
        .growing
        .sort_by(|a, b| f64::total_cmp(&b.bytes_per_second[0], &a.bytes_per_second[0]));
    leaks.unsure.sort_by_key(|it| std::cmp::Reverse(it.grew));
    leaks
        .left
        .sort_by_key(|it| std::cmp::Reverse(it.totals.left_bytes));
    let mut numbers: Vec<_> = suppressed.into_iter().collect();
    numbers.sort_unstable();
    leaks.suppressed = numbers
        .into_iter()
        .map(|(number, (sites, bytes))| Suppressed {
            pattern: options.suppressions.text(number).to_owned(),
            sites,
            bytes,
        })
        .collect();
    leaks
}

/// The sites of each stack of each process, in their order.
fn groups<'a>(input: &ReportInput<'a>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut sums: Vec<sum::Sum> = Vec::new();
    let mut known = HashMap::new();
    for site in &input.profile.sites {
        let key = (site.process, site.stack, site.kind);
        let at = *known.entry(key).or_insert(groups.len());
        if at == groups.len() {
            sums.push(sum::Sum::default());
            groups.push(Group {
                sites: Vec::new(),
                totals: Totals::default(),
            });
        }
        if let (Some(group), Some(sum)) = (groups.get_mut(at), sums.get_mut(at)) {
            group.sites.push(site);
            sum.add(&site.totals);
        }
    }
    for (group, sum) in groups.iter_mut().zip(&sums) {
        group.totals = sum.totals();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Process, Site, SiteId, Stack, Update};
    use crate::profile::{Profile, RunInfo, Symbols};

    /// What a site holds at a moment, and what it had freed until then.
    type Course = fn(u64) -> (u64, u64);

    /// Updates at each second of a run, of sites with these courses, and the profile at the end.
    fn run(updates: u64, ended: bool, error: u64, courses: &[Course]) -> (Profile, History) {
        let mut history = History::default();
        let mut profile = Profile::new(RunInfo::exact("x"));
        for at in 0..updates {
            let is_over = ended && at == updates - 1;
            let sites = courses.iter().zip(0..).map(|(course, stack)| {
                let (held, freed) = course(at);
                let mut totals = Totals {
                    allocated_bytes: held + freed,
                    freed_bytes: freed,
                    frees: freed,
                    live_bytes: held,
                    ..Totals::default()
                };
                totals.errors.live_bytes = if held == 0 { 0 } else { error };
                if is_over {
                    (totals.live_bytes, totals.left_bytes) = (0, held);
                }
                let site = Site {
                    totals,
                    ..Site::of_heap(ProcessId(0), StackId(stack), SiteId(0))
                };
                (SiteId(stack), site)
            });
            let is_first = at == 0;
            let stack = || Stack {
                locations: Vec::new(),
                completeness: crate::join::Completeness::Complete,
            };
            let update = Update {
                elapsed_ns: (at + 1) * 1_000_000_000,
                stacks: courses
                    .iter()
                    .filter(|_| is_first)
                    .map(|_| stack())
                    .collect(),
                processes: vec![(
                    ProcessId(0),
                    Process {
                        ended: is_over,
                        ..Process::default()
                    },
                )],
                sites: sites.collect(),
                ..Update::default()
            };
            history.record(&update);
            profile.fold(update).unwrap();
        }
        (profile, history)
    }

    fn found(run: &(Profile, History)) -> Leaks {
        let symbols = Symbols::default();
        let input = ReportInput::new(&run.0, &symbols);
        find(&input, &run.1, &Options::default())
    }

    fn stacks(list: &[Growth]) -> Vec<u32> {
        list.iter().map(|it| it.stack.0).collect()
    }

    /// Check that a leak is found with its rate, also one that frees most of its blocks, and that nothing else is: neither a
    /// table that fills at the beginning or later, nor blocks that are freed together, nor a constant.
    #[test]
    fn leaks_are_told_from_what_is_like_them() {
        let run = run(
            120,
            false,
            0,
            &[
                |at| (5_000, at),
                |at| (1_000 * at, 0),
                |at| (2_000 * at.min(20), 0),
                |at| (700 * at.min(70), 0),
                |at| (at % 5 * 900, at / 5 * 900),
                |at| (10 * at + at % 3, 1_000 * at),
            ],
        );
        let leaks = found(&run);
        assert_eq!(stacks(&leaks.growing), [1, 5]);
        assert_eq!(stacks(&leaks.unsure), [3]);
        assert!(leaks.is_long_enough && leaks.left.is_empty());
        let leak = &leaks.growing[0];
        assert!((leak.bytes_per_second[0] - 1_000.0).abs() < 1.0);
        assert!(leak.chance < 1e-6 && leak.rose == 11);
        assert_eq!(
            (leak.freed, leak.survival.live),
            (0, leak.survival.at_least)
        );
        let other = &leaks.growing[1];
        let freed_share = other.freed as f64 / other.allocated as f64;
        assert!((0.98..1.0).contains(&freed_share), "{other:?}");
        assert_eq!(other.survival.at_least, 0);
    }

    /// Check that a process that frees everything when it ends has leaked until then, and that what it left is shown.
    #[test]
    fn the_end_of_a_process_hides_nothing() {
        let run = run(
            40,
            true,
            0,
            &[
                |at| match at {
                    0..38 => (100 * at, 0),
                    38 => (1_000, 2_700),
                    _ => (0, 3_700),
                },
                |_| (70, 0),
            ],
        );
        let leaks = found(&run);
        assert_eq!(stacks(&leaks.growing), [0]);
        let left: Vec<_> = leaks.left.iter().map(|it| it.stack.0).collect();
        assert_eq!((left, leaks.left[0].totals.left_bytes), (vec![1], 70));
    }

    /// Check that growth within the error of a sample is none, also if the process freed everything at its end.
    #[test]
    fn the_end_of_a_process_hides_no_error() {
        let course: Course = |at| {
            if at < 119 {
                (1_000 * at, 0)
            } else {
                (0, 119_000)
            }
        };
        let growing = |error| found(&run(120, true, error, &[course])).growing;
        assert!(growing(40_000).is_empty());
        assert_eq!(stacks(&growing(20_000)), [0]);
    }

    /// Check that nothing is said of a short recording, and that growth within the error of a sample is none.
    #[test]
    fn what_can_not_be_seen_is_not_said() {
        let short = found(&run(6, false, 0, &[|at| (1_000 * at, 0)]));
        assert!(!short.is_long_enough && short.growing.is_empty());
        let noise = found(&run(120, false, 40_000, &[|at| (1_000 * at, 0)]));
        assert!(noise.is_long_enough && noise.growing.is_empty());
        let above = found(&run(120, false, 20_000, &[|at| (1_000 * at, 0)]));
        assert_eq!(stacks(&above.growing), [0]);
        let empty = found(&(Profile::new(RunInfo::exact("x")), History::default()));
        assert!(!empty.is_long_enough && empty.changed == 0);
    }

    /// Check that many sites without a trend are not taken for leaks.
    #[test]
    fn chance_is_not_shown() {
        fn noise(at: u64) -> (u64, u64) {
            let mut seed = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            seed ^= seed >> 29;
            (seed.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40, 0)
        }
        let sites: [Course; 6] = [
            |at| noise(at + 1),
            |at| noise(at * 3 + 1_000),
            |at| noise(at * 7 + 77),
            |at| noise(at * 11 + 5),
            |at| noise(at * 13 + 99),
            |at| noise(at * 17 + 3),
        ];
        assert!(found(&run(200, false, 0, &sites)).growing.is_empty());
    }
}
