//! The sampling rate, made lower where samples come faster than is wanted, and higher again.
//!
//! Part of the session. The limit is shared out: a process that has less than its share keeps its rate,
//! and what it leaves goes to the others. So whoever allocates most is sampled less, and nobody is
//! for what others do. Each sample carries its own rate, so that nothing here can bias what is
//! estimated. Knows neither the kernel program nor how samples are joined.

use std::collections::HashMap;
use std::time::Duration;

use crate::join::{ProcessId, Sampled};

/// Time between two looks at what came.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// The largest power of two that a mean is made larger by.
const MAX_SHIFT: u32 = 24;

/// A rate that is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Whose; that of all that have none of their own where there is nobody.
    pub(super) whose: Option<(ProcessId, u32)>,
    /// By which power of two its mean is larger than that of the run; `None` for a process that is to be
    /// as all others.
    pub(super) shift: Option<u32>,
    /// That of all that have none of their own.
    pub(super) all: u32,
}

/// Shares out how many samples there may be.
#[derive(Debug)]
pub(super) struct Control {
    /// Samples a second.
    limit: f64,
    /// For all that have none of their own: those that were not seen before.
    shift: u32,
    /// Processes with a rate of their own.
    shifts: HashMap<ProcessId, (u32, u32)>,
}

impl Control {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: limit.into(),
            shift: 0,
            shifts: HashMap::new(),
        }
    }

    /// What is to be changed after a time in which these samples came.
    pub(super) fn tick(&mut self, elapsed: Duration, sampled: &[Sampled]) -> Vec<Change> {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let demand = |samples: u64, shift: u32| samples as f64 * f64::from(1 << shift) / seconds;
        // Processes that have not been seen before share one share: there may be many, and short.
        let news = sampled.iter().filter(|it| it.is_new);
        let news = demand(news.map(|it| it.samples).sum(), self.shift);
        let mut claims = vec![news];
        let mut wanted = HashMap::new();
        for it in sampled {
            let (shift, _) = *self.shifts.get(&it.process).unwrap_or(&(self.shift, 0));
            let demand = demand(it.samples, shift);
            if !it.is_new {
                claims.push(demand);
            }
            if !it.ended {
                wanted.insert(it.process, (demand, it.pid));
            }
        }
        let share = share(self.limit, &mut claims);
        let mut changes = Vec::new();
        let before = self.shift;
        self.shift = step(before, news, share);
        if self.shift != before {
            changes.push(Change {
                whose: None,
                shift: Some(self.shift),
                all: self.shift,
            });
        }
        // Of those of which nothing came, nothing is wanted; the ended ones are forgotten.
        let ended: Vec<_> = sampled.iter().filter(|it| it.ended).collect();
        for it in ended {
            if self.shifts.remove(&it.process).is_some() {
                changes.push(Change {
                    whose: Some((it.process, it.pid)),
                    shift: None,
                    all: self.shift,
                });
            }
        }
        for (process, (_, pid)) in &self.shifts {
            wanted.entry(*process).or_insert((0.0, *pid));
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_unstable_by_key(|(process, _)| *process);
        for (process, (demand, pid)) in wanted {
            let own = self.shifts.get(&process).map(|(shift, _)| *shift);
            let next = step(own.unwrap_or(before), demand, share);
            let next = (next != self.shift).then_some(next);
            if next == own {
                continue;
            }
            match next {
                Some(shift) => self.shifts.insert(process, (shift, pid)),
                None => self.shifts.remove(&process),
            };
            changes.push(Change {
                whose: Some((process, pid)),
                shift: next,
                all: self.shift,
            });
        }
        changes
    }
}

/// The most that each may have, so that all together have what is there: those that want less leave the rest
/// to the others.
fn share(limit: f64, claims: &mut [f64]) -> f64 {
    claims.sort_by(f64::total_cmp);
    let mut left = limit;
    for (index, claim) in claims.iter().enumerate() {
        let share = left / (claims.len() - index) as f64;
        if *claim > share {
            return share;
        }
        left -= claim;
    }
    f64::INFINITY
}

