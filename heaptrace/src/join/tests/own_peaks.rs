//! Tests of the bytes of sites at the peaks of their own processes, and of the sizes of mappings.

use std::collections::{BTreeMap, HashMap};

use heaptrace_common::wire::{end as ends, map_flag};

use super::{LIMITS, alloc, begin, end, free, map, stack};
use crate::events::record::Event;
use crate::join::{EndedLimits, Follow, Joiner, Process, ProcessId, Site, SiteId, Update};
use crate::random::numbers;

/// What a reader of the updates has.
#[derive(Default)]
struct Tables {
    processes: HashMap<ProcessId, Process>,
    sites: HashMap<SiteId, Site>,
}

impl Tables {
    fn fold(&mut self, update: Update) {
        self.processes.extend(update.processes);
        self.sites.extend(update.sites);
    }

    /// The sums of the bytes of sites at the peaks of their processes, by process, without zeros.
    fn sums(&self) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        for site in self.sites.values() {
            *sums.entry(site.process.0).or_default() += site.own_peak.bytes;
        }
        sums.retain(|_, sum| *sum > 0);
        sums
    }

    /// The peaks of the processes, without zeros.
    fn peaks(&self) -> BTreeMap<u32, u64> {
        let processes = self.processes.iter();
        let peaks = processes.map(|(id, process)| (id.0, process.totals.peak_live_bytes));
        peaks.filter(|(_, peak)| *peak > 0).collect()
    }
}

/// Check that a process that had its peak before the run's has all bytes of its own peak in its sites, as they were
/// then, and not what is left of them at the run's peak.
#[test]
fn sites_have_their_bytes_at_the_peak_of_their_process() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    for event in [
        begin(1),
        begin(2),
        stack(1, 10, &[5]),
        stack(1, 11, &[6]),
        stack(2, 12, &[7]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 11, 101, 36)),
        free(1, 100, 0),
        free(1, 101, 0),
        Event::Alloc(alloc(1, 11, 102, 7)),
        Event::Alloc(alloc(2, 12, 103, 500)),
    ] {
        joiner.event(event);
    }
    let update = joiner.take_update(5);
    let sites = update.sites.iter().map(|(_, site)| site);
    let found: Vec<_> = sites
        .map(|site| (site.totals.peak_live_bytes, site.own_peak.bytes))
        .collect();
    assert_eq!(found, [(0, 64), (7, 36), (500, 500)]);
}

/// Check that after any events, and in every update, the sites of a process have the bytes of a copy made at the
/// process's peak, and add up to that peak, also after processes ended and were merged.
#[test]
fn sites_add_up_to_the_peak_of_their_process() {
    const PROCESSES: u64 = 12;
    const STACKS: u64 = 3;
    for seed in 0..40 {
        let mut random = numbers(seed);
        let mut joiner = Joiner::new(
            Follow::Family,
            EndedLimits {
                processes: if seed % 2 == 0 { 2 } else { 100 },
                sites: 1000,
            },
        );
        let mut tables = Tables::default();
        let mut blocks: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut now = HashMap::<(u64, u64), u64>::new();
        let mut copies = HashMap::<u64, (u64, Vec<u64>)>::new();
        let mut running: Vec<u64> = (1..=PROCESSES).collect();
        for process in 1..=PROCESSES {
            joiner.event(begin(process));
            for id in 0..STACKS {
                joiner.event(stack(process, id + 1, &[5 + id]));
            }
        }
        for id in 0..600 {
            let process = running[random(running.len() as u64) as usize];
            match random(12) {
                0 if running.len() > 1 && random(8) == 0 => {
                    joiner.event(end(process, ends::EXIT));
                    running.retain(|it| *it != process);
                    blocks.retain(|it| it.0 != process);
                }
                1..=6 => {
                    let (site, size) = (1 + random(STACKS), random(1000));
                    joiner.event(Event::Alloc(alloc(process, site, 100 + id, size)));
                    blocks.push((process, site, 100 + id, size));
                    *now.entry((process, site)).or_default() += size;
                    let levels = (1..=STACKS).map(|site| now.get(&(process, site)).copied());
                    let levels: Vec<u64> = levels.map(Option::unwrap_or_default).collect();
                    let copy = copies.entry(process).or_default();
                    if levels.iter().sum::<u64>() > copy.0 {
                        *copy = (levels.iter().sum(), levels);
                    }
                }
                _ if !blocks.is_empty() => {
                    let at = random(blocks.len() as u64) as usize;
                    let (process, site, id, size) = blocks.swap_remove(at);
                    joiner.event(free(process, id, 0));
                    *now.entry((process, site)).or_default() -= size;
                }
                _ => {}
            }
            if random(10) == 0 {
                tables.fold(joiner.take_update(id));
                assert_eq!(tables.sums(), tables.peaks(), "seed {seed}");
            }
        }
        tables.fold(joiner.take_update(1000));
        assert_eq!(tables.sums(), tables.peaks(), "seed {seed}");
        if seed % 2 == 1 {
            let mut expected: Vec<u64> = copies.values().flat_map(|(_, it)| it.clone()).collect();
            let mut found: Vec<_> = tables.sites.values().map(|it| it.own_peak.bytes).collect();
            for list in [&mut expected, &mut found] {
                list.retain(|bytes| *bytes > 0);
                list.sort_unstable();
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

/// Check that memory that programs map is counted in the classes of sizes, beside the calls that the kernel program
/// counts. (Once, `sizes` had no mappings.)
#[test]
fn mappings_are_in_the_sizes() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.record_mappings();
    for event in [
        begin(1),
        stack(1, 10, &[5]),
        map(map_flag::RECORDED, 3, (0x1000, 0x1000), (0, 0)),
        map(map_flag::RECORDED, 5, (0x8000, 0x3000), (0, 0)),
    ] {
        joiner.event(event);
    }
    joiner.set_sizes(vec![0, 7, 0]);
    let sizes = joiner.take_update(5).sizes;
    let found: Vec<_> = sizes.iter().enumerate().filter(|it| *it.1 > 0).collect();
    // 4 KiB is in the class from 4 KiB, 12 KiB in the one from 8 KiB.
    assert_eq!(found, [(1, &7), (13, &1), (14, &1)]);
}
