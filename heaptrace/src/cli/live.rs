//! Live mode: shows the updates of a run in a table, and a report at its end.
//!
//! Part of the command line. Must not know how the table looks (the view stage does), nor how a run is made
//! (the session does).

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::exit::exit_code;
use super::invocation::{Color, Ranking};
use super::{message, naming, report};
use crate::config::{RunConfig, Target};
use crate::join::{LocationId, OpenFiles, SiteId, Update};
use crate::output::{self, Grouping, Metric, ReportInput};
use crate::profile::{Profile, RunEnd, RunInfo};
use crate::reader::Budget;
use crate::session::{self, Observer};
use crate::symbolize::Symbolizer;
use crate::view::{FUNCTIONS, Layout, Rows, Table, Terminal, ranked};

pub(super) fn run(config: &RunConfig, ranking: Ranking, color: Color) -> anyhow::Result<ExitCode> {
    // The table must not hide the output of a command, or the messages of -v.
    let shared = matches!(config.target, Target::Command(_)) || config.verbose;
    let layout = if shared { Layout::Panel } else { Layout::Full };
    let mut live = Live {
        terminal: Terminal::stdout(layout, ranking.top),
        symbolizer: Symbolizer::new(&Budget::default()),
        ranking,
        profile: None,
    };
    message::note_user(config);
    let finished = session::run(config, &mut live)?;
    live.terminal.close()?;
    for note in &finished.notes {
        message::note(note);
    }
    let mut profile = live.profile.context("the run ended before it began")?;
    profile.duration_ns = finished.duration_ns;
    profile.end = RunEnd::Orderly;
    let symbols = naming::all(&profile, &finished.files);
    let report_input = ReportInput {
        grouping: ranking.grouping(),
        ..ReportInput::new(&profile, &symbols)
    };
    report::print(&report_input, &report::text(ranking, color))?;
    Ok(finished.exit.map_or(ExitCode::SUCCESS, exit_code))
}

/// Shows every update.
struct Live {
    terminal: Terminal,
    symbolizer: Symbolizer,
    ranking: Ranking,
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
        let metric = self.ranking.metric;
        let most = self.terminal.rows();
        let Some(grouping) = self.ranking.grouping() else {
            let ranked = ranked(profile, metric, most);
            let shown = locations(profile, &ranked, FUNCTIONS);
            self.symbolizer.symbolize(profile, files, shown);
            return Ok(self.terminal.show(&Table {
                profile,
                symbols: self.symbolizer.symbols(),
                rows: Rows::Sites(&ranked),
                metric,
            })?);
        };
        if grouping.by.is_named() {
            look_up(&mut self.symbolizer, profile, files, metric);
        }
        let symbols = self.symbolizer.symbols();
        let grouping = Grouping {
            // The table has a single column for each kind of number.
            cumulative: false,
            top: Some(most),
            ..grouping
        };
        let (groups, _) = output::groups(&ReportInput::new(profile, symbols), grouping);
        Ok(self.terminal.show(&Table {
            profile,
            symbols,
            rows: Rows::Groups(grouping.by, &groups),
            metric,
        })?)
    }
}

/// Looks up the names of the functions that allocate most, for a short time only, as events wait meanwhile.
/// The other names come with the next updates.
fn look_up(symbolizer: &mut Symbolizer, profile: &Profile, files: &OpenFiles, metric: Metric) {
    const MOST: usize = 1 << 16;
    const BATCH: usize = 256;
    const PATIENCE: Duration = Duration::from_millis(100);
    let begun = Instant::now();
    let largest = ranked(profile, metric, MOST);
    for batch in locations(profile, &largest, 1).chunks(BATCH) {
        symbolizer.symbolize(profile, files, batch.iter().copied());
        if begun.elapsed() > PATIENCE {
            return;
        }
    }
}

/// The innermost locations of sites, at most so many of each.
fn locations(profile: &Profile, sites: &[SiteId], most: usize) -> Vec<LocationId> {
    sites
        .iter()
        .filter_map(|id| profile.sites.get(id.0 as usize))
        .filter_map(|site| profile.stacks.get(site.stack.0 as usize))
        .flat_map(|stack| stack.locations.iter().take(most).copied())
        .collect()
}
