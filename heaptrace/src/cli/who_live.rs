//! `heaptrace who --pid`: traces a running process until a block was allocated at each address in question.
//!
//! Part of the command line. Must not know how a run is made (the session does).

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::invocation::{Color, Question};
use super::progress::{self, ProgressLine};
use super::report::Screen;
use super::who_answer::{by_number, place, print};
use super::{message, naming, run_args};
use crate::config::{KeptBlocks, RunConfig};
use crate::join::{OpenFiles, Update};
use crate::output::{self, Place, ReportInput, Who};
use crate::probes::target_events::AttachError;
use crate::proc::maps;
use crate::profile::{BlockReading, Profile, RunEnd, RunInfo, WantedBlocks};
use crate::session::{self, Observer, Progress, Wish};
use crate::symbolize::DebugSources;

/// Time between two looks at what was allocated.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn run(
    question: &Question,
    duration: Option<Duration>,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let pid = question.pid.context("no process was named")?;
    ensure!(
        Path::new(&format!("/proc/{pid}")).exists(),
        AttachError::NoProcess(pid)
    );
    let mut asked = by_number(&question.asked);
    let mappings =
        maps::of(pid).with_context(|| format!("can't read what process {pid} has mapped"))?;
    for it in &mut asked {
        it.place = place(&mappings, it.address);
        ensure!(
            it.place != Place::Unmapped,
            "process {pid} has nothing mapped at {:#x}: no block can be there now",
            it.address
        );
    }
    let addresses: Vec<u64> = asked.iter().map(|it| it.address).collect();
    let config = RunConfig {
        duration,
        interval: INTERVAL,
        blocks: KeptBlocks::Alone,
        inspect_live: question.inspect_live,
        // A forked child has the same addresses, and mapped memory is no block.
        children: false,
        mappings: false,
        ..run_args::exact(pid).context("the options of the run are wrong")?
    };
    let mut watcher = Watcher {
        pid,
        missing: addresses.clone(),
        profile: None,
        blocks: BlockReading::new(WantedBlocks::at(&addresses)),
        line: ProgressLine::new(),
    };
    let finished = session::run(&config, &mut watcher)?;
    let Watcher {
        profile,
        blocks,
        mut line,
        ..
    } = watcher;
    line.clear();
    let mut profile = profile.context("the run ended before it began; nothing was seen")?;
    profile.duration_ns = finished.duration_ns;
    profile.end = RunEnd::Orderly;
    let symbols = naming::all(&profile, &finished.files, DebugSources::in_folders(&[]));
    finished.notes.iter().for_each(message::note);
    let blocks = blocks.finish();
    let warning = "what was at these addresses before tracing began is not known: only blocks that were allocated since then are shown";
    let warnings = [warning.to_owned()];
    let input = ReportInput {
        warnings: &warnings,
        wrappers: &question.wrappers,
        full_names: question.full_names,
        ..ReportInput::new(&profile, &symbols)
    };
    let found = Who {
        blocks: &blocks,
        core: None,
        owned: output::find_owners(&blocks, &asked, Some(pid)),
    };
    print(question, &input, &found, Screen::stdout(color))?;
    Ok(ExitCode::SUCCESS)
}

/// Collects blocks, and ends the run when one was at each address.
struct Watcher {
    pid: u32,
    /// The addresses at which no block was seen so far.
    missing: Vec<u64>,
    profile: Option<Profile>,
    blocks: BlockReading,
    line: ProgressLine,
}

impl Observer for Watcher {
    fn progress(&mut self, progress: Progress) {
        self.line.show(progress::words(progress));
    }

    fn started(&mut self, info: &RunInfo) -> anyhow::Result<()> {
        self.line.clear();
        self.profile = Some(Profile::new(info.clone()));
        message::say(
            "heaptrace: tracing until a block is allocated at each address, or until Ctrl-C",
        );
        Ok(())
    }

    fn update(&mut self, mut update: Update, _files: &OpenFiles) -> anyhow::Result<()> {
        let profile = self.profile.as_mut();
        let profile = profile.context("an update came before the run began")?;
        let (at_ns, blocks) = (update.elapsed_ns, std::mem::take(&mut update.blocks));
        profile.fold(update)?;
        for changes in blocks {
            for block in changes
                .born
                .iter()
                .filter(|_| changes.owner.pid == self.pid)
            {
                let end = block.address.saturating_add(block.size.max(1));
                let held = block.address..end;
                self.missing.retain(|address| !held.contains(address));
            }
            let added = self.blocks.add(changes, false, profile.stacks.len());
            added.map_err(|stack| anyhow::anyhow!("a block has the unknown stack {}", stack.0))?;
        }
        self.blocks.complete(at_ns);
        Ok(())
    }

    fn look(&mut self, _files: &OpenFiles) -> anyhow::Result<Wish> {
        Ok(match self.missing.is_empty() {
            true => Wish::End,
            false => Wish::Continue,
        })
    }
}
