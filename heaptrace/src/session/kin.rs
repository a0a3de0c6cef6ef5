//! New children of the targets, tied to their own probes on kernels that would mix them up.
//!
//! Part of the session. Up to Linux 6.11, the events of a process and of its child may be swapped when one is
//! scheduled after the other; the probes of one then go with the end of the other. A child is safe from the moment it
//! has [`Ties`], which is a race: it is lost only by a child that meanwhile has had a child itself, that has ended.
//! So a thread that goes before all others waits for nothing but births.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};

use crate::events::sideband::{Change, SideEvent, Sideband};
use crate::probes::attach::{Probes, Ties};
use crate::sys;

/// The family, by pid, and what ties each member; the first ones need nothing.
type Family = HashMap<u32, Vec<OwnedFd>>;

/// Listens for births; from before the first target is probed, so that no child is missed.
pub(super) struct Listener {
    births: Sideband,
}

/// Follows the births in a family.
pub(super) struct Kin {
    /// Closed to end the thread.
    alive: OwnedFd,
    thread: JoinHandle<Tied>,
}

/// What is there at the end.
#[derive(Default)]
pub(super) struct Tied {
    /// Open ties.
    pub(super) open: Vec<OwnedFd>,
    /// Children that could not be tied, or were not heard of.
    pub(super) missed: u64,
}

impl Listener {
    /// Listens, where the probes need that.
    pub(super) fn new(probes: &Probes) -> Result<Option<Self>> {
        if probes.ties().is_none() {
            return Ok(None);
        }
        let births = Sideband::births().context("can't follow the births of processes (perf)")?;
        Ok(Some(Self { births }))
    }

    /// Begins to tie what the targets fork.
    pub(super) fn follow(self, probes: &Probes, targets: &[u32]) -> Result<Option<Kin>> {
        let Some(ties) = probes.ties() else {
            return Ok(None);
        };
        let (ended, alive) = sys::pipe()?;
        let family = targets.iter().map(|pid| (*pid, Vec::new())).collect();
        let thread = std::thread::Builder::new()
            .name("heaptrace-kin".to_owned())
            .spawn(move || follow(self.births, &ties, family, &ended))
            .context("can't start a thread")?;
        Ok(Some(Kin { alive, thread }))
    }
}

impl Kin {
    /// Ends the thread.
    pub(super) fn end(self) -> Tied {
        drop(self.alive);
        self.thread.join().unwrap_or_default()
    }
}

fn follow(mut births: Sideband, ties: &Ties, mut family: Family, ended: &OwnedFd) -> Tied {
    sys::go_first();
    let mut missed = 0;
    loop {
        let waited = sys::wait_readable(births.descriptors().chain([ended.as_fd()]));
        let is_over = !matches!(waited.as_deref(), Ok([.., false]));
        for SideEvent { pid, change, .. } in births.drain() {
            match change {
                Change::Forked { parent } if family.contains_key(&parent) => {
                    let tied = ties.tie(pid).unwrap_or_else(|error| {
                        // One that has ended already needs no probes.
                        missed += u64::from(error.raw_os_error() != Some(libc::ESRCH));
                        Vec::new()
                    });
                    family.insert(pid, tied);
                }
                Change::Exited => {
                    family.remove(&pid);
                }
                _ => {}
            }
        }
        if is_over {
            return Tied {
                open: family.into_values().flatten().collect(),
                missed: missed + births.lost(),
            };
        }
    }
}

/// What the user should know of children that were missed.
pub(super) fn note(missed: u64) -> Option<String> {
    (missed > 0).then(|| {
        format!(
            "{missed} child processes may not be traced to their end: this kernel mixes up the probes of \
             relatives (Linux 6.12 and later do not)"
        )
    })
}
