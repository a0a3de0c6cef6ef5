//! Decides on sampling rates: lower while samples come faster than the limit, higher again afterwards.
//!
//! Part of the session. The limit is divided into shares. A process that needs less than its share keeps its
//! rate, and the rest of its share goes to the others. So only the processes that allocate most are sampled
//! less. A process can have a limit of its own besides. A process that fills the live map is sampled less and
//! less, so that a leak does not fill it up. Each sample carries its own rate, so changes of the rate can't bias
//! estimates. Must not know the kernel program, nor how samples are joined.

use std::collections::HashMap;
use std::time::Duration;

use crate::join::{ProcessId, Sampled};

/// Time between two looks at the samples, as a rule.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Largest power of two by which a mean is increased.
const MAX_SHIFT: u32 = 24;

/// From this share of the live map on, the processes that fill it are sampled less.
const FILLING: f64 = 0.5;

/// How often their rate is halved until the live map is full.
const HALVINGS: f64 = 20.0;

/// A change of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The process; `None` for the common rate of all processes without their own.
    pub(super) process: Option<(ProcessId, u32)>,
    /// The power of two by which its mean is larger than the run's; `None` if the process gets the common rate.
    pub(super) shift: Option<u32>,
    /// The shift of the common rate.
    pub(super) common: u32,
}

/// Divides the allowed samples between processes.
#[derive(Debug)]
pub(super) struct Control {
    /// Samples per second.
    limit: f64,
    /// The common shift of all processes without their own, as new ones are.
    shift: u32,
    /// The most samples per second of some processes, by process id.
    most: HashMap<u32, f64>,
    /// Processes with a rate of their own.
    shifts: HashMap<ProcessId, (u32, u32)>,
}

impl Control {
    /// `shift`: the common shift of the first processes.
    pub(super) fn new(limit: u32, shift: u32) -> Self {
        Self {
            limit: limit.into(),
            shift,
            most: HashMap::new(),
            shifts: HashMap::new(),
        }
    }

    /// Limits the samples per second of these processes, by process id, and of no others.
    pub(super) fn limit_each(&mut self, most: HashMap<u32, f64>) {
        self.most = most;
    }

    /// The changes after a time in which these samples came. `filled`: the share of the live map that is in use.
    pub(super) fn tick(
        &mut self,
        elapsed: Duration,
        sampled: &[Sampled],
        filled: f64,
    ) -> Vec<Change> {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let demand = |samples: u64, shift: u32| samples as f64 * f64::from(1 << shift) / seconds;
        // All new processes together get one share: there may be many, and short-lived.
        let new = sampled.iter().filter(|it| it.is_new);
        let new = demand(new.map(|it| it.samples).sum(), self.shift);
        let mut claims = vec![new];
        let mut wanted = HashMap::new();
        for it in sampled {
            let (shift, _) = *self.shifts.get(&it.process).unwrap_or(&(self.shift, 0));
            let demand = demand(it.samples, shift);
            if !it.is_new {
                claims.push(demand.min(self.most_of(it.pid)));
            }
            if !it.ended {
                wanted.insert(it.process, (demand, it.pid, it.live_blocks));
            }
        }
        let share = share(self.limit, &mut claims);
        let allowed = allowed(filled);
        // Small processes keep their rate: others fill the map.
        let average = sampled.iter().map(|it| it.live_blocks).sum::<usize>() / sampled.len().max(1);
        let share_of = |live_blocks| {
            if allowed < 1.0 && live_blocks >= average {
                share.min(self.limit) * allowed
            } else {
                share
            }
        };
        let mut changes = Vec::new();
        let before = self.shift;
        self.shift = step(before, new, share);
        if self.shift != before {
            changes.push(Change {
                process: None,
                shift: Some(self.shift),
                common: self.shift,
            });
        }
        // Processes without samples demand nothing; ended processes are forgotten.
        let ended: Vec<_> = sampled.iter().filter(|it| it.ended).collect();
        for it in ended {
            if self.shifts.remove(&it.process).is_some() {
                changes.push(Change {
                    process: Some((it.process, it.pid)),
                    shift: None,
                    common: self.shift,
                });
            }
        }
        for (process, (_, pid)) in &self.shifts {
            wanted.entry(*process).or_insert((0.0, *pid, 0));
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_unstable_by_key(|(process, _)| *process);
        for (process, (demand, pid, live_blocks)) in wanted {
            let own = self.shifts.get(&process).map(|(shift, _)| *shift);
            let share = share_of(live_blocks).min(self.most_of(pid));
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
                process: Some((process, pid)),
                shift: next,
                common: self.shift,
            });
        }
        changes
    }

    fn most_of(&self, pid: u32) -> f64 {
        self.most.get(&pid).copied().unwrap_or(f64::INFINITY)
    }
}

/// The share of its rate that a process keeps that fills the live map, of which this share is in use.
fn allowed(filled: f64) -> f64 {
    let filling = (filled - FILLING) / (1.0 - FILLING);
    (-HALVINGS * filling.clamp(0.0, 1.0)).exp2()
}

/// The largest share that each claim may have, so that all together stay within the limit. Smaller claims
/// leave the rest of their share to the others.
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

