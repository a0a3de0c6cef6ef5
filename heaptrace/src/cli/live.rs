//! Live mode: a run whose updates are shown as they come, and a report at its end.
//!
//! Part of the command line, no stage of the flow. How the table looks is the view stage's business,
//! how a run is made the session's.

use std::process::ExitCode;

use anyhow::Context as _;

use super::report::{self, Ranking};
use super::{Color, exit_code, message, naming};
use crate::config::{RunConfig, Target};
use crate::join::{LocationId, OpenFiles, SiteId, Update};
use crate::output::{Findings, Metric};
use crate::profile::{Profile, RunEnd, RunInfo};
use crate::session::{self, Observer};
use crate::symbolize::Symbolizer;
use crate::view::{FUNCTIONS, Layout, Table, Terminal, ranked};

pub(super) fn run(config: &RunConfig, ranking: Ranking, color: Color) -> anyhow::Result<ExitCode> {
    // What a command writes, and what -v says, must not be painted over.
    let shared = matches!(config.target, Target::Command(_)) || config.verbose;
    let layout = if shared { Layout::Panel } else { Layout::Full };
    let mut live = Live {
        terminal: Terminal::stdout(layout, ranking.top),
        symbolizer: Symbolizer::new(),
        metric: ranking.metric,
        profile: None,
    };
    let finished = session::run(config, &mut live)?;
    live.terminal.close()?;
    for note in &finished.notes {
        message::note(note);
    }
    let mut profile = live.profile.context("the run ended before it began")?;
    profile.duration_ns = finished.duration_ns;
    profile.end = RunEnd::Orderly;
    let symbols = naming::all(&profile, &finished.files);
    report::print(
        &Findings::new(&profile, &symbols),
        &report::text(ranking, color),
    )?;
    Ok(finished.exit.map_or(ExitCode::SUCCESS, exit_code))
}

/// Shows every update as it comes.
struct Live {
    terminal: Terminal,
    symbolizer: Symbolizer,
    metric: Metric,
    profile: Option<Profile>,
}

impl Observer for Live {
    fn started(&mut self, info: &RunInfo) -> anyhow::Result<()> {
        self.profile = Some(Profile::new(info.clone()));
        Ok(())
    }

    fn update(&mut self, update: Update, files: &OpenFiles) -> anyhow::Result<()> {
        let profile = self
            .profile
            .as_mut()
            .context("an update came before the run began")?;
        profile.fold(update)?;
        let ranked = ranked(profile, self.metric, self.terminal.sites());
        self.symbolizer
            .symbolize(profile, files, shown(profile, &ranked));
        self.terminal.show(&Table {
            profile,
            symbols: self.symbolizer.symbols(),
            ranked: &ranked,
            metric: self.metric,
        })?;
        Ok(())
    }
}

/// The locations whose names the table shows.
fn shown(profile: &Profile, ranked: &[SiteId]) -> Vec<LocationId> {
    ranked
        .iter()
        .filter_map(|id| profile.sites.get(id.0 as usize))
        .filter_map(|site| profile.stacks.get(site.stack.0 as usize))
        .flat_map(|stack| stack.locations.iter().take(FUNCTIONS).copied())
        .collect()
}
