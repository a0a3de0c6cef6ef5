//! The end of a run: all slots are put back.
//!
//! Part of the session. If heaptrace is killed, the installer does the same.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::FastPath;
use super::process::{State, send_all};
use crate::probes::fast::installer::{Answer, Installer, Request};
use crate::proc::processes::start_time;
use crate::session::run::Run;

/// How long the installer may take to put all slots back.
const UNDO: Duration = Duration::from_secs(2);

/// The processes whose slots must be put back.
pub(in crate::session) struct Moved {
    installer: Installer,
    pids: BTreeSet<u32>,
}

impl FastPath {
    /// Takes in the forked children of moved processes, when the kernel program still knows them.
    pub(in crate::session) fn last(self, run: &Run) -> Result<Moved> {
        let by_index: HashMap<u32, u32> = self
            .processes
            .iter()
            .map(|(pid, it)| (it.index, *pid))
            .collect();
        let mut waiting: BTreeSet<u32> = self
            .processes
            .iter()
            .filter(|(_, it)| matches!(it.state, State::Moved { .. }))
            .map(|(pid, _)| *pid)
            .collect();
        for (pid, index) in run.program.hinted()? {
            let parent = by_index.get(&index).copied();
            if let (Some(parent), Some(start_time)) = (parent, start_time(pid))
                && waiting.insert(pid)
            {
                let adopt = Request::Adopt {
                    pid,
                    start_time,
                    parent,
                };
                send_all(self.installer.get_ref(), &[adopt]);
            }
        }
        Ok(Moved {
            installer: self.installer.into_inner(),
            pids: waiting,
        })
    }

    /// Puts all slots back. If that fails, or takes long, the installer does it when heaptrace has ended.
    pub(in crate::session) fn end(moved: Moved) {
        let Moved {
            installer,
            mut pids,
        } = moved;
        let begin = Instant::now();
        for pid in &pids {
            send_all(&installer, &[Request::Undo { pid: *pid }]);
        }
        while !pids.is_empty() && begin.elapsed() < UNDO {
            for answer in installer.answers().unwrap_or_default() {
                if let Answer::Undone { pid, .. } = answer {
                    pids.remove(&pid);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
