//! Live mode: shows the updates of a run in a table, and a report at its end.
//!
//! Part of the command line. Must not know how the table looks (the view stage does), nor how a run is made
//! (the session does).

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::exit::exit_code;
use super::followed::Followed;
use super::invocation::{Color, Filters, Ranking};
use super::live_types::LiveTypes;
use super::progress::{self, ProgressLine};
use super::report::Screen;
use super::{chosen_blocks, filters, logging, message, naming, report, summary};
use crate::config::{RunConfig, Target};
use crate::join::{LocationId, OpenFiles, SiteId, Update};
use crate::output::{
    self, Filter, Grouping, Label, LeakOptions, Metric, ReportInput, ShownLanguages, Wrappers,
};
use crate::profile::{History, Profile, RunEnd, RunInfo, Symbols};
use crate::reader::Budget;
use crate::session::{self, Observer, Progress, Wish};
use crate::symbolize::{DebugSources, Symbolizer};
use crate::tty::Restorer;
use crate::view::{Foot, Key, Layout, Part, Rows, Table, Terminal, Use, ranked};

/// The number of innermost locations of a stack whose names are looked up: the user's function lies behind the wrappers of
/// the allocator.
const LOOKED_UP: usize = 16;

/// Names that are looked up at once.
const BATCH: usize = 256;

/// The time for looking up names while events wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is shown, and how.
pub(super) struct Shown {
    pub(super) ranking: Ranking,
    pub(super) wrappers: Wrappers,
    pub(super) languages: ShownLanguages,
    pub(super) filters: Filters,
    /// Whether names of functions are as compilers have them.
    pub(super) full_names: bool,
    /// Whether the end is the full report, also on a terminal.
    pub(super) details: bool,
    pub(super) color: Color,
}

pub(super) fn run(config: &RunConfig, shown: Shown) -> anyhow::Result<ExitCode> {
    let Shown { details, color, .. } = shown;
    // Before anything is traced: an error in a file of filters must not end a run.
    let filters = filters::read(&shown.filters)?;
    chosen_blocks::refuse_in_runs(&filters)?;
    if filters.iter().any(Filter::is_of_threads) && !config.threads {
        message::warn("names of threads are not recorded, so that none matches; add --threads");
    }
    let mut live = Live::new(config, shown, filters);
    message::note_user(config);
    message::note_selection(config);
    let finished = session::run(config, &mut live)?;
    live.close()?;
    for note in &finished.notes {
        message::note(note);
    }
    let mut profile = live
        .profile
        .take()
        .context("the run ended before it began")?;
    profile.duration_ns = finished.duration_ns;
    profile.end = RunEnd::Orderly;
    let symbols = naming::all(
        &profile,
        &finished.files,
        DebugSources::in_folders(&config.debug_dirs),
    );
    let ranking = live.ranking;
    let profile = output::select(profile, &symbols, &live.filters);
    let report_input = ReportInput {
        filters: &live.filters,
        grouping: ranking.grouping(&profile),
        wrappers: &live.wrappers,
        shown: live.languages,
        full_names: live.full_names,
        ..ReportInput::new(&profile, &symbols)
    };
    if live.terminal.is_in_place() && !details {
        let is_colored = color.for_stream(&io::stdout());
        summary::print(report_input, ranking, &target(config), is_colored)?;
    } else {
        let format = report::text(ranking, &profile, Screen::stdout(color));
        report::print(&report_input, &format)?;
    }
    Ok(finished.exit.map_or(ExitCode::SUCCESS, exit_code))
}

/// The arguments that name the target.
fn target(config: &RunConfig) -> String {
    match config.target {
        Target::Command(_) => format!("-- {}", config.describe_target()),
        Target::Pids(_) | Target::All => config.describe_target(),
    }
}

