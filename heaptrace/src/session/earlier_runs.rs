//! Puts slots and stubs back that a killed run left on the fast path, or warns of them.
//!
//! Part of the session. Calls through them pass the probes by, so this comes before a run begins to record. Must not
//! know how slots are found.

use crate::config::{RunConfig, Target};
use crate::probes::fast::earlier::{self, Earlier};
use crate::probes::fast::installer::{Installer, MOST_SLOTS, MOST_STUBS, Request, Slot};
use crate::probes::fast::patch::Patch;
use crate::proc::processes::{processes, start_time};

/// Looks at all processes that are targets by now. Only a run with an installer can write into them.
pub(super) fn look(config: &RunConfig, installer: Option<&Installer>) {
    let pids = match &config.target {
        Target::Pids(pids) => pids.clone(),
        Target::All if installer.is_some() => processes().unwrap_or_default(),
        Target::All | Target::Command(_) => return,
    };
    for pid in pids {
        // It names the process whose memory is read next.
        let Some(start_time) = start_time(pid) else {
            continue;
        };
        let earlier = earlier::find(pid);
        let slots: Vec<Slot> = earlier.iter().flat_map(Earlier::left_slots).collect();
        let stubs: Vec<Patch> = earlier.iter().flat_map(Earlier::left_stubs).collect();
        if slots.is_empty() && stubs.is_empty() {
            continue;
        }
        match installer {
            Some(installer) => put_back((pid, start_time), &slots, &stubs, installer),
            None => tracing::warn!(
                "process {pid} still has the fast path of a run that was killed, which hides its calls; \
                 run heaptrace with --fast once to undo that"
            ),
        }
    }
}

fn put_back((pid, start_time): (u32, u64), slots: &[Slot], stubs: &[Patch], installer: &Installer) {
    tracing::info!(
        "{} slots and {} linkage stubs of process {pid} lead to the fast path of a run that was killed",
        slots.len(),
        stubs.len()
    );
    let request = |slots: &[Slot], stubs: &[Patch]| Request::PutBack {
        pid,
        start_time,
        slots: slots.to_vec(),
        stubs: stubs.to_vec(),
    };
    let of_slots = slots.chunks(MOST_SLOTS).map(|some| request(some, &[]));
    let of_stubs = stubs.chunks(MOST_STUBS).map(|some| request(&[], some));
    for request in of_slots.chain(of_stubs) {
        if let Err(error) = installer.send(&request, None) {
            tracing::warn!("process {pid} can't be put back: {error}");
        }
    }
}
