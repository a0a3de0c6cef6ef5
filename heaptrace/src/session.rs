//! A run, from attaching to its last update: the only place that wires the stages.
//!
//! Knows nothing of the command line, nor of what an [`Observer`] does with the updates.

mod child_events;
mod drain;
mod duty_cycle;
mod governor;
mod late_files;
mod rate;
mod rights;
mod room;
mod scanner;
mod stop;
mod targets;
mod waiting;

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use heaptrace_common::sampling;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior};

use crate::config::RunConfig;
use crate::doctor;
use crate::doctor::capabilities;
use crate::join::{EndedLimits, Joiner, Loss, Note, OpenFiles, RateChange, Update};
use crate::kernel::process_filter::ProcessFilter;
use crate::kernel::program::Program;
use crate::kernel::tracefs::Tracefs;
use crate::probes::attach::Probes;
use crate::probes::guardian::Guardian;
use crate::probes::launch::Held;
use crate::profile::{Mode, RunInfo, SizeRange};
use crate::reader::{Budget, Limits, Reader};
use crate::sys;
use child_events::{ChildEvents, Listener};
use drain::Drain;
use duty_cycle::DutyCycles;
use late_files::LateFiles;
use stop::{Stop, Stopper};

/// How often the streams are read where neither wakes us: the last calls before a pause wait for this.
const TICK: Duration = Duration::from_millis(100);

/// Probes that the kernel takes out within a second, at least.
const TAKEN_OUT: usize = 10;