/// The next power of two: at once where there is too much, one at a time where there is too little, and not
/// for a little less.
fn step(now: u32, demand: f64, share: f64) -> u32 {
    let at = |shift: u32| demand / f64::from(1 << shift);
    let mut enough = 0;
    while enough < MAX_SHIFT && at(enough) > share {
        enough += 1;
    }
    if enough >= now {
        enough
    } else if at(now - 1) <= share * 0.8 {
        now - 1
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes that allocate so that so many samples a second would come at the run's own rate.
    fn run(control: &mut Control, demands: &[u64], ticks: u32) -> Vec<u64> {
        let mut came = Vec::new();
        for tick in 0..ticks {
            came = (0..)
                .zip(demands)
                .map(|(index, demand)| {
                    let own = control.shifts.get(&ProcessId(index));
                    demand >> own.map_or(control.shift, |(shift, _)| *shift)
                })
                .collect();
            let sampled: Vec<_> = (0..)
                .zip(&came)
                .filter(|(_, came)| **came > 0)
                .map(|(index, came)| Sampled {
                    process: ProcessId(index),
                    pid: 100 + index,
                    samples: came / 4,
                    is_new: tick == 0,
                    ended: false,
                })
                .collect();
            control.tick(TICK, &sampled);
        }
        came
    }

    fn shift_of(control: &Control, process: u32) -> u32 {
        let own = control.shifts.get(&ProcessId(process));
        own.map_or(control.shift, |(shift, _)| *shift)
    }

    /// Check that a noisy process is sampled less, that quiet ones are not, and that all is as before when it
    /// is quiet again.
    #[test]
    fn a_noisy_process_does_not_blind_the_others() {
        let mut control = Control::new(1_000);
        let came = run(&mut control, &[1_000_000, 40, 100], 20);
        assert!(came[0] <= 1_000 && came[0] >= 400, "{came:?}");
        assert_eq!(came[1..], [40, 100]);
        let came = run(&mut control, &[200, 40, 100], 40);
        assert_eq!(came, [200, 40, 100]);
        assert_eq!(control.shift, 0);
        assert!(control.shifts.is_empty());
    }

    /// Check that many that want the same get the same, and together no more than there is.
    #[test]
    fn equals_get_equal_shares() {
        let mut control = Control::new(1_000);
        let came = run(&mut control, &[5_000; 20], 20);
        assert!(came.iter().all(|it| *it == came[0]), "{came:?}");
        let all: u64 = came.iter().sum();
        assert!((400..=1_000).contains(&all), "{all}");
    }

    /// Check that a flood of processes that come and go is limited as one.
    #[test]
    fn newcomers_share_one_share() {
        let mut control = Control::new(1_000);
        for tick in 0..10 {
            let sampled: Vec<_> = (0..50)
                .map(|index| Sampled {
                    process: ProcessId(tick * 50 + index),
                    pid: index,
                    samples: 400 >> control.shift,
                    is_new: true,
                    ended: true,
                })
                .collect();
            control.tick(TICK, &sampled);
        }
        assert!(50 * (400 >> control.shift) * 4 <= 1_000, "{control:?}");
        assert!(control.shifts.is_empty());
        // When they are gone, the rate is what it was.
        for _ in 0..20 {
            control.tick(TICK, &[]);
        }
        assert_eq!(control.shift, 0);
    }

    /// Check that the rate of a process that has ended is taken back, as its pid may be another's soon.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut control = Control::new(100);
        run(&mut control, &[1_000_000, 10], 5);
        assert!(shift_of(&control, 0) > 5);
        let ended = Sampled {
            process: ProcessId(0),
            pid: 100,
            samples: 3,
            is_new: false,
            ended: true,
        };
        let changes = control.tick(TICK, &[ended]);
        let back = Change {
            whose: Some((ProcessId(0), 100)),
            shift: None,
            all: control.shift,
        };
        assert!(changes.contains(&back), "{changes:?}");
        assert!(!control.shifts.contains_key(&ProcessId(0)));
    }
}