/// Shows every update.
struct Live {
    terminal: Terminal,
    /// Whether the table has the whole terminal.
    is_alone: bool,
    symbolizer: Symbolizer,
    types: LiveTypes,
    ranking: Ranking,
    wrappers: Wrappers,
    languages: ShownLanguages,
    filters: Vec<Filter>,
    full_names: bool,
    /// The keys that the table can be grouped by.
    labels: Vec<Label>,
    profile: Option<Profile>,
    /// How the memory of each site changed.
    followed: Followed,
    /// What is shown while the table is frozen.
    frozen: Option<(Profile, Followed)>,
    part: Part,
    /// Whether a mark is to be made.
    wants_mark: bool,
    is_help: bool,
    /// Whether the table was closed for good.
    is_over: bool,
    line: ProgressLine,
}

impl Observer for Live {
    fn terminal(&self) -> Option<&Restorer> {
        self.terminal.restorer().map(Arc::as_ref)
    }

    fn progress(&mut self, progress: Progress) {
        if progress == Progress::Detaching {
            self.is_over = true;
            // The terminal is closed again at the end, with its error.
            let _ = self.close();
        }
        self.line.show(progress::words(progress));
    }

    fn started(&mut self, info: &RunInfo) -> anyhow::Result<()> {
        self.line.clear();
        self.profile = Some(Profile::new(info.clone()));
        if self.terminal.is_in_place() {
            if self.is_alone {
                logging::hold();
            }
            self.draw(&OpenFiles::default())?;
        }
        Ok(())
    }

    fn update(&mut self, update: Update, files: &OpenFiles) -> anyhow::Result<()> {
        self.followed.record(&update);
        self.profile
            .as_mut()
            .context("an update came before the run began")?
            .fold(update)?;
        if self.is_over && self.terminal.is_in_place() {
            return Ok(());
        }
        self.draw(files)
    }

    fn input(&self) -> io::Result<Option<OwnedFd>> {
        self.terminal.input()
    }

    fn look(&mut self, files: &OpenFiles) -> anyhow::Result<Wish> {
        let keys = self.terminal.pressed();
        for key in &keys {
            if *key == Key::Quit {
                return Ok(Wish::End);
            }
            self.press(*key)?;
        }
        if !keys.is_empty() || self.terminal.is_stale() {
            self.draw(files)?;
        }
        if std::mem::take(&mut self.wants_mark) {
            return Ok(Wish::Mark);
        }
        Ok(Wish::Continue)
    }
}

impl Live {
    fn new(config: &RunConfig, shown: Shown, filters: Vec<Filter>) -> Self {
        let Shown {
            ranking,
            wrappers,
            languages,
            full_names,
            color,
            ..
        } = shown;
        let is_command = matches!(config.target, Target::Command(_));
        // The table must not hide the output of a command, or the messages of -v.
        let is_alone = !is_command && !config.verbose;
        let terminal = Terminal::stdout(Use {
            layout: if is_alone {
                Layout::Full
            } else {
                Layout::Panel
            },
            top: ranking.top,
            // The keys are for the command.
            keys: !is_command,
            color: color.for_stream(&io::stdout()),
        });
        if let Some(restorer) = terminal.restorer() {
            restore_at_panic(Arc::clone(restorer));
        }
        let is_offered = |label: &Label| match label {
            Label::Stack => false,
            Label::Thread => config.threads,
            _ => true,
        };
        Self {
            terminal,
            is_alone,
            symbolizer: Symbolizer::new(
                &Budget::default(),
                DebugSources::in_folders(&config.debug_dirs),
            ),
            types: LiveTypes::default(),
            ranking,
            wrappers,
            languages,
            filters,
            full_names,
            labels: Label::ALL.into_iter().filter(is_offered).collect(),
            profile: None,
            followed: Followed::default(),
            frozen: None,
            part: Part::All,
            wants_mark: false,
            is_help: false,
            is_over: false,
            line: ProgressLine::new(),
        }
    }

    /// Ends the table: other text can follow.
    fn close(&mut self) -> io::Result<()> {
        self.line.clear();
        let closed = self.terminal.close();
        logging::release();
        closed
    }

