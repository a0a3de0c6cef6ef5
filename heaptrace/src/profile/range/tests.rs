//! Tests of ranges, with updates of the join and a count of the same events.

use std::collections::{BTreeMap, HashMap};

use heaptrace_common::wire::end;

use super::Following;
use crate::events::record::Event;
use crate::join::tests::{alloc, begin, end as ended, free, stack};
use crate::join::{EndedLimits, Follow, Joiner, Site, Totals, Update};
use crate::profile::{Profile, RunInfo};

/// What happened in a range, by the stack's only frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    freed_bytes: u64,
    live_bytes: u64,
    left_bytes: u64,
}

impl Counted {
    fn of(totals: &Totals) -> Self {
        Self {
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            frees: totals.frees,
            freed_bytes: totals.freed_bytes,
            live_bytes: totals.live_bytes,
            left_bytes: totals.left_bytes,
        }
    }

    fn add(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.allocated_bytes += other.allocated_bytes;
        self.frees += other.frees;
        self.freed_bytes += other.freed_bytes;
        self.live_bytes += other.live_bytes;
        self.left_bytes += other.left_bytes;
    }
}

/// Frames of stacks, and what was counted of each.
type ByFrame = BTreeMap<u64, Counted>;

/// A machine whose processes begin, allocate, free and end at random.
struct Machine {
    seed: u64,
    joiner: Joiner,
    next: u64,
    running: Vec<u64>,
    /// Process, id, frame and size.
    blocks: Vec<(u64, u64, u64, u64)>,
    counted: ByFrame,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let limits = EndedLimits {
            processes: 2,
            sites: 1_000,
        };
        Self {
            seed,
            joiner: Joiner::new(Follow::Family, limits),
            next: 1,
            running: Vec::new(),
            blocks: Vec::new(),
            counted: ByFrame::new(),
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % below as u64) as usize
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn count(&mut self, frame: u64) -> &mut Counted {
        self.counted.entry(frame).or_default()
    }

    fn step(&mut self) {
        match self.random(20) {
            0 => {
                let process = self.id();
                let mut event = begin(process);
                if let Event::ProcessBegin(begin) = &mut event {
                    (begin.tgid, begin.start_time) = (process as u32, process);
                }
                self.joiner.event(event);
                self.running.push(process);
            }
            1 if self.running.len() > 1 => {
                let at = self.random(self.running.len());
                let process = self.running.swap_remove(at);
                self.joiner.event(ended(process, end::EXIT));
                self.joiner.close(1);
                let (left, live) = self.blocks.iter().partition(|it| it.0 == process);
                self.blocks = live;
                let left: Vec<_> = left;
                for (_, _, frame, size) in left {
                    self.count(frame).left_bytes += size;
                    self.count(frame).live_bytes -= size;
                }
            }
            2..=7 if !self.blocks.is_empty() => {
                let at = self.random(self.blocks.len());
                let (process, id, frame, size) = self.blocks.swap_remove(at);
                self.joiner.event(free(process, id, 0));
                let counted = self.count(frame);
                counted.frees += 1;
                counted.freed_bytes += size;
                counted.live_bytes -= size;
            }
            _ if !self.running.is_empty() => {
                let at = self.random(self.running.len());
                let process = self.running[at];
                let (id, frame) = (self.id(), self.random(5) as u64 + 1);
                let size = self.random(1_000) as u64 + 1;
                self.joiner.event(stack(process, frame, &[frame]));
                self.joiner
                    .event(Event::Alloc(alloc(process, frame, id, size)));
                self.blocks.push((process, id, frame, size));
                let counted = self.count(frame);
                counted.allocations += 1;
                counted.allocated_bytes += size;
                counted.live_bytes += size;
            }
            _ => {}
        }
    }
}

fn by_frame(profile: &Profile, of: impl Fn(&Site) -> Counted) -> ByFrame {
    let mut found = ByFrame::new();
    for site in &profile.sites {
        let stack = &profile.stacks[site.stack.0 as usize];
        let frame = profile.locations[stack.locations[0].0 as usize].address + 1;
        found.entry(frame).or_default().add(&of(site));
    }
    found.retain(|_, it| *it != Counted::default());
    found
}

fn difference(now: &ByFrame, before: &ByFrame) -> ByFrame {
    let mut difference = now.clone();
    for (frame, before) in before {
        let now = difference.get_mut(frame).unwrap();
        now.allocations -= before.allocations;
        now.allocated_bytes -= before.allocated_bytes;
        now.frees -= before.frees;
        now.freed_bytes -= before.freed_bytes;
        now.left_bytes -= before.left_bytes;
    }
    difference.retain(|_, it| *it != Counted::default());
    difference
}

fn bytes(bytes: u64) -> Counted {
    Counted {
        live_bytes: bytes,
        ..Counted::default()
    }
}

