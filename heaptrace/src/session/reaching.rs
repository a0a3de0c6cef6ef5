//! Reaches processes with probes, one by one, when they have run for long enough.
//!
//! Part of the session, in a run for all processes that does not trace them from birth. Short commands cost nothing but a
//! line in the list of running processes, and a forked child waits for nothing. Must not know what makes a process worth
//! reaching, nor how probes work.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::time::{Interval, MissedTickBehavior};

use super::arrivals::{Arrivals, Arrived, Seen};
use super::late_files::LateFiles;
use super::run::Run;
use super::scanner::Mapped;
use crate::join::{Loss, ReachedProcess};
use crate::kernel::helpers::Helpers;
use crate::open::{Expected, FileId, Opened};
use crate::probes::allocators::Numbers;
use crate::proc::maps::{self, Mapping};
use crate::proc::memory;
use crate::proc::owner::Owner;
use crate::proc::processes;
use crate::sys;

/// Time between two looks at the running processes.
const TICK: Duration = Duration::from_millis(250);

/// The longest time that a process waits until all files were searched for allocators.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// An executable file that a process has mapped.
struct Code {
    mapping: Mapping,
    opened: Opened,
}

impl Code {
    /// The file as the scanner takes it, and as the kernel names it.
    fn found_in(self, pid: u32) -> (Mapped, Expected) {
        let Self { mapping, opened } = self;
        let expected = expected(&mapping);
        let mapped = Mapped {
            pid,
            file: opened,
            path: mapping.path,
        };
        (mapped, expected)
    }
}

/// A process that has arrived, and its code.
struct Visited {
    arrived: Arrived,
    resident: u64,
    code: Vec<Code>,
}

/// A process that has arrived, and is reached once all files were searched for allocators.
struct Waiting {
    arrived: Arrived,
    since: Instant,
}

/// Reaches processes when they have run for long enough.
pub(super) struct Reaching {
    arrivals: Arrivals,
    ticks: Interval,
    waiting: Vec<Waiting>,
    /// The agent's helpers, which are never reached.
    helpers: Helpers,
}

impl Reaching {
    pub(super) fn new(helpers: Helpers) -> Self {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            arrivals: Arrivals::default(),
            ticks,
            waiting: Vec::new(),
            helpers,
        }
    }

    /// Waits until the next tick.
    pub(super) async fn due(&mut self) {
        self.ticks.tick().await;
    }

    /// Reaches the processes that run when the run begins, before anything is recorded. Files that were searched for
    /// allocators already are not searched again.
    pub(super) fn begin(
        &mut self,
        searched: &HashSet<Numbers>,
        late_files: &mut LateFiles,
        run: &mut Run,
    ) -> Result<()> {
        let visited = self.visit(run)?;
        for code in visited.iter().flat_map(|it| &it.code) {
            if searched.contains(&(code.mapping.device, code.mapping.inode)) {
                late_files.add_seen(&code.opened, expected(&code.mapping));
            }
        }
        self.reach(visited, true, 0, late_files, run)
    }

    /// Reaches the processes that have run for long enough by now; returns whether there were any.
    pub(super) fn tick(
        &mut self,
        at_ns: u64,
        late_files: &mut LateFiles,
        run: &mut Run,
    ) -> Result<bool> {
        let mut reached = self.visit(run)?;
        search_ahead(&mut reached, late_files);
        if late_files.waiting() > 0 {
            let since = Instant::now();
            let arrived = reached.drain(..).map(|it| it.arrived);
            let waiting = arrived.map(|arrived| Waiting { arrived, since });
            self.waiting.extend(waiting);
        }
        reached.extend(self.visit_waiting(late_files, run)?);
        let has_reached = !reached.is_empty();
        self.reach(reached, false, at_ns, late_files, run)?;
        Ok(has_reached)
    }

    /// The waiting processes, if all files have been searched by now. To define the probes of a file takes some tenths of a second, and
    /// what probes cost a process is not looked at meanwhile.
    fn visit_waiting(&mut self, late_files: &LateFiles, run: &mut Run) -> Result<Vec<Visited>> {
        let is_searched = late_files.waiting() == 0;
        let is_ready = |it: &mut Waiting| is_searched || it.since.elapsed() >= MAX_WAIT;
        let ready: Vec<Waiting> = self.waiting.extract_if(.., is_ready).collect();
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        // Their files may be others by now.
        let visit = |Waiting { arrived, since }: &Waiting| {
            visit_one(&Arrived {
                age: arrived.age + since.elapsed(),
                ..*arrived
            })
        };
        run.during(|_, _| ready.iter().filter_map(visit).collect())
    }

    /// The processes that have arrived since the last call. Those that are gone lose their probes.
    fn visit(&mut self, run: &mut Run) -> Result<Vec<Visited>> {
        let running = processes::processes().context("can't list the processes of /proc")?;
        let running: BTreeSet<u32> = running.into_iter().collect();
        let now = Duration::from_nanos(sys::boot_time());
        let helpers = self.helpers;
        let change = self.arrivals.look(now, &running, |pid| see(pid, helpers));
        for pid in change.gone {
            self.waiting.retain(|it| it.arrived.pid != pid);
            leave(pid, run);
        }
        if change.arrived.is_empty() {
            return Ok(Vec::new());
        }
        // Each may have many files, and events are joined meanwhile.
        run.during(|_, _| change.arrived.iter().filter_map(visit_one).collect())
    }

    fn reach(
        &mut self,
        visited: Vec<Visited>,
        at_once: bool,
        at_ns: u64,
        late_files: &mut LateFiles,
        run: &mut Run,
    ) -> Result<()> {
        if visited.is_empty() {
            return Ok(());
        }
        let mapped: Vec<(u32, HashSet<FileId>)> = visited
            .iter()
            .map(|it| {
                let files = it.code.iter().map(|code| code.opened.identity.file);
                (it.arrived.pid, files.collect())
            })
            .collect();
        let failed = run.during(|program, probes| -> Result<BTreeSet<u32>> {
            for (pid, _) in &mapped {
                program.set_reached(*pid)?;
            }
            Ok(probes.reach_each(&mapped, at_once)?)
        })??;
        for pid in failed {
            tracing::warn!("no probes could be opened for process {pid}");
            run.joiner.lost_one(Loss::ProcessesUnreached);
        }
        for it in visited {
            let Arrived { pid, age } = it.arrived;
            run.joiner.reach(ReachedProcess {
                pid,
                time: sys::monotonic_now(),
                elapsed_ns: at_ns,
                age_ns: age.as_nanos() as u64,
                resident: it.resident,
            });
            let owner = Owner::of(pid);
            for code in it.code {
                let (mapped, expected) = code.found_in(pid);
                late_files.search(owner.clone(), mapped, expected, run);
            }
        }
        Ok(())
    }

    /// Follows processes whose first thread has ended, or that have begun another program: their probes may have gone
    /// with a thread.
    pub(super) fn turn(&mut self, run: &mut Run) -> Result<()> {
        let mut still_turning = Vec::new();
        for pid in run.drain.take_turned() {
            if has_ended(pid) {
                self.arrivals.forget(pid);
                leave(pid, run);
            } else if !processes::has_memory(maps::living_thread(pid)) {
                still_turning.push(pid);
            } else if run.probes.has_lost_thread(pid) {
                run.probes.leave(pid);
                let mapped = [(pid, run.probes.files_of(pid))];
                run.during(|_, probes| probes.reach_each(&mapped, false))??;
            }
        }
        run.drain.turn_again(still_turning);
        Ok(())
    }
}

