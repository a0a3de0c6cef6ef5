//! Puts slots back that a killed run left on the fast path, or warns of them.
//!
//! Part of the session. Calls through such slots pass the probes by, so this comes before a run begins to record. Must not
//! know how slots are found.

use crate::config::{RunConfig, Target};
use crate::probes::fast::earlier::{self, Earlier};
use crate::probes::fast::installer::{Installer, MOST_SLOTS, Request, Slot};
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
        if slots.is_empty() {
            continue;
        }
        match installer {
            Some(installer) => put_back(pid, start_time, &slots, installer),
            None => tracing::warn!(
                "process {pid} still has the fast path of a run that was killed, which hides its calls; \
                 run heaptrace with --fast once to undo that"
            ),
        }
    }
}

fn put_back(pid: u32, start_time: u64, slots: &[Slot], installer: &Installer) {
    tracing::info!(
        "{} slots of process {pid} lead to the fast path of a run that was killed",
        slots.len()
    );
    for some in slots.chunks(MOST_SLOTS) {
        let request = Request::PutBack {
            pid,
            start_time,
            slots: some.to_vec(),
        };
        if let Err(error) = installer.send(&request, None) {
            tracing::warn!("the slots of process {pid} can't be put back: {error}");
        }
    }
}