/// Check that what is allocated, freed, live, left and at the peak in any range of any run is what happened in it, also of processes
/// that ended and whose records were merged.
#[test]
fn ranges_have_what_happened_in_them() {
    let (mut merged, mut earlier_peaks) = (0, 0);
    for seed in 1..60 {
        let mut machine = Machine::new(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut updates: Vec<Update> = Vec::new();
        let mut counts: Vec<ByFrame> = Vec::new();
        for at in 1..=12 {
            for _ in 0..40 {
                machine.step();
            }
            updates.push(machine.joiner.take_update(at * 10));
            counts.push(machine.counted.clone());
        }
        let (first, last) = (seed as usize % 7, 8 + seed as usize % 4);
        let mut following = Following::new((first as u64 + 1) * 10 + seed % 4);
        let mut profile = Profile::new(RunInfo::exact("--all"));
        let mut peak = (0, ByFrame::new());
        let mut peaks = HashMap::new();
        for (at, update) in updates.into_iter().enumerate().take(last + 1) {
            let changed: Vec<_> = update.processes.iter().map(|it| it.0).collect();
            following.before(&profile, &update);
            profile.fold(update).unwrap();
            following.after(&profile, &changed);
            if at < first {
                continue;
            }
            if profile.totals.live_bytes > peak.0 {
                let live = |site: &Site| bytes(site.totals.live_bytes);
                peak = (profile.totals.live_bytes, by_frame(&profile, live));
            }
            for process in &profile.processes {
                let most = peaks.entry(process.start_time_ns).or_insert(0);
                *most = process.totals.live_bytes.max(*most);
            }
        }
        let whole = profile.clone();
        following.restrict(&mut profile).unwrap();
        profile.settle();
        let range = profile.range.unwrap();
        let ends = ((first as u64 + 1) * 10, (last as u64 + 1) * 10);
        assert_eq!((range.from_ns, range.to_ns), ends, "seed {seed}");
        let expected = difference(&counts[last], &counts[first]);
        let found = by_frame(&profile, |site| Counted::of(&site.totals));
        assert_eq!(found, expected, "seed {seed}");
        let mut sums = [Counted::default(), Counted::default()];
        expected.values().for_each(|it| sums[0].add(it));
        for process in &profile.processes {
            sums[1].add(&Counted::of(&process.totals));
        }
        assert_eq!(sums, [Counted::of(&profile.totals), sums[0].clone()]);
        merged += profile.processes.iter().filter(|it| it.merged > 0).count();

        let at_peak = by_frame(&profile, |site| bytes(site.totals.peak_live_bytes));
        let sum: u64 = at_peak.values().map(|it| it.live_bytes).sum();
        assert_eq!(sum, profile.totals.peak_live_bytes, "seed {seed}");
        if range.peak_is_least {
            earlier_peaks += 1;
            assert_eq!((sum, at_peak), peak, "seed {seed}");
        } else {
            assert_eq!(sum, whole.totals.peak_live_bytes);
        }
        for (id, process) in (0..).zip(&profile.processes) {
            if process.merged > 0 {
                continue;
            }
            let own = profile.sites.iter().filter(|it| it.process.0 == id);
            let sum: u64 = own.map(|it| it.own_peak.bytes).sum();
            assert_eq!(sum, process.totals.peak_live_bytes, "seed {seed}");
            assert!(sum >= peaks[&process.start_time_ns]);
        }
    }
    assert!(merged > 5 && earlier_peaks > 5, "{merged} {earlier_peaks}");
}

/// Check that a range from the beginning is the whole run, and that one without two updates is none.
#[test]
fn ends_of_ranges() {
    let mut machine = Machine::new(77);
    let mut profiles = [0, 33].map(|from| {
        let whole = Profile::new(RunInfo::exact("--all"));
        (Following::new(from), whole)
    });
    for at in 1..=3 {
        for _ in 0..60 {
            machine.step();
        }
        let update = machine.joiner.take_update(at * 10);
        for (following, profile) in &mut profiles {
            following.before(profile, &update);
            profile.fold(update.clone()).unwrap();
            following.after(profile, &[]);
        }
    }
    let [(all, mut profile), (none, mut unchanged)] = profiles;
    let whole = profile.clone();
    assert!(all.restrict(&mut profile).is_some());
    assert_eq!(
        profile.range.map(|it| (it.from_ns, it.to_ns)),
        Some((0, 30))
    );
    profile.range = None;
    profile.settle();
    let mut expected = whole.clone();
    expected.settle();
    assert_eq!(profile.totals, expected.totals);
    assert_eq!(profile.sites, expected.sites);
    assert!(none.restrict(&mut unchanged).is_none());
    assert_eq!(unchanged, whole);
}
