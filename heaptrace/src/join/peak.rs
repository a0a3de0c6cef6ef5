//! The exact peak: each site's bytes at the moment when the sum of all was highest.
//!
//! Stage: join. A growing program reaches a new peak with every allocation, so nothing may be
//! copied then but the sites that changed since the last one: usually one.

use super::estimate::Estimate;

/// Bytes of a site, now and at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    now: Estimate,
    at_peak: Estimate,
    /// Whether `now` changed since the peak; if so the site is in `changed`.
    is_changed: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Peak {
    levels: Vec<Level>,
    changed: Vec<u32>,
    /// Sites whose bytes at the peak are not what they were when this list was last taken.
    moved: Vec<u32>,
    now: Estimate,
    highest: Estimate,
}

impl Peak {
    /// Bytes of all sites at the peak.
    pub(super) fn highest(&self) -> &Estimate {
        &self.highest
    }

    /// Bytes of a site at the peak.
    pub(super) fn at_peak(&self, site: u32) -> Estimate {
        self.levels
            .get(site as usize)
            .map_or_else(Estimate::default, |level| level.at_peak)
    }

    /// Sites whose bytes at the peak changed since the last call; some more than once.
    pub(super) fn take_moved(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.moved)
    }

    /// A site has more bytes.
    pub(super) fn grow(&mut self, site: u32, bytes: Estimate) {
        self.set(site, |now| *now += bytes);
        self.now += bytes;
        if self.highest.is_below(&self.now) {
            self.highest = self.now;
            for site in self.changed.drain(..) {
                if let Some(level) = self.levels.get_mut(site as usize) {
                    level.is_changed = false;
                    if level.at_peak != level.now {
                        level.at_peak = level.now;
                        self.moved.push(site);
                    }
                }
            }
        }
    }

    /// A site has fewer bytes.
    pub(super) fn shrink(&mut self, site: u32, bytes: Estimate) {
        self.set(site, |now| *now -= bytes);
        self.now -= bytes;
    }

    /// A site has none any more: its process ended.
    pub(super) fn clear(&mut self, site: u32) {
        let level = self.levels.get(site as usize);
        let bytes = level.map_or_else(Estimate::default, |level| level.now);
        self.shrink(site, bytes);
    }

    /// A site takes another one's bytes over.
    pub(super) fn merge(&mut self, from: u32, to: u32) {
        let Some(level) = self.levels.get_mut(from as usize) else {
            return;
        };
        let (now, at_peak) = (level.now, std::mem::take(&mut level.at_peak));
        self.set(from, |now| *now = Estimate::default());
        self.set(to, |other| *other += now);
        if let Some(level) = self.levels.get_mut(to as usize) {
            level.at_peak += at_peak;
        }
        self.moved.extend([from, to]);
    }

    fn set(&mut self, site: u32, change: impl FnOnce(&mut Estimate)) {
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
            self.changed.push(site);
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

    /// Check against the plain way, a copy of the world at each new peak, over random runs.
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
                        now[slot] = 0;
                        peak.clear(site as u32);
                    }
                }
                // What is asked for again only where it moved is what it is.
                if random(10) == 0 {
                    for site in peak.take_moved() {
                        known[site as usize] = peak.at_peak(site).bytes();
                    }
                    assert_eq!(
                        known,
                        [0, 1, 2, 3, 4].map(|site| peak.at_peak(site).bytes())
                    );
                }
                if now.iter().sum::<u64>() > highest {
                    highest = now.iter().sum();
                    copy = now;
                }
            }
            assert_eq!(peak.highest().bytes(), highest);
            let kept: Vec<_> = (0..5).map(|site| peak.at_peak(site).bytes()).collect();
            assert_eq!(kept, copy);
        }
    }
}
