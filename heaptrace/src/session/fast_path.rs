//! Moves processes with many probe hits to the fast path, and back at the end of the run.
//!
//! Part of the session. A process is first traced by probes alone. If it has many probe hits, the installer maps the
//! fast path's code into it and points its linkage slots there. From then on only sampled calls, and the frees of
//! recorded blocks, trap. Must not know how the code decides, nor how it is written into a process.

mod answers;
mod end;
mod process;
mod refusals;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use heaptrace_common::hints::{MAX_FAST, way};
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior};

use super::run::Run;
use crate::config::RunConfig;
use crate::join::Note;
use crate::kernel::fast::Hints;
use crate::open::FileId;
use crate::probes::fast::code::{self, Way};
use crate::probes::fast::earlier;
use crate::probes::fast::eligible::{self, Refusal};
use crate::probes::fast::installer::{Installer, Request};
use crate::probes::fast::plan::{self, Linked, Plan};
use crate::probes::fast::slots::{self, Slots};
use crate::proc::processes::{self, Image, image, start_time};
use crate::reader::Reader;
use crate::sys;
use crate::text;
use process::{Process, SOON, State, requests, send_all, wait_after};
use refusals::Refusals;

/// Time between two looks at the probe hits.
const TICK: Duration = Duration::from_millis(20);

/// Probe hits between two ticks from which on a process is worth moving: some 2 % of a processor.
const WORTH_IT: u64 = 500;

/// How long a process must have run before it is moved, in a run that records every call: it gets probes of its own then.
const AGE: Duration = Duration::from_millis(200);

/// Most processes that are moved in such a run. Their probes stay until its end.
const MOST_EXACT: u32 = 64;

/// How long a thread may take to its next probe hit.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often a process is tried.
const TRIES: u32 = 3;

/// Most processes that are named on standard error because they can't be moved.
const MOST_NAMED: u64 = 10;

/// Most files whose slots are remembered.
const MOST_FILES: usize = 4096;

/// A signal that programs ignore unless they handle it, and that nothing but out-of-band data sends.
const SIGNAL: i32 = libc::SIGURG;

/// What the fast path has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A look at the probe hits.
    Tick,
    /// Answers of the installer have arrived.
    Answers,
}

/// The processes on the fast path, and those on the way to it.
pub(super) struct FastPath {
    installer: AsyncFd<Installer>,
    ticks: Interval,
    /// Probe hits that were not passed on yet.
    hits: HashMap<u32, u64>,
    processes: BTreeMap<u32, Process>,
    refusals: Refusals<Image>,
    way: Way,
    /// When this was made.
    begin: Instant,
    /// The slots of each file.
    slots: HashMap<FileId, Option<Arc<Slots>>>,
    /// How many processes were moved.
    moved: u64,
    /// Whether the installer is gone. What was moved stays on the fast path, and nothing else is moved.
    is_over: bool,
}

