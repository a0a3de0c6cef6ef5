//! The table of the largest allocation sites, as lines of text.
//!
//! Stage: view. A pure function from a profile and its names to lines of a given width, without control
//! characters. `head.rs` makes the lines above the rows. Must not know terminals.

use std::cmp::Reverse;

use super::columns::Columns;
use super::head;
use super::leaks;
use super::line::{Line, Tone};
use super::names::{LONGEST_NAME, joined, shortened};
use crate::join::{Process, Site, SiteId, Totals};
use crate::output::{Covered, Group, Label, Leaks, Metric, ReportInput};
use crate::profile::Profile;
use crate::text;

/// The largest number of functions of a stack in one line.
const FUNCTIONS: usize = 3;
/// The largest width of the process column: the kernel's 15 characters of a name, and a pid.
const PROCESS: usize = 20;
/// The same on a narrow terminal.
const NARROW_PROCESS: usize = 15;
/// A terminal that is less wide is narrow.
const WIDE: usize = 110;

/// The input of a table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The profile so far, with the names of the ranked sites.
    pub input: ReportInput<'a>,
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
    /// One line for each site that grows, at most so many; `None` if there are too many sites to follow.
    Leaks(Option<&'a Leaks>, usize),
}

/// The sites with the largest values, largest first, without those that are zero for certain.
pub fn ranked(profile: &Profile, metric: Metric, most: usize) -> Vec<SiteId> {
    let mut sites: Vec<(u64, u32)> = (0_u32..)
        .zip(&profile.sites)
        .map(|(index, site)| {
            // What ended processes may not have freed is not live.
            let value = match has_ended(profile, site) {
                true => metric.of(&site.totals),
                false => metric.rank(&site.totals),
            };
            (value, index)
        })
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
    /// Fewest lines above the rows: the head, an empty line and the headings.
    pub const LEAST_HEAD_LINES: usize = 4;

    /// The lines, each at most `width` characters wide if there is a width.
    pub fn lines(&self, width: Option<usize>) -> Vec<Line> {
        let mut lines = head::lines(&self.input, width);
        lines.push(Line::default());
        match self.rows {
            Rows::Sites(ids) => self.sites(ids, width, &mut lines),
            Rows::Groups(by, groups) => self.groups(by, groups, width, &mut lines),
            Rows::Leaks(found, most) => {
                lines.extend(leaks::lines(&self.input, found, most, width));
            }
        }
        if let Some(width) = width {
            for line in &mut lines {
                line.text = shortened(&line.text, width);
            }
        }
        lines
    }

    fn sites(&self, ids: &[SiteId], width: Option<usize>, lines: &mut Vec<Line>) {
        let profile = self.input.profile;
        let sites = ids.iter().filter_map(|id| profile.sites.get(id.0 as usize));
        let sites: Vec<(&Site, Option<&Process>)> = sites
            .map(|site| (site, profile.processes.get(site.process.0 as usize)))
            .collect();
        let most = match width {
            Some(width) if width < WIDE => NARROW_PROCESS,
            _ => PROCESS,
        };
        let name = |process: Option<&Process>| match process {
            Some(process) if self.has_many_processes() => process_name(process, most),
            _ => String::new(),
        };
        let names: Vec<String> = sites.iter().map(|(_, process)| name(*process)).collect();
        let longest = names.iter().map(|it| it.chars().count()).max().unwrap_or(0);
        let heading = if self.has_many_processes() {
            "process"
        } else {
            ""
        };
        let column = longest.max(heading.len());
        let columns = Columns::new(profile, self.metric, width, column);
        // Without names, the gaps on both sides of the column become one.
        let beside = |name: &str| match column {
            0 => String::new(),
            _ => format!("  {name:column$}"),
        };
        let headings = format!("{}{}  allocated by", columns.headings(), beside(heading));
        lines.push(Line::new(Tone::Faint, headings));
        for ((site, process), name) in sites.iter().zip(&names) {
            let covered = process.and_then(|it| covered(it, profile.duration_ns));
            let totals = Totals {
                uncertain_bytes: match has_ended(profile, site) {
                    true => 0,
                    false => site.totals.uncertain_bytes,
                },
                ..site.totals
            };
            let cells = columns.cells(&totals, covered);
            let mut line = format!("{cells}{}  ", beside(name));
            let room = width.map(|width| width.saturating_sub(line.chars().count()));
            let names = self.input.user_functions(site.stack, FUNCTIONS);
            line.push_str(&joined(&names, room));
            lines.push(line.into());
        }
        self.none(sites.is_empty(), lines);
    }

    fn groups(&self, by: Label, groups: &[Group], width: Option<usize>, lines: &mut Vec<Line>) {
        let has_processes = self.has_many_processes() && by != Label::Pid;
        let beside = |words: &str| match has_processes {
            true => format!("  {words:>9}"),
            false => String::new(),
        };
        let other = beside("").len();
        let columns = Columns::new(self.input.profile, self.metric, width, other);
        let headings = format!(
            "{}{}  {}",
            columns.headings(),
            beside("processes"),
            by.name()
        );
        lines.push(Line::new(Tone::Faint, headings));
        for group in groups {
            let cells = columns.cells(&group.totals, group.covered);
            let line = format!("{cells}{}  ", beside(&text::count(group.processes)));
            let room = width.map_or(LONGEST_NAME, |it| it.saturating_sub(line.chars().count()));
            let title = group.title();
            let name = group.source_title(room).unwrap_or_else(|| match by {
                Label::Function => {
                    let name = self.input.for_people(&title);
                    self.input.fitted(&text::escape(&name), room)
                }
                Label::Type | Label::Element => self.input.fitted_type(&text::escape(&title), room),
                _ => shortened(&text::escape(&title), room),
            });
            lines.push(Line::from(line + &name));
        }
        self.none(groups.is_empty(), lines);
    }

    /// Says that there are no rows.
    fn none(&self, are_none: bool, lines: &mut Vec<Line>) {
        if are_none {
            let words = format!("  no {} so far", self.metric.title());
            lines.push(Line::new(Tone::Faint, words));
        }
    }

    /// Whether the rows must name their processes.
    fn has_many_processes(&self) -> bool {
        let processes = self.input.profile.processes.iter();
        processes.filter(|it| !it.is_vacant()).count() > 1
    }
}

fn process_name(process: &Process, width: usize) -> String {
    let pid = match process.merged {
        0 => format!("[{}]", process.pid),
        many => format!("[{} ended]", text::count(many)),
    };
    let room = width.saturating_sub(pid.len());
    shortened(&text::escape(&process.command), room) + &pid
}

/// Whether the process of a site has ended.
fn has_ended(profile: &Profile, site: &Site) -> bool {
    let process = profile.processes.get(site.process.0 as usize);
    process.is_some_and(|process| process.ended)
}

/// The time in which a process was probed, if it was paused at times.
fn covered(process: &Process, duration_ns: u64) -> Option<Covered> {
    let duty_cycle = process.duty_cycle.filter(|_| !process.ended)?;
    let since_ns = duration_ns.saturating_sub(duty_cycle.from_ns);
    Some(Covered {
        probed_ns: since_ns.saturating_sub(duty_cycle.unprobed_ns),
        since_ns,
    })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
