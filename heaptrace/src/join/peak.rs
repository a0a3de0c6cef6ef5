//! The exact peak: the bytes of each site at the moment when the sum of all sites was highest.
//!
//! Stage: join. A growing program reaches a new peak with every allocation. So a new peak copies only the
//! sites that changed since the last peak, usually one.

use super::estimate::{Amount, Estimate};

/// The bytes of a site, now and at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    now: Amount,
    at_peak: Amount,
    /// Whether `now` changed since the peak; then the site is in [`Peak::changed_since_peak`].
    is_changed: bool,
}

/// The bytes of all sites, now and at the peak.
#[derive(Debug, Default)]
pub(super) struct Peak {
    levels: Vec<Level>,
    changed_since_peak: Vec<u32>,
    /// Sites whose bytes at the peak changed since this list was last handed out.
    changed_at_peak: Vec<u32>,
    now: Amount,
    highest: Amount,
}

impl Peak {
    /// The bytes of all sites at the peak.
    pub(super) fn highest(&self) -> &Amount {
        &self.highest
    }

    /// The bytes of a site at the peak.
    pub(super) fn at_peak(&self, site: u32) -> Amount {
        self.levels
            .get(site as usize)
            .map_or_else(Amount::default, |level| level.at_peak)
    }

    /// The bytes of a site now.
    pub(super) fn now(&self, site: u32) -> Amount {
        let level = self.levels.get(site as usize);
        level.map_or_else(Amount::default, |level| level.now)
    }

    /// Sites whose bytes at the peak changed since the last call; some more than once.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed_at_peak)
    }

    /// Adds bytes to a site.
    pub(super) fn grow(&mut self, site: u32, by: Estimate) {
        let bytes = by.bytes;
        self.set(site, |now| *now += bytes);
        self.now += bytes;
        if self.highest.is_below(&self.now) {
            self.highest = self.now;
            for site in self.changed_since_peak.drain(..) {
                if let Some(level) = self.levels.get_mut(site as usize) {
                    level.is_changed = false;
                    if level.at_peak != level.now {
                        level.at_peak = level.now;
                        self.changed_at_peak.push(site);
                    }
                }
            }
        }
    }

    /// Takes bytes off a site.
    pub(super) fn shrink(&mut self, site: u32, by: Estimate) {
        let bytes = by.bytes;
        self.set(site, |now| *now -= bytes);
        self.now -= bytes;
    }

    /// Adds all bytes of a site to another site.
    pub(super) fn merge(&mut self, from: u32, to: u32) {
        let Some(level) = self.levels.get_mut(from as usize) else {
            return;
        };
        let (now, at_peak) = (level.now, std::mem::take(&mut level.at_peak));
        self.set(from, |now| *now = Amount::default());
        self.set(to, |other| *other += now);
        if let Some(level) = self.levels.get_mut(to as usize) {
            level.at_peak += at_peak;
        }
        self.changed_at_peak.extend([from, to]);
    }

    fn set(&mut self, site: u32, change: impl FnOnce(&mut Amount)) {
        let index = site as usize;
        if index >= self.levels.len() {
            self.levels.resize(index + 1, Level::default());
        }
        let Some(level) = self.levels.get_mut(index) else {
            return;
        };
        change(&mut level.now);
        if !level.is_changed {
            level.is_changed = true;
            self.changed_since_peak.push(site);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    fn exactly(bytes: u64) -> Estimate {
        Estimate::of(bytes, 1)
    }

    /// Check that random runs give the same peak as a copy of all sites at each new peak.
    #[test]
    fn equals_a_copy_at_each_peak() {
        let mut random = numbers(1);
        for _ in 0..200 {
            let mut peak = Peak::default();
            let mut known = [0_u64; 5];
            let (mut now, mut copy, mut highest) = ([0_u64; 5], [0_u64; 5], 0);
            for _ in 0..100 {
                let site = random(5);
                let slot = site as usize;
                match random(8) {
                    0..=3 => {
                        let bytes = random(100);
                        now[slot] += bytes;
                        peak.grow(site as u32, exactly(bytes));
                    }
                    4..=6 => {
                        let bytes = random(now[slot] + 1);
                        now[slot] -= bytes;
                        peak.shrink(site as u32, exactly(bytes));
                    }
                    _ => {
                        peak.shrink(site as u32, exactly(now[slot]));
                        now[slot] = 0;
                    }
                }
                // The list of changed sites is complete.
                if random(10) == 0 {
                    for site in peak.take_changed() {
                        known[site as usize] = peak.at_peak(site).rounded();
                    }
                    assert_eq!(
                        known,
                        [0, 1, 2, 3, 4].map(|site| peak.at_peak(site).rounded())
                    );
                }
                if now.iter().sum::<u64>() > highest {
                    highest = now.iter().sum();
                    copy = now;
                }
            }
            assert_eq!(peak.highest().rounded(), highest);
            let kept: Vec<_> = (0..5).map(|site| peak.at_peak(site).rounded()).collect();
            assert_eq!(kept, copy);
        }
    }
}
