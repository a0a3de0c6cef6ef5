//! How one site changed over the time that is looked at.
//!
//! Stage: output. Knows no format, and nothing of other sites.

use super::{trend, words};
use crate::join::{Errors, Kind, ProcessId, Site, StackId, Totals};
use crate::profile::{History, Period};

/// Most steps that a run is divided into. More would be so short that blocks which live for a while join them.
const STEPS: usize = 12;

/// Fewest steps that say anything.
pub(in crate::output) const FEWEST: usize = 6;

/// The part of its growth that a site must have in the last third of the steps: half of what steady growth has.
const LAST_THIRD: u64 = 6;

/// Standard errors that the growth of a sampled site must exceed.
const SIGMAS: u64 = 3;

/// A site that grew.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The site: its threads together.
    pub process: ProcessId,
    /// Its stack.
    pub stack: StackId,
    /// Kind of memory.
    pub kind: Kind,
    /// Its counters at the end.
    pub totals: Totals,
    /// The end of each step, nanoseconds since the run began, and the least that the site held in the step.
    pub floors: Vec<(u64, u64)>,
    /// In how many steps the floor was above that of the step before.
    pub rose: usize,
    /// How much the floor grew.
    pub grew: u64,
    /// The probability that a site without a trend looks so by chance, for all sites together.
    pub chance: f64,
    /// Bytes per second: the median, and the ends of the range of 95 %.
    pub bytes_per_second: [f64; 3],
    /// What was allocated in the time that was looked at.
    pub allocated: u64,
    /// What was freed in this time.
    pub freed: u64,
    /// Whether a block was freed at any time of the run.
    pub ever_freed: bool,
    /// The standard error of what was live at the end of the time.
    pub error: u64,
    /// How much of what was there in the middle of this time still is.
    pub survival: Survival,
}

impl Growth {
    /// How fast it grows, in words.
    pub fn rate(&self) -> String {
        words::rate(self.bytes_per_second[0])
    }

    /// How sure it is that it grows, in words.
    pub fn confidence(&self) -> String {
        words::confidence(self.chance)
    }
}

/// How much of what was live at a moment is live at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// The moment, nanoseconds since the run began.
    pub from_ns: u64,
    /// What was live then.
    pub live: u64,
    /// At least so much of it is live at the end: all that was freed since may have been of it.
    pub at_least: u64,
}

/// The sites of one stack of a process: those of all its threads.
pub(super) struct Group<'a> {
    pub(super) sites: Vec<&'a Site>,
    pub(super) totals: Totals,
}

/// The time that is looked at: some of the periods of a history.
pub(super) struct Time<'a> {
    ends: &'a [u64],
    /// The first period.
    first: usize,
    /// The one after the last.
    end: usize,
}

impl<'a> Time<'a> {
    pub(super) fn new(ends: &'a [u64], from_ns: u64, end: usize) -> Self {
        let first = ends.iter().take_while(|it| **it <= from_ns).count();
        Self {
            ends,
            first: first.min(end),
            end,
        }
    }

    pub(super) fn steps(&self) -> usize {
        (self.end - self.first).min(STEPS)
    }

    /// The periods of a step.
    fn step(&self, number: usize) -> std::ops::Range<usize> {
        let (periods, steps) = (self.end - self.first, self.steps());
        self.first + number * periods / steps..self.first + (number + 1) * periods / steps
    }

    /// How a site changed in this time; `None` if it did not, or if the time is too short to see it.
    pub(super) fn growth(&self, history: &History, group: &Group<'_>) -> Option<Growth> {
        let site = group.sites.first()?;
        if self.steps() < FEWEST {
            return None;
        }
        let mut periods = vec![Period::default(); self.ends.len()];
        for site in &group.sites {
            for (sum, own) in periods.iter_mut().zip(history.of(site)) {
                sum.low = sum.low.saturating_add(own.low);
                sum.held = sum.held.saturating_add(own.held);
                sum.allocated = sum.allocated.saturating_add(own.allocated);
                sum.freed = sum.freed.saturating_add(own.freed);
                sum.live.error = Errors::both(sum.live.error, own.live.error);
            }
        }
        let floors: Vec<(u64, u64)> = (0..self.steps())
            .map(|number| {
                let step = self.step(number);
                let end = self.ends.get(step.end - 1).copied().unwrap_or(0);
                let lows = periods.get(step).unwrap_or_default().iter();
                (end, lows.map(|it| it.low).min().unwrap_or(0))
            })
            .collect();
        let (times, lows): (Vec<u64>, Vec<u64>) = floors.iter().copied().unzip();
        if lows.windows(2).all(|pair| pair[0] == pair[1]) {
            return None;
        }
        let slope = trend::slope(&times, &lows)?;
        let before = match self.first {
            0 => Period::default(),
            first => *periods.get(first - 1)?,
        };
        let last = *periods.get(self.end - 1)?;
        let middle = (self.first + self.end) / 2;
        let then = *periods.get(middle)?;
        Some(Growth {
            process: site.process,
            stack: site.stack,
            kind: site.kind,
            totals: group.totals,
            rose: lows.windows(2).filter(|pair| pair[1] > pair[0]).count(),
            grew: lows.last()?.saturating_sub(*lows.first()?),
            chance: trend::chance(&lows),
            bytes_per_second: [slope.middle, slope.low, slope.high].map(|it| it * 1e9),
            allocated: last.allocated.saturating_sub(before.allocated),
            freed: last.freed.saturating_sub(before.freed),
            error: last.live.error,
            ever_freed: last.freed > 0 || group.totals.frees > 0,
            survival: Survival {
                from_ns: self.ends.get(middle).copied()?,
                live: then.held,
                at_least: then
                    .held
                    .saturating_sub(last.freed.saturating_sub(then.freed)),
            },
            floors,
        })
    }
}

impl Growth {
    /// Whether a sample shows that it grew. The error of what is held at the end is more than that of what came since.
    pub(super) fn is_above_error(&self) -> bool {
        let errors = &self.totals.errors;
        let error = errors.live_bytes.max(errors.left_bytes);
        self.grew > error.max(self.error).saturating_mul(SIGMAS)
    }

    /// Whether it still grew in the last third of the time, and more often than not: a table that was enlarged once does not.
    pub(super) fn continues(&self) -> bool {
        let steps = self.floors.len();
        let floor = |step: usize| self.floors.get(step).map_or(0, |it| it.1);
        let last = floor(steps - 1);
        let of_last_third = last.saturating_sub(floor(steps - 1 - steps / 3));
        let is_highest = self.floors.iter().all(|it| it.1 <= last);
        is_highest && self.rose * 2 >= steps - 1 && of_last_third >= (self.grew / LAST_THIRD).max(1)
    }

    pub(super) fn never_shrank(&self) -> bool {
        self.floors.windows(2).all(|pair| pair[1].1 >= pair[0].1)
    }
}
