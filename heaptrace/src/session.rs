//! A run, from attaching to its last update: the only place that connects the stages.
//!
//! The session. Must not know the command line, nor what an [`Observer`] does with the updates.

mod arrivals;
mod attach;
mod child_events;
mod drain;
mod due;
mod duty_cycle;
mod earlier_runs;
mod facts;
mod fast_path;
mod governor;
mod held;
mod hit_cost;
mod inspect;
mod java;
mod kernel_state;
mod late_files;
mod mapped_files;
mod marks;
mod memory;
mod moments;
mod observer;
mod priority;
mod rate;
mod reachability;
mod reaching;
mod rights;
mod room;
mod run;
mod sampling_rates;
mod scanner;
mod seen_files;
mod seldom;
mod stop;
mod targets;
mod v8;
mod waiting;
mod watched;

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::config::{KeptBlocks, RunConfig};
use crate::doctor::{self, capabilities};
use crate::join::{Loss, MarkCause, Note};
use crate::kernel::helpers::Helpers;
use crate::kernel::process_filter::ProcessFilter;
use crate::kernel::program::Program;
use crate::kernel::tracefs::Tracefs;
use crate::probes::attach::Probes;
use crate::probes::fast::installer::Installer;
use crate::probes::guardian::Guardian;
use crate::probes::launch::Held;
use crate::probes::plan::usual_programs;
use crate::probes::target_events::Reach;
use crate::profile::RunInfo;
use crate::reader::{Budget, Limits, Reader};
use crate::sys;
use child_events::{ChildEvents, Listener};
use drain::Drain;
use due::{duty_cycles_due, fast_path_due, has_input, rates_due, reaching_due, update_due};
use duty_cycle::DutyCycles;
use facts::{new_joiner, run_info};
use fast_path::FastPath;
use hit_cost::RunTime;
use late_files::LateFiles;
use marks::MarkRequests;
use moments::Moments;
use reaching::Reaching;
use run::Run;
use sampling_rates::SamplingRates;
use stop::{Stop, Stopper};

pub use observer::{Finished, Observer, Progress, Wish};

/// How often the streams are read if neither wakes us: the last calls before a pause wait for this.
const TICK: Duration = Duration::from_millis(100);

/// Traces as configured, until the targets end, the time is over or a signal comes.
pub fn run(config: &RunConfig, observer: &mut dyn Observer) -> Result<Finished> {
    doctor::require()?;
    capabilities::require()?;
    targets::check(&config.target)?;
    room::check(config)?;
    let filter = ProcessFilter::new(&config.selection)?;
    let tracefs = Tracefs::open().context("can't open the kernel's tracing file system")?;
    // Forks, so it must come before anything that starts a thread.
    let counts = config.follows_cost();
    let guardian = Guardian::start(&tracefs, counts, observer.terminal())
        .context("can't start the guardian process")?;
    let installer = config.fast.then(Installer::start).transpose();
    let installer = installer.context("can't start the process that writes into others")?;
    let held = targets::launch(config)?;
    // The command keeps the limits that its user gave it; from here on all limits are for the run.
    sys::raise_open_files();
    let run_time = RunTime::new(config, &guardian)?;
    rights::give_up().context("can't give up rights that a run does not need")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start the event loop")?;
    runtime
        .block_on(async {
            let started = Started {
                guardian: &guardian,
                installer,
                held,
                run_time,
            };
            trace(config, observer, &filter, tracefs, started).await
        })
        .map_err(room::advise)
}

/// What was started before this process gave up its rights.
struct Started<'a> {
    guardian: &'a Guardian,
    installer: Option<Installer>,
    held: Option<Held>,
    run_time: RunTime,
}

async fn trace(
    config: &RunConfig,
    observer: &mut dyn Observer,
    filter: &ProcessFilter,
    tracefs: Tracefs,
    started: Started<'_>,
) -> Result<Finished> {
    let mut session = Session::set_up(config, observer, filter, tracefs, started)?;
    let outcome = session.read_until_stop(observer).await?;
    session.end(outcome, observer)
}

