//! `heaptrace who`: shows who owns an address, by a data file, and by a core file if there is one.
//!
//! Part of the command line. Must not know how blocks are found, nor how an answer looks: the output stage does.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use object::ReadCache;

use super::invocation::{Color, Format, Input, Question, Source};
use super::question::Asked;
use super::report::Screen;
use super::who_answer::{by_number, place, print};
use super::who_classes::Classes;
use super::{input, message, offline, who_live};
use crate::core_file::{CoreFile, register_names};
use crate::open;
use crate::output::{self, AskedAddress, CoreFacts, Owned, Place, ReportInput, Who};
use crate::proc::maps::{self, Mapping};
use crate::proc::processes;
use crate::profile::{BlockList, WantedBlocks};
use crate::symbolize::DebugSources;
use crate::text;

/// Bytes of memory that are shown of each address.
const SHOWN: u64 = 64;

/// A register's address that is so close behind a block counts as one that concerns it.
const CLOSE: u64 = 64;

/// Nanoseconds of a clock tick, in which the kernel lists start times.
const TICK: u64 = 10_000_000;

pub(super) fn run(question: &Question, color: Color) -> anyhow::Result<ExitCode> {
    match &question.source {
        Source::File { input, core } => in_file(question, input, core.as_deref(), color),
        Source::Process { duration } => who_live::run(question, *duration, color),
    }
}

/// Prints the commands for gdb.
pub(super) fn gdb_commands() -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    out.write_all(include_bytes!("../../gdb/heaptrace.gdb.py"))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn in_file(
    question: &Question,
    input: &Input,
    core: Option<&Path>,
    color: Color,
) -> anyhow::Result<ExitCode> {
    // Everything is opened before the rights to open files are given up.
    let screen = Screen::stdout(color);
    let core = core.map(open_core).transpose()?.map(ReadCache::new);
    let running = question.pid.and_then(Running::read);
    let classes = match (&core, question.inspect_live) {
        (Some(_), true) => Some(Classes::start().context("can't start a process")?),
        _ => None,
    };
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    let mut asked = Vec::new();
    let mut facts = None;
    let read = opened.read_blocks(|| {
        asked = match &core {
            Some(core) => {
                let core = CoreFile::read(core).map_err(|why| anyhow!("the core file: {why}"))?;
                facts = Some(core_facts(&core));
                in_core(&question.asked, &core)
            }
            None => by_number(&question.asked),
        };
        let addresses: Vec<u64> = asked.iter().map(|it| it.address).collect();
        Ok(WantedBlocks::at(&addresses))
    })?;
    let (mut recording, symbols) = read.named();
    let name = input.file.to_string_lossy();
    let mut blocks = recording.blocks.take().with_context(|| {
        format!(
            "{} has no single blocks: record them with `heaptrace record --blocks`, or with --events for every allocation and free",
            text::escape(&name)
        )
    })?;
    let pid = question.pid.or(facts.as_ref().map(|it| it.pid));
    ensure_has(&blocks, pid, facts.as_ref(), &text::escape(&name))?;
    if let Some(running) = running {
        running.describe(&blocks, &mut asked);
    }
    // A text begins with the warnings, so on a terminal they would be shown twice.
    if question.format == Format::Json || !screen.is_terminal {
        recording.warnings.iter().for_each(message::warn);
    }
    if let Some((classes, core)) = classes.zip(core.as_ref()) {
        let core = CoreFile::read(core).map_err(|why| anyhow!("the core file: {why}"))?;
        let addresses: Vec<u64> = asked.iter().map(|it| it.address).collect();
        classes.add(&addresses, &core, &recording.profile, &mut blocks);
    }
    let mut owned = output::find_owners(&blocks, &asked, pid);
    if let Some(facts) = facts.as_mut().filter(|_| question.asked.is_empty()) {
        facts.others = take_unknown(&mut owned);
    }
    let report_input = ReportInput {
        warnings: &recording.warnings,
        wrappers: &question.wrappers,
        full_names: question.full_names,
        ..ReportInput::new(&recording.profile, &symbols)
    };
    let who = Who {
        blocks: &blocks,
        core: facts,
        owned,
    };
    print(question, &report_input, &who, screen)?;
    Ok(input::exit_code(recording.is_damaged))
}

fn open_core(path: &Path) -> anyhow::Result<File> {
    let opened = open::named(path);
    let name = path.to_string_lossy();
    let opened =
        opened.with_context(|| format!("can't read the core file {}", text::escape(&name)));
    Ok(opened?.file)
}