    fn press(&mut self, key: Key) -> anyhow::Result<()> {
        let was_help = std::mem::take(&mut self.is_help);
        let ranking = &mut self.ranking;
        match key {
            Key::Sort | Key::SortBack => {
                let shown = self.frozen.as_ref().map(|it| &it.0);
                let shown = shown.or(self.profile.as_ref());
                let now = shown.map_or_else(Metric::default, |profile| ranking.metric(profile));
                ranking.metric = Some(next(&Metric::ALL, &now, key == Key::Sort));
            }
            Key::By | Key::ByBack => {
                let shown = self.frozen.as_ref().map(|it| &it.0);
                let shown = shown.or(self.profile.as_ref());
                let is_one_language = shown.is_none_or(|it| it.functions.is_empty());
                let labels = self.labels.iter().copied();
                let labels = labels.filter(|it| *it != Label::Language || !is_one_language);
                let all: Vec<Option<Label>> =
                    std::iter::once(None).chain(labels.map(Some)).collect();
                ranking.by = next(&all, &ranking.by, key == Key::By);
            }
            Key::Pause => {
                self.frozen = match self.frozen.take() {
                    Some(_) => None,
                    None => self.profile.clone().map(|it| (it, self.followed.clone())),
                }
            }
            Key::Mark => self.wants_mark = true,
            Key::New => {
                self.part = other(self.part, Part::New);
                let has_marks = self.profile.as_ref().is_some_and(|it| !it.marks.is_empty());
                // Otherwise there is nothing to tell apart.
                self.wants_mark |= self.part == Part::New && !has_marks;
            }
            Key::Leaks => self.part = other(self.part, Part::Leaks),
            Key::Help => self.is_help = !was_help,
            Key::Redraw => self.terminal.forget(),
            Key::Suspend => self.terminal.suspend()?,
            Key::Quit | Key::Escape => {}
        }
        Ok(())
    }

    fn draw(&mut self, files: &OpenFiles) -> anyhow::Result<()> {
        let frozen = self.frozen.as_ref().map(|it| (&it.0, &it.1));
        let now = self.profile.as_ref().map(|it| (it, &self.followed));
        let Some((whole, followed)) = frozen.or(now) else {
            return Ok(());
        };
        let notice = output::latest_end(whole);
        let marks = whole.marks.len();
        let since = whole.marks.last().filter(|_| self.part == Part::New);
        let since = since.copied();
        let newer = since.map(|mark| output::since_mark(whole.clone(), mark.number));
        let whole = newer.as_ref().unwrap_or(whole);
        let is_of_leaks = self.part == Part::Leaks;
        // Filters change the numbers of processes, which histories name.
        let mut history = is_of_leaks.then(|| followed.history().cloned()).flatten();
        let (mut selected, mut warnings) = (None, Vec::new());
        let is_of_types = self.ranking.by.is_some_and(Label::is_of_type)
            || self.filters.iter().any(Filter::is_of_types);
        if is_of_types {
            let metric = self.ranking.metric(whole);
            let (types, symbolizer) = (&mut self.types, &mut self.symbolizer);
            if !types.find(symbolizer, whole, files, metric, PATIENCE) {
                warnings.push("types are still looked up: less may be unknown".to_owned());
            }
        }
        if !self.filters.is_empty() {
            if self.filters.iter().any(Filter::is_named)
                && !look_up_all(&mut self.symbolizer, whole, files)
            {
                warnings.push("names are still looked up: more may match".to_owned());
            }
            let symbols = self.symbolizer.symbols();
            let mut none = History::default();
            let history = history.as_mut().unwrap_or(&mut none);
            let whole = whole.clone();
            let filters = &self.filters;
            selected = Some(output::select_with_history(
                whole, history, symbols, filters, None,
            ));
        }
        let profile = selected.as_ref().unwrap_or(whole);
        let metric = self.ranking.metric(profile);
        let most = self.terminal.rows();
        let foot = Foot {
            sorted: metric.title(),
            grouped: self.ranking.by.map_or("site", Label::name),
            marks,
            part: match self.part {
                Part::New if since.is_none() => Part::All,
                part => part,
            },
            is_paused: self.frozen.is_some(),
            is_help: self.is_help,
            notice,
        };
        let input = |symbols| ReportInput {
            warnings: &warnings,
            filters: &self.filters,
            wrappers: &self.wrappers,
            shown: self.languages,
            full_names: self.full_names,
            since,
            ..ReportInput::new(profile, symbols)
        };
        if is_of_leaks {
            // The names of stacks are not needed to find the sites.
            let unnamed = Symbols::default();
            let unnamed = ReportInput::new(profile, &unnamed);
            let found = history
                .as_ref()
                .map(|it| output::find_leaks(&unnamed, it, &LeakOptions::default()));
            let shown = found
                .iter()
                .flat_map(|it| it.growing.iter().chain(&it.unsure))
                .take(most);
            let stacks = shown.filter_map(|it| profile.stacks.get(it.stack.0 as usize));
            let locations: Vec<_> = stacks
                .flat_map(|it| it.locations.iter().take(LOOKED_UP).copied())
                .collect();
            self.symbolizer.symbolize(profile, files, locations);
            let table = Table {
                input: input(self.symbolizer.symbols()),
                rows: Rows::Leaks(found.as_ref(), most),
                metric,
            };
            return Ok(self.terminal.show(&table, &foot)?);
        }
        let Some(grouping) = self.ranking.grouping(profile) else {
            let ranked = ranked(profile, metric, most);
            let shown = locations(profile, &ranked, LOOKED_UP);
            self.symbolizer.symbolize(profile, files, shown);
            let table = Table {
                input: input(self.symbolizer.symbols()),
                rows: Rows::Sites(&ranked),
                metric,
            };
            return Ok(self.terminal.show(&table, &foot)?);
        };
        if grouping.by.is_named() {
            look_up(&mut self.symbolizer, profile, files, metric);
        }
        let input = input(self.symbolizer.symbols());
        let grouping = Grouping {
            // The table has a single column for each kind of number.
            cumulative: false,
            top: Some(most),
            ..grouping
        };
        let (groups, _) = output::groups(&input, grouping);
        let table = Table {
            input,
            rows: Rows::Groups(grouping.by, &groups),
            metric,
        };
        Ok(self.terminal.show(&table, &foot)?)
    }
}