impl FastPath {
    pub(super) fn new(installer: Installer, config: &RunConfig) -> io::Result<Self> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            installer: sys::when_readable(installer)?,
            ticks,
            hits: HashMap::new(),
            processes: BTreeMap::new(),
            refusals: Refusals::new(),
            way: match config.way() {
                way::EXACT => Way::Exact,
                _ => Way::Sampled,
            },
            begin: Instant::now(),
            slots: HashMap::new(),
            moved: 0,
            is_over: false,
        })
    }

    /// Reads the slots of files that a target will need, or has mapped, before it is traced.
    pub(super) fn read_ahead(
        &mut self,
        files: impl IntoIterator<Item = (FileId, String, File)>,
        reader: &mut Reader,
    ) {
        for (id, path, file) in files {
            self.slots
                .entry(id)
                .or_insert_with(|| read_slots(reader, &path, &file));
        }
    }

    /// Waits until the next tick, or until the installer has answered, which a target may be waiting for.
    pub(super) async fn due(&mut self) -> Due {
        if self.is_over {
            self.ticks.tick().await;
            return Due::Tick;
        }
        tokio::select! {
            _ = self.ticks.tick() => Due::Tick,
            ready = self.installer.readable() => {
                // Without it, each tick takes the answers.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Due::Answers
            }
        }
    }

    /// The probe hits since the last call of this function.
    pub(super) fn take_hits(&mut self) -> HashMap<u32, u64> {
        std::mem::take(&mut self.hits)
    }

    /// Does what is due.
    pub(super) fn act(&mut self, due: Due, run: &mut Run, reader: &mut Reader) -> Result<()> {
        match due {
            Due::Tick => self.tick(run, reader),
            Due::Answers => self.take_answers(run),
        }
    }

    /// Looks at the probe hits since the last tick, and moves processes.
    fn tick(&mut self, run: &mut Run, reader: &mut Reader) -> Result<()> {
        self.take_answers(run)?;
        self.forget_gone(run)?;
        for (pid, count) in run.program.take_hits()? {
            *self.hits.entry(pid).or_default() += count;
            if count >= WORTH_IT && !self.is_over {
                self.consider(pid, run, reader)?;
            }
        }
        self.look_after(run)
    }

    /// Keeps the moved processes up to date, and gives those up that are not moved in time.
    fn look_after(&mut self, run: &mut Run) -> Result<()> {
        for (pid, process) in &mut self.processes {
            match process.state {
                State::Moved { base } => {
                    process.follow_mean(*pid, base, run, self.installer.get_ref())?;
                    process.forget_freed(run)?;
                }
                State::Filling { .. } => {}
                // The signal must not come when the installer has given up.
                State::Stopping(tid) if process.looked.elapsed() > PATIENCE / 2 => {
                    run.program.forget_stop(tid)?;
                }
                State::Stopping(_) => {}
            }
        }
        run.joiner.set_noted(Note::ProcessesFast, self.moved);
        run.joiner
            .set_noted(Note::ProcessesNotFast, self.refusals.reported());
        Ok(())
    }

    /// Begins to move a process, or looks for new slots of one that was moved.
    fn consider(&mut self, pid: u32, run: &mut Run, reader: &mut Reader) -> Result<()> {
        let process = self.processes.get(&pid);
        match process.map(|it| (it.state, it.is_due())) {
            Some((State::Moved { base }, true)) => self.write_new_slots(pid, base, run, reader),
            Some(_) => Ok(()),
            None => self.begin(pid, run, reader),
        }
    }

    fn begin(&mut self, pid: u32, run: &mut Run, reader: &mut Reader) -> Result<()> {
        let Some(image) = image(pid) else {
            return Ok(());
        };
        if !self.is_old_enough(image.start_time)
            || !self.refusals.allow(&image, self.begin.elapsed())
        {
            return Ok(());
        }
        let hinted = run.program.hinted()?;
        // A forked child of a moved process is there already.
        if hinted.contains_key(&pid) {
            return Ok(());
        }
        match eligible::check(pid) {
            Ok(()) => {}
            Err(Refusal::Own | Refusal::NoMemory) => return Ok(()),
            Err(refusal) => {
                self.refuse(image, refusal.to_string());
                return Ok(());
            }
        }
        let plan = match self.plan(pid, run, reader)? {
            Ok(plan) => plan,
            Err(why) => {
                self.refuse(image, why.to_string());
                return Ok(());
            }
        };
        let used: BTreeSet<u32> = hinted
            .into_values()
            .chain(self.processes.values().map(|it| it.index))
            .collect();
        let most = match self.way {
            Way::Sampled => MAX_FAST,
            Way::Exact => MOST_EXACT.saturating_sub(self.moved as u32),
        };
        let Some(index) = (0..most).find(|it| !used.contains(it)) else {
            self.refuse(image, "too many processes are on it".to_owned());
            return Ok(());
        };
        let process = Process {
            image,
            state: State::Stopping(0),
            plan,
            index,
            hints: Hints::new()?,
            earlier: VecDeque::new(),
            mean: run.program.mean_of(pid)?,
            redirects: Vec::new(),
            tries: 0,
            looked: Instant::now(),
            waits: SOON,
        };
        self.processes.insert(pid, process);
        self.stop(pid, run)
    }

    /// Whether a process has run for so long that it is worth probes of its own, if it would get some.
    fn is_old_enough(&self, start_time: u64) -> bool {
        let age = sys::boot_time().saturating_sub(sys::ticks_to_ns(start_time));
        self.way == Way::Sampled || Duration::from_nanos(age) >= AGE
    }

    /// Plans for a process. The files are read by the reader, and events are joined meanwhile.
    fn plan(
        &mut self,
        pid: u32,
        run: &mut Run,
        reader: &mut Reader,
    ) -> Result<Result<Plan, plan::Unplanned>> {
        let known = &mut self.slots;
        if known.len() > MOST_FILES {
            known.clear();
        }
        let found = run.during(|_, _| {
            let modules = plan::modules(pid).into_iter();
            modules
                .filter_map(|module| {
                    let slots = known
                        .entry(module.id)
                        .or_insert_with(|| read_slots(reader, &module.path, &module.file));
                    let slots = Arc::clone(slots.as_ref()?);
                    Some((module, slots))
                })
                .collect::<Vec<_>>()
        })?;
        Ok(plan::plan(pid, self.way, &found, |file| {
            run.functions_of(file)
        }))
    }

    /// Lets the installer stop the thread that had the last hit.
    fn stop(&mut self, pid: u32, run: &Run) -> Result<()> {
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        let tid = run.program.last_hit(pid)?.unwrap_or(pid);
        process.state = State::Stopping(tid);
        process.tries += 1;
        process.looked = Instant::now();
        let request = Request::Map {
            pid,
            start_time: process.image.start_time,
            tid,
            signal: SIGNAL,
            places: process.plan.places.clone(),
            old: process.plan.old,
            sizes: earlier::SIZES,
            links: process
                .plan
                .stubs
                .pages
                .iter()
                .map(|(_, place)| place.clone())
                .collect(),
            patience_ms: PATIENCE.as_millis() as u32,
        };
        if let Err(error) = self
            .installer
            .get_ref()
            .send(&request, Some(process.hints.as_fd()))
        {
            tracing::debug!("process {pid} is not moved now: {error}");
            self.processes.remove(&pid);
        }
        Ok(())
    }

    fn refuse(&mut self, image: Image, why: String) {
        let pid = image.pid;
        let name = name(pid);
        tracing::debug!("{name}[{pid}] is not moved to the fast path: {why}");
        let now = self.begin.elapsed();
        if self.refusals.add(image, now) && self.refusals.reported() <= MOST_NAMED {
            tracing::warn!("{name}[{pid}] can't be moved to the fast path (--fast): {why}");
        }
    }

    /// Writes the slots of files that were mapped since, and those that were not bound before.
    fn write_new_slots(
        &mut self,
        pid: u32,
        base: u64,
        run: &mut Run,
        reader: &mut Reader,
    ) -> Result<()> {
        let plan = self.plan(pid, run, reader)?;
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        process.looked = Instant::now();
        let plan = match plan {
            Ok(plan) => plan,
            Err(why) => {
                tracing::debug!("no new slots of process {pid}: {why}");
                return Ok(());
            }
        };
        // The written ones hold other values now, so they are not in the new plan.
        let has_entry = |slot: &Linked| {
            let mut functions = process.plan.functions.iter();
            functions.any(|it| it.number == slot.function && it.address == slot.reached)
        };
        let new: Vec<Linked> = plan.slots.into_iter().filter(has_entry).collect();
        process.waits = wait_after(process.waits, !new.is_empty());
        send_all(
            self.installer.get_ref(),
            &requests(pid, base, &new, self.way),
        );
        Ok(())
    }

    /// Forgets processes that have ended, and moved ones that run another program by now.
    fn forget_gone(&mut self, run: &Run) -> Result<()> {
        let mut gone = Vec::new();
        for (pid, it) in &self.processes {
            let is_gone = match it.state {
                State::Moved { .. } => !run.program.has_hints(*pid)?,
                // After an exec the installer's answer is still to come, and must not meet the next request.
                State::Stopping(_) | State::Filling { .. } => {
                    start_time(*pid) != Some(it.image.start_time)
                }
            };
            if is_gone {
                gone.push(*pid);
            }
        }
        for pid in gone {
            self.processes.remove(&pid);
        }
        Ok(())
    }
}

fn read_slots(reader: &mut Reader, path: &str, file: &File) -> Option<Arc<Slots>> {
    let slots = slots::slots_of(reader, path, file, &code::FUNCTIONS);
    slots.ok().map(Arc::new)
}

/// The name of a process, for messages.
fn name(pid: u32) -> String {
    let name = processes::name(pid).unwrap_or_default();
    text::escape(&name).into_owned()
}