/// The next power of two: up at once if there are too many samples, down one at a time if there are too few,
/// and not for a small difference.
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

    /// Runs processes that would get so many samples per tick at the run's own rate; returns their samples at
    /// the end.
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
                    live_blocks: 0,
                    is_new: tick == 0,
                    ended: false,
                })
                .collect();
            control.tick(TICK, &sampled, 0.0);
        }
        came
    }

    fn shift_of(control: &Control, process: u32) -> u32 {
        let own = control.shifts.get(&ProcessId(process));
        own.map_or(control.shift, |(shift, _)| *shift)
    }

    /// Check that a noisy process is sampled less, that quiet processes are not, and that the rate returns
    /// when the noisy process is quiet again.
    #[test]
    fn a_noisy_process_does_not_blind_the_others() {
        let mut control = Control::new(1_000, 0);
        let came = run(&mut control, &[1_000_000, 40, 100], 20);
        assert!(came[0] <= 1_000 && came[0] >= 400, "{came:?}");
        assert_eq!(came[1..], [40, 100]);
        let came = run(&mut control, &[200, 40, 100], 40);
        assert_eq!(came, [200, 40, 100]);
        assert_eq!(control.shift, 0);
        assert!(control.shifts.is_empty());
    }

    /// Check that a process with a limit of its own keeps to it, that the others get the rest, and that its rate returns without
    /// the limit.
    #[test]
    fn a_process_has_a_limit_of_its_own() {
        let mut control = Control::new(1_000, 0);
        control.limit_each(HashMap::from([(100, 100.0)]));
        let came = run(&mut control, &[1_000_000, 1_000_000], 20);
        assert!((40..=100).contains(&came[0]), "{came:?}");
        assert!((450..=900).contains(&came[1]), "{came:?}");
        control.limit_each(HashMap::new());
        let came = run(&mut control, &[400, 100], 40);
        assert_eq!(came, [400, 100]);
    }

    /// Check that equal processes get equal shares, and together not more than the limit.
    #[test]
    fn equals_get_equal_shares() {
        let mut control = Control::new(1_000, 0);
        let came = run(&mut control, &[5_000; 20], 20);
        assert!(came.iter().all(|it| *it == came[0]), "{came:?}");
        let all: u64 = came.iter().sum();
        assert!((400..=1_000).contains(&all), "{all}");
    }

    /// Check that a flood of short-lived processes is limited like one process.
    #[test]
    fn new_processes_get_one_share_together() {
        let mut control = Control::new(1_000, 0);
        for tick in 0..10 {
            let sampled: Vec<_> = (0..50)
                .map(|index| Sampled {
                    process: ProcessId(tick * 50 + index),
                    pid: index,
                    samples: 400 >> control.shift,
                    live_blocks: 0,
                    is_new: true,
                    ended: true,
                })
                .collect();
            control.tick(TICK, &sampled, 0.0);
        }
        assert!(50 * (400 >> control.shift) * 4 <= 1_000, "{control:?}");
        assert!(control.shifts.is_empty());
        // When they are gone, the rate returns.
        for _ in 0..20 {
            control.tick(TICK, &[], 0.0);
        }
        assert_eq!(control.shift, 0);
    }

    /// Check that the rate of an ended process is removed, as another process may get its pid soon.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut control = Control::new(100, 0);
        run(&mut control, &[1_000_000, 10], 5);
        assert!(shift_of(&control, 0) > 5);
        let ended = Sampled {
            process: ProcessId(0),
            pid: 100,
            samples: 3,
            live_blocks: 0,
            is_new: false,
            ended: true,
        };
        let changes = control.tick(TICK, &[ended], 0.0);
        let back = Change {
            process: Some((ProcessId(0), 100)),
            shift: None,
            common: control.shift,
        };
        assert!(changes.contains(&back), "{changes:?}");
        assert!(!control.shifts.contains_key(&ProcessId(0)));
    }

    /// Check that a process that frees nothing does not fill the live map within a day, that another process keeps its
    /// rate, and that the first one's rate returns when it has freed everything.
    #[test]
    fn a_leak_does_not_fill_the_live_map() {
        const CAPACITY: usize = 500_000;
        let mut control = Control::new(10_000, 0);
        let mut tick = |live_blocks: usize, demands: [u64; 2]| {
            let sampled = [0, 1].map(|index| Sampled {
                process: ProcessId(index),
                pid: 100 + index,
                samples: demands[index as usize] >> shift_of(&control, index),
                live_blocks: if index == 0 { live_blocks } else { 10 },
                is_new: false,
                ended: false,
            });
            control.tick(TICK, &sampled, live_blocks as f64 / CAPACITY as f64);
            sampled.map(|it| it.samples)
        };
        let mut live = 0;
        for _ in 0..4 * 86_400 {
            let [leaked, other] = tick(live, [10_000, 50]);
            live += leaked as usize;
            assert_eq!(other, 50);
        }
        assert!((CAPACITY / 2..CAPACITY).contains(&live), "{live}");
        for _ in 0..40 {
            tick(0, [200, 50]);
        }
        assert_eq!(tick(0, [200, 50]), [200, 50]);
    }
}