/// Whoever wants to know what a run finds. An error ends the run, in order.
pub trait Observer {
    /// The run has begun: from here on every call is recorded.
    fn started(&mut self, info: &RunInfo) -> Result<()>;
    /// What changed since the last call; also called once at the end. The files are those that
    /// names can be looked up in.
    fn update(&mut self, update: Update, files: &OpenFiles) -> Result<()>;
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// How it was made.
    pub info: RunInfo,
    /// How long it took.
    pub duration_ns: u64,
    /// Exit status of a launched command that has ended.
    pub exit: Option<ExitStatus>,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// The files in which names can be looked up.
    pub files: OpenFiles,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Traces as asked, until the targets end, the time is over or a signal comes.
pub fn run(config: &RunConfig, observer: &mut dyn Observer) -> Result<Finished> {
    doctor::require()?;
    capabilities::require()?;
    targets::check(&config.target)?;
    room::check(config)?;
    let chosen = ProcessFilter::new(&config.selection)?;
    let tracefs = Tracefs::open().context("can't open the kernel's tracing file system")?;
    // Forks, so it comes before anything that starts a thread.
    let guardian = Guardian::start(&tracefs, config.max_overhead.is_some())
        .context("can't start the guardian process")?;
    let held = targets::launch(config)?;
    // The command has what its user gave it; from here on everything is for the run.
    sys::raise_open_files();
    rights::give_up().context("can't give up rights that a run does not need")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start the event loop")?;
    runtime
        .block_on(trace(config, observer, &chosen, tracefs, &guardian, held))
        .map_err(room::advise)
}

async fn trace(
    config: &RunConfig,
    observer: &mut dyn Observer,
    chosen: &ProcessFilter,
    tracefs: Tracefs,
    guardian: &Guardian,
    held: Option<Held>,
) -> Result<Finished> {
    // Before anything is attached: Ctrl-C must never leave a target half probed.
    let mut stopper = Stopper::new(config.duration)?;
    let mut asked = signal(SignalKind::user_defined1()).context("can't listen for signals")?;
    let mut program = Program::load(config, chosen, guardian.pid)?;
    if config.verbose {
        drain::log(&mut program)?;
    }
    let mut joiner = Joiner::new(
        targets::follows_all(&config.target),
        EndedLimits::within(config.max_memory),
    );
    if config.threads {
        joiner.separate_threads();
    }
    if config.mappings {
        joiner.record_mappings();
    }
    let budget = Budget::default();
    let mut reader = Reader::new(&budget, Limits::default());
    let mut drain = Drain::new(&mut program, config, &budget)?;
    let reach = targets::reach(config);
    let mut probes = Probes::new(tracefs, reach, config.probes, guardian)
        .context("can't reach the guardian process")?;
    let mut duty_cycles = DutyCycles::new(config, &mut probes, guardian)?;
    targets::load_tables(config, held.as_ref(), &mut reader, drain.tables());
    let listener = Listener::new(&probes)?;
    targets::attach(
        config,
        held.as_ref(),
        &mut reader,
        &mut drain,
        &mut program,
        &mut probes,
        &mut joiner,
    )?;
    let first = targets::pids(&config.target, held.as_ref());
    let mut late_files = LateFiles::new(config, first.clone(), &budget)?;
    let child_events = listener
        .map(|it| it.follow(&probes, &first))
        .transpose()?
        .flatten();
    tracing::info!("{} descriptors of probes are open", probes.count());

    let info = run_info(config)?;
    drain.hurry();
    program.set_gate(true)?;
    let begin = Instant::now();
    observer.started(&info)?;
    let mut child: Option<Child> = held.map(Held::release).transpose()?;
    stopper.watch(&config.target, child.as_ref())?;

    let first = tokio::time::Instant::now() + config.interval;
    let mut updates = tokio::time::interval_at(first, config.interval);
    updates.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut rates = tokio::time::interval(rate::TICK);
    rates.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut control = config.sampling.max_per_second.map(rate::Control::new);
    let mut looked = begin;
    let mut failure = None;
    let stop = loop {
        tokio::select! {
            stop = stopper.wait() => break stop,
            () = due(&mut updates, &mut asked) => {
                drain.pass(&mut joiner);
                drain.refresh(&mut program, &mut joiner)?;
                let update = drain.update(&mut joiner, &mut reader, elapsed(begin))?;
                drain.give_way();
                let told = observer.update(update, joiner.files());
                drain.hurry();
                if let Err(error) = told {
                    failure = Some(error);
                    break Stop::Failed;
                }
            }
            _ = rates.tick(), if control.is_some() => {
                let sampled = joiner.take_sampled();
                let since = std::mem::replace(&mut looked, Instant::now()).elapsed();
                for change in control.iter_mut().flat_map(|it| it.tick(since, &sampled)) {
                    set_rate(config, change, elapsed(begin), &mut program, &mut joiner)?;
                }
            }
            () = next(&mut duty_cycles) => {
                if let Some(duty_cycles) = &mut duty_cycles {
                    duty_cycles.look(elapsed(begin), &mut drain, &mut program, &mut probes, &mut joiner)?;
                }
            }
            found = late_files.found() => {
                late_files.probe(found, &mut drain, &mut program, &mut probes, &mut joiner)?;
            }
            _ = ticks.tick() => {
                drain.pass(&mut joiner);
                late_files.look(&mut drain, &mut probes, &mut joiner);
            }
            ready = drain.ready() => {
                ready?;
                drain.pass(&mut joiner);
                late_files.look(&mut drain, &mut probes, &mut joiner);
                // What only waits for its turn gets it, also where events never pause.
                tokio::task::yield_now().await;
            }
        }
    };

    // From here on nothing more is recorded, whatever is still attached.
    program.set_gate(false)?;
    let mut notes = Vec::new();
    if let Some(tied) = child_events.map(ChildEvents::end) {
        probes.adopt(tied.open);
        joiner.set_noted(Note::ChildrenProbedLate, tied.late);
        joiner.set_lost(Loss::Births, tied.missed);
    }
    let closing = std::thread::spawn(move || probes.close());
    let duration_ns = elapsed(begin);
    let exit = stop::reap(child.as_mut(), stop, &mut notes);
    drain.finish(&mut program, &mut joiner)?;
    let update = drain.update(&mut joiner, &mut reader, duration_ns)?;
    drain.give_way();
    match closing.join() {
        Ok(0) => {}
        Ok(left) => notes.push(format!(
            "the kernel takes out {left} probes, which no process meets any more; that takes it up to {} s",
            left.div_ceil(TAKEN_OUT)
        )),
        Err(_) => {
            notes.push("closing the probes failed; they go when heaptrace exits".to_owned());
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    observer.update(update, joiner.files())?;
    stop::restore_interrupt();
    Ok(Finished {
        info,
        duration_ns,
        exit,
        interrupted: stop == Stop::Signal,
        files: joiner.into_files(),
        notes,
    })
}

/// Changes the sampling rate of a process, or of all that have none of their own.
fn set_rate(
    config: &RunConfig,
    change: rate::Change,
    at_ns: u64,
    program: &mut Program,
    joiner: &mut Joiner,
) -> Result<()> {
    match change.whose {
        // Where there are too many to have a rate each, this one keeps that of all.
        Some((_, pid)) => {
            if let Err(error) = program.set_shift_of(pid, change.shift) {
                tracing::debug!("process {pid} has no rate of its own: {error:#}");
                joiner.note_one(Note::RatesRefused);
                return Ok(());
            }
        }
        None => program.set_shift(change.shift.unwrap_or(0))?,
    }
    let shift = change.shift.unwrap_or(change.all);
    joiner.rate_changed(RateChange {
        at_ns,
        process: change.whose.map(|(process, _)| process),
        mean_bytes: sampling::shifted(config.sampling.mean, shift),
    });
    Ok(())
}

/// Waits until an update is due, or until somebody asks for one by SIGUSR1.
async fn due(updates: &mut Interval, asked: &mut Signal) {
    tokio::select! {
        _ = updates.tick() => {}
        _ = asked.recv() => {}
    }
}

/// Waits until it is time to look at what tracing costs, if anybody does.
async fn next(duty_cycles: &mut Option<DutyCycles>) {
    match duty_cycles {
        Some(duty_cycles) => duty_cycles.due().await,
        None => std::future::pending().await,
    }
}

fn run_info(config: &RunConfig) -> Result<RunInfo> {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .context("/proc/sys/kernel/osrelease")?;
    Ok(RunInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: match config.sampling.mean {
            1 => Mode::Exact,
            mean_bytes => Mode::Sampled { mean_bytes },
        },
        sizes: SizeRange {
            min: config.sampling.min_size,
            max: config.sampling.max_size,
        },
        started_unix_ns: started,
        target: config.target.describe(),
        kernel: kernel.trim().to_owned(),
    })
}

fn elapsed(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}
