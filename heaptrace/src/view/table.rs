//! The table of the largest allocation sites, as lines of text.
//!
//! Stage: view. A pure function from a profile and its names to lines of a given width, without control
//! characters. Must not know terminals.

use std::cmp::Reverse;

use super::names::{LONGEST_NAME, joined, shortened};
use crate::join::{ModuleId, Process, Site, SiteId, Stack, Totals};
use crate::output::{self, Group, Label, Metric};
use crate::profile::{Profile, Symbols};
use crate::text;

/// The largest number of functions of a stack in one line.
pub const FUNCTIONS: usize = 3;
/// The largest width of the process column: the kernel's 15 characters of a name, and a pid.
const PROCESS: usize = 20;
const PROCESS_HEADING: &str = "process";
const HEADINGS: &str = " live bytes  live blocks  total bytes  total blocks";

/// The input of a table.
#[derive(Debug)]
pub struct Table<'a> {
    /// The profile so far.
    pub profile: &'a Profile,
    /// Names, at least those of the ranked sites.
    pub symbols: &'a Symbols,
    /// The rows to show, in order.
    pub rows: Rows<'a>,
    /// The metric that they are ranked by.
    pub metric: Metric,
}

/// The rows of a table below its head.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// One line for each site.
    Sites(&'a [SiteId]),
    /// One line for each group, and the kind of name that sites are grouped by.
    Groups(Label, &'a [Group]),
}

/// The sites with the largest values, largest first, without those that are zero.
pub fn ranked(profile: &Profile, metric: Metric, most: usize) -> Vec<SiteId> {
    let mut sites: Vec<(u64, u32)> = (0_u32..)
        .zip(&profile.sites)
        .map(|(index, site)| (metric.of(&site.totals), index))
        .filter(|&(value, _)| value > 0)
        .collect();
    // Equal sites keep their order, so that the table does not flicker.
    let order = |&(value, index): &(u64, u32)| (Reverse(value), index);
    if most < sites.len() {
        // Only the sites that are shown need to be sorted.
        sites.select_nth_unstable_by_key(most, order);
        sites.truncate(most);
    }
    sites.sort_unstable_by_key(order);
    sites.into_iter().map(|(_, index)| SiteId(index)).collect()
}

impl Table<'_> {
    /// The number of lines above the sites.
    pub const HEAD_LINES: usize = 4;

    /// The lines, each at most `width` characters wide if there is a width.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut lines = self.head();
        match self.rows {
            Rows::Sites(ids) => self.sites(ids, width, &mut lines),
            Rows::Groups(by, groups) => {
                lines.push(format!("{HEADINGS}  processes  {}", by.name()));
                lines.extend(groups.iter().map(|it| group(by, it, width)));
            }
        }
        if let Some(width) = width {
            for line in &mut lines {
                *line = shortened(line, width);
            }
        }
        lines
    }

    fn sites(&self, ids: &[SiteId], width: Option<usize>, lines: &mut Vec<String>) {
        let sites: Vec<(&Site, String)> = ids
            .iter()
            .filter_map(|id| self.profile.sites.get(id.0 as usize))
            .map(|site| (site, self.process(site)))
            .collect();
        let processes = sites.iter().map(|(_, process)| process.chars().count());
        let column = processes.max().unwrap_or(0).max(PROCESS_HEADING.len());
        lines.push(format!(
            "{HEADINGS}  {PROCESS_HEADING:column$}  allocated by"
        ));
        for (site, process) in sites {
            lines.push(self.row(site, &format!("{process:column$}"), width));
        }
    }

    fn head(&self) -> Vec<String> {
        let Profile {
            info,
            totals,
            quality,
            ..
        } = self.profile;
        let lost: Vec<_> = quality
            .lost
            .iter()
            .filter(|&(_, &count)| count > 0)
            .map(|(reason, &count)| format!("{} {}", text::count(count), text::escape(reason)))
            .collect();
        vec![
            format!(
                // The target comes last, so that a long command does not hide the rest.
                "heaptrace, {}, {}{}, by {}: {}",
                text::duration(self.profile.duration_ns),
                if info.is_partial() {
                    format!("{}, ", info.chosen())
                } else {
                    String::new()
                },
                match self
                    .profile
                    .processes
                    .iter()
                    .filter(|it| !it.is_vacant())
                    .count()
                {
                    1 => "1 process".to_owned(),
                    n => format!("{} processes", text::count(n as u64)),
                },
                self.metric.title(),
                text::escape(&info.target)
            ),
            format!(
                "live {}{} in {} blocks{}, peak {}, total {}{} in {} blocks, lost {}",
                text::bytes(totals.live_bytes),
                text::plus_minus(totals.errors.live_bytes, text::bytes),
                text::count(totals.live_allocations),
                self.duty_cycle(),
                text::bytes(totals.peak_live_bytes),
                text::bytes(totals.allocated_bytes),
                text::plus_minus(totals.errors.allocated_bytes, text::bytes),
                text::count(totals.allocations),
                if lost.is_empty() {
                    "nothing".to_owned()
                } else {
                    lost.join(", ")
                }
            ),
            String::new(),
        ]
    }

    /// The uncertain memory, and the number of processes that are paused at times; empty if there is none.
    fn duty_cycle(&self) -> String {
        let totals = &self.profile.totals;
        let is_paused = |it: &&Process| it.duty_cycle.is_some() && !it.ended;
        match self.profile.processes.iter().filter(is_paused).count() {
            0 if totals.uncertain_allocations == 0 => String::new(),
            paused => format!(
                " (perhaps {} more in {}; {paused} paused at times)",
                text::bytes(totals.uncertain_bytes),
                text::count(totals.uncertain_allocations),
            ),
        }
    }

    /// The process of a site, for its column.
    fn process(&self, site: &Site) -> String {
        self.profile
            .processes
            .get(site.process.0 as usize)
            .map_or_else(String::new, |process| {
                let pid = format!("[{}]", process.pid);
                let room = PROCESS.saturating_sub(pid.len());
                shortened(&text::escape(&process.command), room) + &pid
            })
    }

    fn row(&self, site: &Site, process: &str, width: Option<usize>) -> String {
        let mut line = format!("{}  {process}  ", numbers(&site.totals));
        let room = width.map(|width| width.saturating_sub(line.chars().count()));
        let names = self
            .profile
            .stacks
            .get(site.stack.0 as usize)
            .map_or_else(Vec::new, |stack| self.functions(stack));
        line.push_str(&joined(&names, room));
        line
    }

    /// The names of the innermost functions of a stack, including inlined ones.
    fn functions(&self, stack: &Stack) -> Vec<String> {
        let mut names = Vec::with_capacity(FUNCTIONS);
        for &id in &stack.locations {
            let frames = self.symbols.frames(id);
            let named = frames.iter().filter_map(|frame| frame.function);
            for function in named {
                names.push(text::escape(self.symbols.text(function)).into_owned());
            }
            if frames.iter().all(|frame| frame.function.is_none())
                && let Some(location) = self.profile.locations.get(id.0 as usize)
            {
                names.push(self.unnamed(location.module, location.address));
            }
            if names.len() >= FUNCTIONS {
                names.truncate(FUNCTIONS);
                break;
            }
        }
        names
    }

    /// An address without a name, as its file and offset.
    fn unnamed(&self, module: Option<ModuleId>, address: u64) -> String {
        let path = module.and_then(|id| self.profile.modules.get(id.0 as usize));
        match path.map(|module| module.path.rsplit('/').next().unwrap_or_default()) {
            Some(file) => format!("[{}+{address:#x}]", text::escape(file)),
            None => format!("[{address:#x}]"),
        }
    }
}

