//! Gives new children of the targets events of their own ([`Ties`]), on kernels that swap events of parent
//! and child.
//!
//! Part of the session. Up to Linux 6.11, the kernel may swap the events of a process and its child when it
//! schedules one after the other. Then the probes of one go when the other ends. A child is safe from the
//! moment it has ties, which is a race: if a relative ends before, the child may miss calls until it is tied.
//! So a thread with precedence over all others waits for births only, and children that may have lost the
//! race are counted.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::events::sideband::{Change, SideEvent, Sideband};
use crate::probes::attach::Probes;
use crate::probes::ties::Ties;
use crate::sys;

/// A process of the family: a target, which needs no ties, or a descendant.
#[derive(Default)]
struct Member {
    ties: Vec<OwnedFd>,
    /// From its birth to its ties, on the monotonic clock.
    untied: Range<u64>,
    /// Whether a relative ended in that time.
    is_late: bool,
}

/// Listens for births. Must start before the first target is probed, so that no child is missed.
pub(super) struct Listener {
    births: Sideband,
}

/// Follows the births in a family.
pub(super) struct ChildEvents {
    /// Its end of the pipe; closed to end the thread.
    alive: OwnedFd,
    thread: JoinHandle<Tied>,
}

/// The result at the end.
#[derive(Default)]
pub(super) struct Tied {
    /// Open ties.
    pub(super) open: Vec<OwnedFd>,
    /// Children that may have missed calls before they were tied.
    pub(super) late: u64,
    /// Children that could not be tied, and births and ends whose records were lost.
    pub(super) missed: u64,
}

impl Listener {
    /// Starts to listen; `None` if the probes don't need ties.
    pub(super) fn new(probes: &Probes) -> Result<Option<Self>> {
        if probes.ties().is_none() {
            return Ok(None);
        }
        let births = Sideband::births().context("can't follow the births of processes (perf)")?;
        Ok(Some(Self { births }))
    }

    /// Starts to tie the children of the targets.
    pub(super) fn follow(self, probes: &Probes, targets: &[u32]) -> Result<Option<ChildEvents>> {
        let Some(ties) = probes.ties() else {
            return Ok(None);
        };
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let family = targets
            .iter()
            .map(|pid| (*pid, Member::default()))
            .collect();
        let thread = std::thread::Builder::new()
            .name("heaptrace-ties".to_owned())
            .spawn(move || follow(self.births, &ties, family, &ended))
            .context("can't start a thread")?;
        Ok(Some(ChildEvents { alive, thread }))
    }
}

impl ChildEvents {
    /// Ends the thread.
    pub(super) fn end(self) -> Tied {
        drop(self.alive);
        self.thread.join().unwrap_or_default()
    }
}

fn follow(
    mut births: Sideband,
    ties: &Ties,
    mut family: HashMap<u32, Member>,
    ended: &OwnedFd,
) -> Tied {
    sys::set_realtime(true);
    let (mut late, mut missed) = (0, 0);
    loop {
        let descriptors = births.descriptors().chain([ended.as_fd()]);
        // Records that the sideband holds back come with the next call; no new record wakes us for them.
        let ready = sys::are_readable(descriptors, !births.is_holding());
        let is_over = !matches!(ready.as_deref(), Ok([.., false]));
        for SideEvent { time, pid, change } in births.drain() {
            match change {
                Change::Forked { parent } if family.contains_key(&parent) => {
                    let ties = ties.tie(pid).unwrap_or_else(|error| {
                        // A child that has ended already needs no probes.
                        missed += u64::from(error.raw_os_error() != Some(libc::ESRCH));
                        Vec::new()
                    });
                    let member = Member {
                        ties,
                        untied: time..sys::monotonic_now(),
                        is_late: false,
                    };
                    family.insert(pid, member);
                }
                Change::Exited if family.remove(&pid).is_some() => {
                    for member in family.values_mut() {
                        if member.untied.contains(&time) && !member.is_late {
                            member.is_late = true;
                            late += 1;
                        }
                    }
                }
                _ => {}
            }
        }
        if is_over {
            return Tied {
                open: family.into_values().flat_map(|it| it.ties).collect(),
                late,
                missed: missed + births.lost(),
            };
        }
    }
}