/// A run under way. The fields are dropped in this order: the probes, which are part of `run`, go before the
/// reader.
struct Session<'a> {
    config: &'a RunConfig,
    info: RunInfo,
    begin: Instant,
    /// The launched command.
    child: Option<Child>,
    child_events: Option<ChildEvents>,
    late_files: LateFiles,
    reaching: Option<Reaching>,
    duty_cycles: Option<DutyCycles>,
    fast_path: Option<FastPath>,
    rates: Option<SamplingRates>,
    run: Run,
    reader: Reader,
    /// SIGUSR1 requests an update.
    update_requests: Signal,
    mark_requests: MarkRequests,
    moments: Moments,
    stopper: Stopper,
    /// Input for the observer.
    input: Option<AsyncFd<OwnedFd>>,
}

/// Why a run ends, and the error of the observer if that is the reason.
struct Outcome {
    stop: Stop,
    failure: Option<Error>,
}

impl Outcome {
    /// The end of a run whose observer failed.
    fn failed(error: Error) -> Self {
        Self {
            stop: Stop::Failed,
            failure: Some(error),
        }
    }
}

impl<'a> Session<'a> {
    /// Loads the kernel program, probes the targets, and begins to record.
    fn set_up(
        config: &'a RunConfig,
        observer: &mut dyn Observer,
        filter: &ProcessFilter,
        tracefs: Tracefs,
        started: Started<'_>,
    ) -> Result<Self> {
        let Started {
            guardian,
            installer,
            held,
            run_time,
        } = started;
        // Before anything is attached: Ctrl-C must never leave a target half probed.
        let mut stopper = Stopper::new(config.duration)?;
        let update_requests =
            signal(SignalKind::user_defined1()).context("can't listen for signals")?;
        let mut mark_requests = MarkRequests::new()?;
        let helpers = Helpers {
            guardian: guardian.pid,
            installer: installer.as_ref().map(|it| it.pid),
        };
        let mut program = Program::load(config, filter, helpers)?;
        // Parsing the object took much more memory than is kept of it. With what follows it would be the peak.
        sys::trim_memory();
        // The peak so far, before this process maps the kernel's maps, and counts them as resident.
        let usage = kernel_state::own_usage();
        if config.verbose {
            drain::log(&mut program)?;
        }
        let budget = Budget::default();
        let mut reader = Reader::new(&budget, Limits::default());
        let drain = Drain::new(&mut program, config, &budget)?;
        let reach = targets::reach(config);
        let mut probes = Probes::new(tracefs, reach, config.probes, guardian)
            .context("can't reach the guardian process")?;
        earlier_runs::look(config, installer.as_ref());
        let mut fast_path = installer.map(|it| FastPath::new(it, config)).transpose()?;
        // The kernel takes longer to verify the programs than everything else takes together.
        let usual = usual_programs(config);
        let (duty_cycles, found) = program.load_during(&usual, || -> Result<_> {
            let held = held.as_ref();
            let duty_cycles = DutyCycles::new(config, &mut probes, run_time)?;
            observer.progress(Progress::ReadingTables);
            let files = targets::load_tables(config, held, &mut reader, drain.tables());
            if let Some(fast_path) = &mut fast_path {
                fast_path.read_ahead(targets::modules(config, &files), &mut reader);
            }
            let found = attach::find(config, held, files, &mut reader, observer)?;
            Ok((duty_cycles, found))
        })?;
        let listener = Listener::new(&probes)?;
        let mut run = Run::new(drain, program, probes, new_joiner(config), config);
        run.joiner.set_agent_usage(usage);
        let searched = attach::attach(
            config,
            held.as_ref(),
            found,
            &mut reader,
            &mut run,
            observer,
        )?;
        let first = targets::pids(&config.target, held.as_ref());
        let mut late_files = LateFiles::new(config, first.clone(), &budget)?;
        let mut reaching = (reach == Reach::OneByOne).then(|| Reaching::new(helpers));
        if let Some(reaching) = &mut reaching {
            reaching.begin(&searched, &mut late_files, &mut run)?;
        }
        let child_events = listener
            .map(|it| it.follow(&run.probes, &first))
            .transpose()?
            .flatten();
        tracing::info!("{} descriptors of probes are open", run.probes.count());

        let info = run_info(config)?;
        // Loading and searching used much more memory than recording needs.
        sys::trim_memory();
        run.drain.raise_priority();
        let begin = Instant::now();
        run.joiner.set_began(sys::monotonic_now());
        if config.blocks != KeptBlocks::None {
            let has_all = config.blocks != KeptBlocks::Lasting;
            run.joiner.log_blocks(sys::monotonic_now(), has_all);
        }
        let rates = SamplingRates::new(config, begin, &mut run)?;
        run.program.set_gate(true)?;
        mark_requests.begin(config);
        observer.started(&info)?;
        let child: Option<Child> = held.map(Held::release).transpose()?;
        stopper.watch(&config.target, child.as_ref())?;
        let input = observer.input()?.map(sys::when_readable).transpose()?;
        Ok(Self {
            config,
            info,
            begin,
            child,
            child_events,
            late_files,
            reaching,
            duty_cycles,
            fast_path,
            rates,
            run,
            reader,
            update_requests,
            mark_requests,
            moments: Moments::default(),
            stopper,
            input,
        })
    }