fn numbers(totals: &Totals) -> String {
    format!(
        "{:>11}{} {:>11}  {:>11}  {:>12}",
        text::bytes(totals.live_bytes),
        // The value may be due to chance.
        if Metric::LiveBytes.is_significant(totals) {
            ' '
        } else {
            '?'
        },
        text::count(totals.live_allocations),
        text::bytes(totals.allocated_bytes),
        text::count(totals.allocations),
    )
}

/// The line of a group of sites.
fn group(by: Label, group: &Group, width: Option<usize>) -> String {
    let processes = text::count(group.processes);
    let line = format!("{}  {processes:>9}  ", numbers(&group.totals));
    let room = width.map_or(LONGEST_NAME, |it| it.saturating_sub(line.chars().count()));
    let name = text::escape(&group.name);
    line + &match by {
        Label::Function => output::shorten_function(&name, room),
        _ => shortened(&name, room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Completeness, Kind, Location, LocationId, Module, ProcessId, StackId};
    use crate::output::{Grouping, ReportInput, groups};
    use crate::profile::{Frame, RunInfo, StringId};

    fn profile(names: &[&str], command: &str) -> (Profile, Symbols) {
        let mut profile = Profile::new(RunInfo::exact("--pid 12"));
        profile.modules.push(Module {
            path: "/usr/lib/lib\x1bc.so".into(),
            ..Module::default()
        });
        profile.processes.push(Process {
            pid: 12,
            command: command.into(),
            ..Process::default()
        });
        let mut symbols = Symbols::default();
        for (index, name) in (0..).zip(names) {
            profile.locations.push(Location {
                module: Some(ModuleId(0)),
                address: 0x100 + u64::from(index),
            });
            symbols.strings.push((*name).to_owned());
            symbols.frames.push(if name.is_empty() {
                Vec::new()
            } else {
                vec![Frame {
                    function: Some(StringId(index)),
                    file: None,
                    line: 0,
                    inlined: false,
                }]
            });
        }
        profile.stacks.push(Stack {
            locations: (0..names.len() as u32).map(LocationId).collect(),
            completeness: Completeness::Complete,
        });
        (profile, symbols)
    }

    fn site(profile: &mut Profile, live_bytes: u64, allocations: u64) {
        profile.sites.push(Site {
            process: ProcessId(0),
            stack: StackId(0),
            thread: None,
            kind: Kind::Heap,
            totals: Totals {
                live_bytes,
                allocations,
                ..Totals::default()
            },
        });
    }

    fn lines(profile: &Profile, symbols: &Symbols, width: Option<usize>) -> Vec<String> {
        Table {
            profile,
            symbols,
            rows: Rows::Sites(&ranked(profile, Metric::LiveBytes, 10)),
            metric: Metric::LiveBytes,
        }
        .lines(width)
    }

    /// Check that the ranking selects and sorts the largest sites, keeps equal ones in order, and drops
    /// zeros.
    #[test]
    fn ranking_sorts_the_largest() {
        let (mut profile, _) = profile(&["a"], "x");
        for (live, allocations) in [(5, 1), (9, 1), (0, 7), (9, 1), (7, 1)] {
            site(&mut profile, live, allocations);
        }
        let top = |metric, most| ranked(&profile, metric, most);
        assert_eq!(top(Metric::LiveBytes, 3), [1, 3, 4].map(SiteId));
        assert_eq!(top(Metric::LiveBytes, 10), [1, 3, 4, 0].map(SiteId));
        assert_eq!(top(Metric::TotalAllocations, 1), [SiteId(2)]);
        assert_eq!(top(Metric::PeakBytes, 10), []);
        assert_eq!(top(Metric::LiveBytes, 0), []);
    }

    /// Check that a line shows counters, process, and the innermost three functions.
    #[test]
    fn row_shows_a_site() {
        let (mut profile, symbols) = profile(&["parse", "", "run", "main"], "server");
        site(&mut profile, 2048, 1234);
        let lines = lines(&profile, &symbols, None);
        assert_eq!(lines.len(), Table::HEAD_LINES + 1);
        assert_eq!(
            lines[Table::HEAD_LINES - 1..],
            [
                " live bytes  live blocks  total bytes  total blocks  process     allocated by",
                "    2.0 KiB            0          0 B         1,234  server[12]  \
                 parse ← [lib\\x1bc.so+0x101] ← run",
            ]
        );
    }

    /// Check that the line of a group shows its totals, its number of processes, and an escaped name.
    #[test]
    fn row_shows_a_group() {
        let (mut profile, symbols) = profile(&["parse", "main"], "ser\x1bver");
        profile.processes.push(Process {
            pid: 13,
            ..profile.processes[0].clone()
        });
        site(&mut profile, 2048, 3);
        site(&mut profile, 1024, 4);
        profile.sites[1].process = ProcessId(1);
        for (by, line) in [
            (
                Label::Process,
                "3.0 KiB            0          0 B             7          2  ser\\x1bver",
            ),
            (
                Label::Function,
                "3.0 KiB            0          0 B             7          2  parse",
            ),
        ] {
            let grouping = Grouping {
                by,
                metric: Metric::LiveBytes,
                cumulative: false,
                top: Some(5),
            };
            let (found, _) = groups(&ReportInput::new(&profile, &symbols), grouping);
            let table = Table {
                profile: &profile,
                symbols: &symbols,
                rows: Rows::Groups(by, &found),
                metric: Metric::LiveBytes,
            };
            let lines = table.lines(None);
            assert!(lines[Table::HEAD_LINES - 1].ends_with(&format!("  processes  {}", by.name())));
            assert_eq!(lines[Table::HEAD_LINES..], [format!("    {line}")]);
            assert!(
                table
                    .lines(Some(60))
                    .iter()
                    .all(|it| it.chars().count() <= 60)
            );
        }
    }

    /// Check that no line exceeds the width, and that long names share the space that short ones leave.
    #[test]
    fn width_is_respected() {
        let long = "a_name_without_anything_to_leave_out".repeat(9);
        let (mut profile, symbols) = profile(&[&long, "größe", &long], "fifteen-letters");
        site(&mut profile, u64::MAX, u64::MAX);
        for width in 0..300 {
            for line in lines(&profile, &symbols, Some(width)) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        let wide = lines(&profile, &symbols, Some(160));
        assert!(
            wide[Table::HEAD_LINES].contains("größe"),
            "a short name is kept whole"
        );
        assert_eq!(wide[Table::HEAD_LINES].matches('…').count(), 2);
        let narrow = lines(&profile, &symbols, Some(100));
        assert!(
            !narrow[Table::HEAD_LINES].contains('←'),
            "one long name and no stubs"
        );
    }

    /// Check that names of functions and processes can't send control characters to the terminal.
    #[test]
    fn hostile_names_are_escaped() {
        let (mut profile, symbols) = profile(&["a\x1b[2J\nb", "c\u{202e}d"], "x\x1b]0;hi\x07");
        profile.info.target = "\x1b[31m".into();
        profile.quality.lost.insert("\x1b[5m".into(), 3);
        site(&mut profile, 1, 1);
        for line in lines(&profile, &symbols, None) {
            assert!(
                !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{line:?}"
            );
        }
    }

    /// Check that only losses that happened are shown, with their counts.
    #[test]
    fn losses_are_shown() {
        let (mut profile, symbols) = profile(&["a"], "x");
        assert!(lines(&profile, &symbols, None)[1].ends_with("lost nothing"));
        profile.quality.lost.insert("ring full".into(), 1200);
        profile.quality.lost.insert("map full".into(), 0);
        assert!(lines(&profile, &symbols, None)[1].ends_with("lost 1,200 ring full"));
    }
}