fn core_facts<'a, R: object::ReadRef<'a>>(core: &CoreFile<R>) -> CoreFacts {
    let thread = core.thread();
    let fault = core.fault();
    let of_thread = thread.map_or(0, |it| u32::from(it.signal));
    CoreFacts {
        pid: core.pid(),
        command: core.command().to_owned(),
        thread: thread.map_or(0, |it| it.tid),
        signal: fault.map_or(of_thread, |it| it.signal),
        fault: fault.and_then(|it| it.address),
        others: Vec::new(),
    }
}

/// The addresses that were asked about, or those in the registers of the thread that crashed, with what the core file has there.
fn in_core<'a, R: object::ReadRef<'a>>(asked: &[Asked], core: &CoreFile<R>) -> Vec<AskedAddress> {
    let register = |name: &str| core.thread()?.registers.named(name);
    let mut wanted: Vec<(u64, String)> = Vec::new();
    for asked in asked {
        match asked {
            Asked::Address(address) => wanted.push((*address, String::new())),
            Asked::Register(name) => {
                wanted.extend(register(name).map(|value| (value, (*name).to_owned())));
            }
        }
    }
    if asked.is_empty() {
        let fault = core.fault().and_then(|it| it.address);
        let fault = fault.map(|address| (address, "accessed".to_owned()));
        let registers =
            register_names().filter_map(|name| Some((register(name)?, name.to_owned())));
        for (address, name) in fault.into_iter().chain(registers) {
            match wanted.iter_mut().find(|it| it.0 == address) {
                Some((_, names)) => *names = format!("{names}, {name}"),
                None => wanted.push((address, name)),
            }
        }
    }
    let described = wanted.into_iter().map(|(address, name)| AskedAddress {
        address,
        name,
        place: core.mapping(address).map_or(Place::Unmapped, Place::Mapped),
        memory: core.memory(address, SHOWN).to_vec(),
    });
    described.collect()
}

/// Takes out the addresses that concern no recorded block, and returns their names.
fn take_unknown(owned: &mut Vec<Owned<'_>>) -> Vec<String> {
    let is_close = |owned: &Owned<'_>| {
        owned.owners.iter().any(|owner| {
            let end = owner.neighbours[0].map(|it| it.address.saturating_add(it.size));
            let gap = end.and_then(|end| owned.asked.address.checked_sub(end));
            gap.is_some_and(|gap| gap < CLOSE)
        })
    };
    let mut others = Vec::new();
    owned.retain(|owned| {
        let is_kept = owned.is_known() || is_close(owned);
        if !is_kept {
            others.push(owned.asked.name.clone());
        }
        is_kept
    });
    others
}

/// Checks that the file has the process.
fn ensure_has(
    blocks: &BlockList,
    pid: Option<u32>,
    core: Option<&CoreFacts>,
    name: &str,
) -> anyhow::Result<()> {
    let Some(pid) = pid else {
        return Ok(());
    };
    let images = || blocks.processes.iter().map(|it| &it.owner);
    let known = images()
        .take(5)
        .map(|it| format!("{} ({})", text::escape(&it.command), it.pid));
    let known: Vec<_> = known.collect();
    let of = core
        .filter(|core| core.pid == pid)
        .map_or_else(String::new, |core| {
            format!(
                "the core file is of {} ({pid}), and ",
                text::escape(&core.command)
            )
        });
    ensure!(
        images().any(|it| it.pid == pid),
        "{of}{name} has no blocks of a process {pid}, but of {}{}: name the recording of that process, or choose one of these with \
         --pid (in a container, a process may have another id than outside)",
        known.join(", "),
        if blocks.processes.len() > known.len() {
            " and others"
        } else {
            ""
        }
    );
    Ok(())
}

/// What a running process has mapped.
struct Running {
    pid: u32,
    /// When it started, in clock ticks.
    start_time: u64,
    mappings: Vec<Mapping>,
}

impl Running {
    fn read(pid: u32) -> Option<Self> {
        let start_time = processes::start_time(pid)?;
        Some(Self {
            pid,
            start_time,
            mappings: maps::of(pid).ok()?,
        })
    }

    /// Says what is mapped at addresses, if the process is one of the recording.
    fn describe(&self, blocks: &BlockList, asked: &mut [AskedAddress]) {
        let mut images = blocks.processes.iter().map(|it| &it.owner);
        let is_it =
            images.any(|it| it.pid == self.pid && it.start_time_ns / TICK == self.start_time);
        if is_it {
            for it in asked.iter_mut().filter(|it| it.place == Place::Unknown) {
                it.place = place(&self.mappings, it.address);
            }
        }
    }
}
