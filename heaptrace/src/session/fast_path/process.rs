//! A process on the fast path, or on its way to it, and what is asked of the installer for it.
//!
//! Part of the session. Must not know when a process is moved.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use heaptrace_common::wire::BlockKey;

use crate::kernel::fast::Hints;
use crate::probes::fast::code::{self, Way};
use crate::probes::fast::installer::{Installer, MOST_STUBS, Redirect, Request, Slot};
use crate::probes::fast::plan::{Linked, Plan};
use crate::proc::processes::{self, Image};
use crate::session::run::Run;

/// Earlier blocks that are looked at in a tick.
const AT_A_TIME: usize = 256;

/// Slots in one request.
const IN_A_REQUEST: usize = 1024;

/// Time until the slots of a moved process are looked for again while it still has many probe hits. A program that has just begun
/// maps its libraries one after another, and each call by a slot of a new one traps until then.
pub(super) const SOON: Duration = Duration::from_millis(40);

/// The longest such time. Some calls can't be led elsewhere, and no look helps.
const SELDOM: Duration = Duration::from_secs(1);

/// A process that is being moved, or has been.
pub(super) struct Process {
    /// The program that is moved. After an exec, nothing of the plan holds.
    pub(super) image: Image,
    pub(super) state: State,
    pub(super) plan: Plan,
    pub(super) index: u32,
    pub(super) hints: Hints,
    /// Blocks that were recorded before the process had hints, with their ids.
    pub(super) earlier: VecDeque<(BlockKey, u64)>,
    pub(super) mean: u64,
    /// What its stubs become.
    pub(super) redirects: Vec<Redirect>,
    pub(super) tries: u32,
    pub(super) looked: Instant,
    /// Time from `looked` until its slots are looked for again.
    pub(super) waits: Duration,
}

/// The time until the next look, after one that found new slots, or none.
pub(super) fn wait_after(waited: Duration, has_found: bool) -> Duration {
    if has_found {
        SOON
    } else {
        (2 * waited).min(SELDOM)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The installer attaches to this thread, or waits for it, since `looked`.
    Stopping(u32),
    /// The memory is mapped, and is filled: so many requests are not answered.
    Filling { base: u64, unanswered: u32 },
    /// The code is there, and the slots are written.
    Moved { base: u64 },
}

impl Process {
    /// Whether it is time to look for new slots, if it is moved.
    pub(super) fn is_due(&self) -> bool {
        self.looked.elapsed() >= self.waits
    }

    /// Whether the process has ended, or runs another program.
    pub(super) fn is_gone(&self) -> bool {
        processes::image(self.image.pid) != Some(self.image)
    }

    /// Writes the mean between samples where the code reads it, if it has changed.
    pub(super) fn follow_mean(
        &mut self,
        pid: u32,
        base: u64,
        run: &Run,
        installer: &Installer,
    ) -> Result<()> {
        let mean = run.program.mean_of(pid)?;
        let bytes = mean.to_le_bytes().to_vec();
        if mean != self.mean && send_all(installer, &[fill(pid, code::mean_at(base), bytes)]) {
            self.mean = mean;
        }
        Ok(())
    }

    /// Takes the hints of earlier blocks back when the blocks are gone. Looks at some of them at a time.
    pub(super) fn forget_freed(&mut self, run: &Run) -> Result<()> {
        for _ in 0..self.earlier.len().min(AT_A_TIME) {
            let Some((key, id)) = self.earlier.pop_front() else {
                break;
            };
            if run.program.has_block(key, id)? {
                self.earlier.push_back((key, id));
            } else {
                self.hints.remove(key.address);
            }
        }
        Ok(())
    }
}

/// Sends requests; returns whether the installer has all of them.
pub(super) fn send_all(installer: &Installer, requests: &[Request]) -> bool {
    requests.iter().all(|request| {
        let sent = installer.send(request, None);
        if let Err(error) = &sent {
            tracing::debug!("not sent to the installer: {error}");
        }
        sent.is_ok()
    })
}

pub(super) fn fill(pid: u32, address: u64, bytes: Vec<u8>) -> Request {
    Request::Fill {
        pid,
        address,
        bytes,
    }
}

/// The requests that lead stubs elsewhere.
pub(super) fn of_stubs(pid: u32, stubs: &[Redirect]) -> Vec<Request> {
    let of = |some: &[Redirect]| Request::Redirect {
        pid,
        stubs: some.to_vec(),
    };
    stubs.chunks(MOST_STUBS).map(of).collect()
}

pub(super) fn requests(pid: u32, base: u64, slots: &[Linked], way: Way) -> Vec<Request> {
    let slots: Vec<Slot> = slots
        .iter()
        .filter_map(|slot| {
            Some(Slot {
                address: slot.at,
                old: slot.value,
                new: code::entry(base, slot.function, way)?,
            })
        })
        .collect();
    slots
        .chunks(IN_A_REQUEST)
        .map(|some| Request::Write {
            pid,
            slots: some.to_vec(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that looks that find nothing become rare within seconds, and that one that finds a slot makes them frequent again.
    #[test]
    fn looks_become_rare_when_they_find_nothing() {
        let (mut waits, mut time, mut looks) = (SOON, Duration::ZERO, 0);
        while waits < SELDOM {
            time += waits;
            waits = wait_after(waits, false);
            looks += 1;
        }
        assert!(
            looks <= 5 && time < Duration::from_secs(2),
            "{looks} {time:?}"
        );
        assert_eq!(wait_after(waits, false), SELDOM);
        assert_eq!(wait_after(waits, true), SOON);
    }
}
