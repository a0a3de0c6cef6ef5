//! What follows from each answer of the installer.
//!
//! Part of the session. Must not know which processes are worth moving.

use std::time::Duration;

use anyhow::Result;

use super::process::{State, fill, of_stubs, requests, send_all};
use super::{FastPath, SIGNAL, TRIES, name};
use crate::open;
use crate::probes::fast::code::{self, CODE_BYTES, Probe, Way};
use crate::probes::fast::earlier;
use crate::probes::fast::installer::{Answer, Request};
use crate::probes::fast::plan;
use crate::proc::owner::Owner;
use crate::proc::processes::start_time;
use crate::session::run::Run;
use crate::sys;

/// Time for probe hits to end that had looked for hints before there were any.
const GRACE: Duration = Duration::from_millis(2);

impl FastPath {
    /// Takes in what the installer has done.
    pub(in crate::session) fn take_answers(&mut self, run: &mut Run) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        let answers = match self.installer.get_ref().answers() {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(
                    "no more processes are moved to the fast path: the installer: {error}"
                );
                self.is_over = true;
                return Ok(());
            }
        };
        for answer in answers {
            match answer {
                Answer::Seized { pid } => {
                    if let Some(State::Stopping(tid)) = self.processes.get(&pid).map(|it| it.state)
                    {
                        run.program.stop_at_hit(tid, SIGNAL as u32)?;
                    }
                }
                Answer::Mapped { pid, base, links } => self.mapped(pid, base, &links, run)?,
                Answer::NotMapped { pid, why } => self.not_mapped(pid, why, run)?,
                Answer::Written { pid, written } => {
                    tracing::debug!(
                        "{} slots or stubs of process {pid} are written",
                        written.len()
                    );
                }
                Answer::Filled { pid, ok } => self.filled(pid, ok, run)?,
                Answer::Adopted { .. } | Answer::Undone { .. } => {}
            }
        }
        Ok(())
    }

    /// The memory is there: fills it.
    fn mapped(&mut self, pid: u32, base: u64, links: &[u64], run: &mut Run) -> Result<()> {
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        if let State::Stopping(tid) = process.state {
            run.program.forget_stop(tid)?;
        }
        if process.is_gone() {
            // Nothing leads to the memory.
            send_all(self.installer.get_ref(), &[Request::Undo { pid }]);
            self.processes.remove(&pid);
            return Ok(());
        }
        let cookie = run.program.fast_cookie();
        let agent = std::process::id();
        let owner = (agent, start_time(agent).unwrap_or(0));
        process.redirects = process.plan.stubs.redirects(base, links);
        let recorded = process.plan.recorded(&process.redirects);
        let data = code::data(process.mean, sys::random()?, owner, &recorded);
        let Some(contents) = process.plan.contents(base, cookie, data, self.way) else {
            self.give_up(pid, plan::Unplanned::NoRoom.to_string());
            return Ok(());
        };
        let requests: Vec<Request> = contents
            .into_iter()
            .map(|(address, bytes)| fill(pid, address, bytes))
            .collect();
        process.state = State::Filling {
            base,
            unanswered: requests.len() as u32,
        };
        if !send_all(self.installer.get_ref(), &requests) {
            self.give_up(pid, "the installer has too much to do".to_owned());
        }
        Ok(())
    }

    /// A part of the memory is filled. When all of it is, the process gets its hints, and its slots are written.
    fn filled(&mut self, pid: u32, ok: bool, run: &mut Run) -> Result<()> {
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        let State::Filling { base, unanswered } = process.state else {
            return Ok(());
        };
        if !ok {
            self.give_up(pid, "its memory can't be written".to_owned());
            return Ok(());
        }
        if unanswered > 1 {
            process.state = State::Filling {
                base,
                unanswered: unanswered - 1,
            };
            return Ok(());
        }
        if self.way == Way::Exact {
            let probes = code::probes(&process.plan.functions);
            if let Err(why) = probe(pid, base, &probes, run)? {
                self.give_up(pid, format!("the code can't be probed: {why}"));
                return Ok(());
            }
        }
        run.program.set_hints(pid, process.index, &process.hints)?;
        // The kernel program forgets the hints of a process that starts another program from now on.
        if !earlier::has_code(pid, base) {
            run.program.remove_hints(pid)?;
            self.processes.remove(&pid);
            return Ok(());
        }
        if self.way == Way::Sampled {
            // The live map may be large.
            let earlier = run.during(|program, _| {
                std::thread::sleep(GRACE);
                program.without_hint(pid)
            });
            process.earlier = earlier??.into();
            for (key, _) in &process.earlier {
                process.hints.add(key.address);
            }
        }
        process.state = State::Moved { base };
        self.moved += 1;
        self.refusals.forget(&process.image);
        tracing::info!(
            "{}[{pid}] is on the fast path from now on: {} slots and {} linkage stubs lead to code at {base:#x}",
            name(pid),
            process.plan.slots.len(),
            process.redirects.len()
        );
        // Slots that can't be written now are found again, because their calls go on to hit probes.
        let mut all = requests(pid, base, &process.plan.slots, self.way);
        all.extend(of_stubs(pid, &process.redirects));
        send_all(self.installer.get_ref(), &all);
        Ok(())
    }

    /// Forgets a process that can't be moved.
    fn give_up(&mut self, pid: u32, why: String) {
        if let Some(process) = self.processes.remove(&pid) {
            self.refuse(process.image, why);
        }
    }

    fn not_mapped(&mut self, pid: u32, why: String, run: &mut Run) -> Result<()> {
        let Some(process) = self.processes.get(&pid) else {
            return Ok(());
        };
        if let State::Stopping(tid) = process.state {
            run.program.forget_stop(tid)?;
        }
        if process.is_gone() {
            self.processes.remove(&pid);
            return Ok(());
        }
        if process.tries < TRIES {
            return self.stop(pid, run);
        }
        self.give_up(pid, why);
        Ok(())
    }
}

/// Sets the probes in the code at `base` in a process, and lets them reach it. Returns why that failed.
fn probe(
    pid: u32,
    base: u64,
    probes: &[Probe],
    run: &mut Run,
) -> Result<std::result::Result<(), String>> {
    let opened = match open::mapped(pid, base, base + CODE_BYTES as u64, None) {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let file = opened.identity.file;
    let owner = Owner::of(pid);
    // The kernel may take long if it is busy with other probes.
    let added = run.during(|program, all| {
        all.add_fast_code(program, &opened, probes, &owner)
            .map(|added| added.map(|()| all.reach_alone(file, pid)))
    })??;
    Ok(match added {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(refusal) => Err(refusal.to_string()),
    })
}