    /// Reads the streams, and updates the observer, until the run must end.
    async fn read_until_stop(&mut self, observer: &mut dyn Observer) -> Result<Outcome> {
        let first = tokio::time::Instant::now() + self.config.interval;
        let mut updates = tokio::time::interval_at(first, self.config.interval);
        updates.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                stop = self.stopper.wait() => return Ok(Outcome { stop, failure: None }),
                () = update_due(&mut updates, &mut self.update_requests) => {
                    if let Some(outcome) = self.update(observer)? {
                        return Ok(outcome);
                    }
                }
                cause = self.mark_requests.due() => {
                    if let Some(outcome) = self.mark(cause, observer)? {
                        return Ok(outcome);
                    }
                }
                () = has_input(&self.input) => {
                    if let Some(outcome) = self.look(observer)? {
                        return Ok(outcome);
                    }
                }
                () = reaching_due(&mut self.reaching) => {
                    let at_ns = self.elapsed_ns();
                    if let Some(reaching) = &mut self.reaching
                        && reaching.tick(at_ns, &mut self.late_files, &mut self.run)?
                        && let Some(duty_cycles) = &mut self.duty_cycles
                    {
                        duty_cycles.hurry();
                    }
                }
                () = rates_due(&mut self.rates) => {
                    let at_ns = self.elapsed_ns();
                    if let Some(rates) = &mut self.rates {
                        rates.tick(at_ns, &mut self.run)?;
                    }
                }
                () = duty_cycles_due(&mut self.duty_cycles) => {
                    let at_ns = self.elapsed_ns();
                    if let Some(duty_cycles) = &mut self.duty_cycles {
                        let mut hits = self.run.program.take_hits()?;
                        for (pid, count) in self.fast_path.iter_mut().flat_map(FastPath::take_hits) {
                            *hits.entry(pid).or_default() += count;
                        }
                        duty_cycles.tick(at_ns, &hits, &mut self.run)?;
                    }
                }
                due = fast_path_due(&mut self.fast_path) => {
                    if let Some(fast_path) = &mut self.fast_path {
                        fast_path.act(due, &mut self.run, &mut self.reader)?;
                    }
                }
                scanned = self.late_files.scanned() => {
                    self.late_files.probe(scanned, &mut self.run)?;
                }
                _ = ticks.tick() => {
                    self.read_streams()?;
                    if self.is_moment() && let Some(outcome) = self.update(observer)? {
                        return Ok(outcome);
                    }
                    if let Some(outcome) = self.look(observer)? {
                        return Ok(outcome);
                    }
                }
                ready = self.run.drain.ready() => {
                    ready?;
                    self.read_streams()?;
                    if self.run.joiner.needs_update()
                        && let Some(outcome) = self.update(observer)?
                    {
                        return Ok(outcome);
                    }
                    // Lets the other branches run, also if events never pause.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn read_streams(&mut self) -> Result<()> {
        self.run.pass();
        self.late_files.look(&mut self.run);
        if let Some(reaching) = &mut self.reaching {
            reaching.turn(&mut self.run)?;
        }
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.take_answers(&mut self.run)?;
        }
        self.run.limit_ending()
    }