/// Closes the probes of a process that has ended.
fn leave(pid: u32, run: &mut Run) {
    run.probes.leave(pid);
    run.joiner.leave(pid, sys::monotonic_now());
}

/// Whether a process has ended. While a thread other than the first one begins a program, there may be no thread that has
/// memory, but there are two.
fn has_ended(pid: u32) -> bool {
    let threads = processes::threads(pid).unwrap_or_default();
    threads.len() <= 1 && !processes::has_memory(pid)
}

fn see(pid: u32, helpers: Helpers) -> Option<Seen> {
    // Neither threads of the kernel nor ended processes have memory. A process may go on without its first thread.
    let has_memory = processes::has_memory(pid) || processes::has_memory(maps::living_thread(pid));
    let is_own = helpers.contains(pid) || processes::parent(pid)? == std::process::id();
    if !has_memory || is_own {
        return Some(Seen::Ignored);
    }
    let ticks = processes::start_time(pid)?;
    Some(Seen::Started(Duration::from_nanos(sys::ticks_to_ns(ticks))))
}

fn visit_one(arrived: &Arrived) -> Option<Visited> {
    let pid = arrived.pid;
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).ok()?;
    let mut seen = HashSet::new();
    let code = maps::parse(&text)
        .filter(|mapping| mapping.executable && mapping.inode != 0)
        .filter(|mapping| seen.insert((mapping.device, mapping.inode)))
        .filter_map(|mapping| {
            let opened = maps::open_mapped(thread, &mapping).ok()?;
            Some(Code { mapping, opened })
        })
        .collect();
    Some(Visited {
        arrived: *arrived,
        resident: memory::resident(pid).unwrap_or_default().now,
        code,
    })
}

/// Sends the files of processes that were not searched for allocators yet to the scanner.
fn search_ahead(visited: &mut [Visited], late_files: &mut LateFiles) {
    for it in visited {
        let is_new = |code: &mut Code| !late_files.has_seen(&code.opened);
        let new: Vec<Code> = it.code.extract_if(.., is_new).collect();
        if new.is_empty() {
            continue;
        }
        let owner = Owner::of(it.arrived.pid);
        for code in new {
            let (mapped, expected) = code.found_in(it.arrived.pid);
            late_files.search_new(owner.clone(), mapped, expected);
        }
    }
}

fn expected(mapping: &Mapping) -> Expected {
    Expected {
        device: mapping.device,
        inode: mapping.inode,
    }
}