/// A part of the run, or everything if it is shown already.
fn other(now: Part, wanted: Part) -> Part {
    if now == wanted { Part::All } else { wanted }
}

/// Restores the terminal before the message of a panic is printed: the message would be lost with the table.
fn restore_at_panic(restorer: Arc<Restorer>) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restorer.restore();
        print(info);
    }));
}

/// The value after the present one, or the one before; the ends are neighbours.
fn next<T: Clone + PartialEq>(all: &[T], present: &T, is_forward: bool) -> T {
    let at = all.iter().position(|it| it == present).unwrap_or(0);
    let step = if is_forward { 1 } else { all.len() - 1 };
    all.get((at + step) % all.len()).unwrap_or(present).clone()
}

/// Looks up the names of the functions that allocate most, for a short time only, as events wait meanwhile.
/// The other names come with the next updates.
fn look_up(symbolizer: &mut Symbolizer, profile: &Profile, files: &OpenFiles, metric: Metric) {
    const MOST: usize = 1 << 16;
    let begun = Instant::now();
    let largest = ranked(profile, metric, MOST);
    for batch in locations(profile, &largest, LOOKED_UP).chunks(BATCH) {
        symbolizer.symbolize(profile, files, batch.iter().copied());
        if begun.elapsed() > PATIENCE {
            return;
        }
    }
}

/// Looks up the names of all functions, for a short time only. Returns whether all are known.
fn look_up_all(symbolizer: &mut Symbolizer, profile: &Profile, files: &OpenFiles) -> bool {
    let begun = Instant::now();
    let all: Vec<_> = (0..profile.locations.len() as u32)
        .map(LocationId)
        .collect();
    for batch in all.chunks(BATCH) {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        symbolizer.symbolize(profile, files, batch.iter().copied());
    }
    true
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that keys go through all values in both directions, and from one end to the other.
    #[test]
    fn values_are_cycled() {
        let all = [1, 2, 3];
        assert_eq!([1, 2, 3].map(|it| next(&all, &it, true)), [2, 3, 1]);
        assert_eq!([1, 2, 3].map(|it| next(&all, &it, false)), [3, 1, 2]);
        assert_eq!(next(&all, &9, true), 2);
    }
}