    /// Sends an update to the observer; returns an outcome if the run must end.
    fn update(&mut self, observer: &mut dyn Observer) -> Result<Option<Outcome>> {
        let with_blocks = observer.wants_live_blocks(self.elapsed_ns());
        let reader = &mut self.reader;
        let update = self.run.update(reader, self.begin, with_blocks)?;
        self.run.drain.restore_priority();
        let observed = observer.update(update, self.run.joiner.files());
        self.run.drain.raise_priority();
        Ok(observed.err().map(Outcome::failed))
    }

    /// Makes a mark, and sends an update to the observer at once, so that a recording has a snapshot of this moment.
    fn mark(&mut self, cause: MarkCause, observer: &mut dyn Observer) -> Result<Option<Outcome>> {
        // What was allocated before the mark must be joined before it: it counts as live at the mark.
        self.run.pass();
        let at_ns = self.elapsed_ns();
        self.run.joiner.mark(cause, at_ns, sys::monotonic_now());
        self.run.search_memory(self.begin)?;
        self.update(observer)
    }

    /// Whether something has happened of which the observer must have a snapshot. Makes a mark if live memory exceeds its limit.
    fn is_moment(&mut self) -> bool {
        // As in `mark`.
        if self.config.live_limit.is_some() {
            self.run.pass();
        }
        let at_ns = self.elapsed_ns();
        let joiner = &mut self.run.joiner;
        let had_end = joiner.take_sudden_end();
        let mark_exceeded = || joiner.mark_exceeded(at_ns, sys::monotonic_now());
        self.moments.is_due(had_end, mark_exceeded, Instant::now())
    }

    /// Lets the observer look at its input; returns an outcome if the run must end.
    fn look(&mut self, observer: &mut dyn Observer) -> Result<Option<Outcome>> {
        self.run.drain.restore_priority();
        let wish = observer.look(self.run.joiner.files());
        self.run.drain.raise_priority();
        match wish {
            Ok(Wish::Continue) => Ok(None),
            Ok(Wish::Mark) => self.mark(MarkCause::Key, observer),
            Ok(Wish::End) => Ok(Some(Outcome {
                stop: Stop::Signal,
                failure: None,
            })),
            Err(error) => Ok(Some(Outcome::failed(error))),
        }
    }

    /// Ends the run in order: closes the gate, removes the probes, joins what is left, and sends the last
    /// update.
    fn end(mut self, outcome: Outcome, observer: &mut dyn Observer) -> Result<Finished> {
        self.run.search_memory(self.begin)?;
        // From here on nothing more is recorded, whatever is still attached.
        self.run.program.set_gate(false)?;
        if self.config.inspect_live {
            // What was freed before must not be taken for live.
            self.run.flush();
            self.run.pass();
        }
        self.run.read_memory(self.begin);
        observer.progress(Progress::Detaching);
        let mut notes = Vec::new();
        if let Some(tied) = self.child_events.take().map(ChildEvents::end) {
            self.run.probes.adopt(tied.open);
            self.run
                .joiner
                .set_noted(Note::ChildrenProbedLate, tied.late);
            self.run.joiner.set_lost(Loss::Births, tied.missed);
        }
        let duration_ns = self.elapsed_ns();
        let moved = self
            .fast_path
            .take()
            .map(|it| it.last(&self.run))
            .transpose()?;
        let (mut ended, closing) = self.run.close_probes();
        let Outcome { stop, failure } = outcome;
        let exit = stop::reap(self.child.as_mut(), stop, &mut notes);
        let update = ended.last_update(&mut self.reader, duration_ns)?;
        notes.extend(closing.wait());
        // With the probes gone no call traps while the slots are put back.
        if let Some(moved) = moved {
            FastPath::end(moved);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        observer.update(update, ended.files())?;
        stop::restore_interrupt();
        Ok(Finished {
            info: self.info,
            duration_ns,
            exit,
            interrupted: stop == Stop::Signal,
            files: ended.into_files(),
            notes,
        })
    }

    fn elapsed_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}
