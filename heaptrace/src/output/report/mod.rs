//! The report for people: what leaks, how much, from where, and how far to believe it.
//!
//! Stage: output. Every string of a traced process is escaped before it is printed.

mod duty_cycle;
mod groups;
mod sampling;
mod stack;
mod style;
mod table;
mod totals;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use super::report_input::{ReportInput, process_label};
use super::{Grouping, Metric, OutputError};
use crate::join::{Kind, Site, Totals};
use crate::profile::RunEnd;
use crate::text::{bytes, count, duration, escape, plus_minus, share};
use style::Style;

/// Columns where the width is not known.
const DEFAULT_WIDTH: usize = 100;

/// Processes that the table shows at most.
const MAX_PROCESSES: usize = 20;

/// What a report is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportOptions {
    /// What sites are ranked by.
    pub metric: Metric,
    /// How many sites are shown.
    pub top: usize,
    /// Whether colours are used.
    pub color: bool,
    /// Columns of the terminal, if it is one.
    pub width: Option<usize>,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            metric: Metric::default(),
            top: 10,
            color: false,
            width: None,
        }
    }
}

/// Writes the whole report.
pub(super) fn write(
    findings: &ReportInput<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut report = Report::new(findings, options, out);
    report.header()?;
    report.not_ended()?;
    report.totals()?;
    report.sites()?;
    report.processes()?;
    report.sizes()?;
    report.rates()?;
    report.allocators()?;
    report.quality()?;
    Ok(())
}

/// Writes what changes while a run goes on: totals, the top sites, and what was lost, if anything.
pub fn write_summary(
    findings: &ReportInput<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(out);
    let mut report = Report::new(findings, options, &mut out);
    report.header()?;
    report.totals()?;
    report.lost_line()?;
    report.sites()?;
    out.flush()?;
    Ok(())
}

struct Report<'a, 'o> {
    findings: &'a ReportInput<'a>,
    options: &'a ReportOptions,
    style: Style,
    width: usize,
    out: &'o mut dyn Write,
}

impl<'a, 'o> Report<'a, 'o> {
    fn new(
        findings: &'a ReportInput<'a>,
        options: &'a ReportOptions,
        out: &'o mut dyn Write,
    ) -> Self {
        Self {
            findings,
            options,
            style: Style::new(options.color),
            width: options.width.unwrap_or(DEFAULT_WIDTH).clamp(40, 400),
            out,
        }
    }

    fn header(&mut self) -> io::Result<()> {
        let profile = self.findings.profile;
        let mode = profile.info.chosen();
        let kernel = escape(&profile.info.kernel);
        let target = format!("heaptrace: {}", escape(&profile.info.target));
        writeln!(
            self.out,
            "{} ({mode}, {}{}{kernel})",
            self.style.bold(&target),
            duration(profile.duration_ns),
            if kernel.is_empty() { "" } else { ", Linux " },
        )?;
        for warning in self.findings.warnings {
            let warning = format!("warning: {}", escape(warning));
            writeln!(self.out, "{}", self.style.warning(&warning))?;
        }
        if let Some(only) = self.findings.only() {
            writeln!(self.out, "{}", self.style.bold(&only))?;
        }
        writeln!(self.out)
    }

    /// Says so where a warning doesn't.
    fn not_ended(&mut self) -> io::Result<()> {
        let note = match self.findings.profile.end {
            RunEnd::CutOff => "not ended: what follows was true at the last update",
            RunEnd::WentOn => "a snapshot: the run went on",
            RunEnd::Orderly => return Ok(()),
        };
        if self.findings.warnings.is_empty() {
            writeln!(self.out, "{}\n", self.style.dim(note))?;
        }
        Ok(())
    }

    fn sites(&mut self) -> io::Result<()> {
        if let Some(grouping) = self.findings.grouping {
            let grouping = Grouping {
                top: Some(self.options.top),
                ..grouping
            };
            let width = self.options.width.map(|_| self.width);
            return groups::write(self.out, self.findings, grouping, width, self.style);
        }
        let metric = self.options.metric;
        let sites = self.findings.sites_by(metric);
        if sites.is_empty() {
            let heading = format!("No site has any {}", metric.title());
            writeln!(self.out, "{}\n", self.style.bold(&heading))?;
            return Ok(());
        }
        let shown = sites.len().min(self.options.top);
        let heading = format!(
            "Top {} of {} by {}",
            count(shown as u64),
            match sites.len() {
                1 => "1 site".to_owned(),
                n => format!("{} sites", count(n as u64)),
            },
            metric.title()
        );
        writeln!(self.out, "{}\n", self.style.bold(&heading))?;
        for (rank, (site, value)) in sites.into_iter().take(shown).enumerate() {
            self.site(rank + 1, site, value)?;
        }
        Ok(())
    }

    fn site(&mut self, rank: usize, site: &Site, value: u64) -> io::Result<()> {
        let metric = self.options.metric;
        let part = share(value, metric.of(&self.findings.profile.totals));
        let error = plus_minus(metric.error(&site.totals), |error| metric.format(error));
        let doubt = if metric.is_significant(&site.totals) {
            ""
        } else {
            ", not significant"
        };
        let value = format!("{}{error} ({part}{doubt})", metric.format(value));
        let process = match self.findings.process(site) {
            Some(process) if self.findings.profile.processes.len() > 1 => {
                format!("  in {}", process_label(process))
            }
            _ => String::new(),
        };
        let thread = self.findings.thread(site).map(escape);
        let thread = thread.map_or_else(String::new, |name| format!("  by thread {name}"));
        let kind = match site.kind {
            Kind::Heap => "",
            Kind::Mapped => "  mapped (mmap)",
        };
        writeln!(
            self.out,
            "{rank:>3}. {}  {}{kind}{process}{thread}",
            self.style.number(&value),
            site_totals(&site.totals)
        )?;
        for line in stack::lines(self.findings, site.stack, self.width, self.style) {
            writeln!(self.out, "     {line}")?;
        }
        writeln!(self.out)
    }

    fn processes(&mut self) -> io::Result<()> {
        let metric = self.options.metric;
        let mut processes: Vec<_> = self.findings.profile.processes.iter().collect();
        processes.sort_by_key(|process| std::cmp::Reverse(metric.of(&process.totals)));
        let is_partial = self.findings.profile.info.is_partial();
        let mut rows = vec![table::row([
            "PID",
            "COMMAND",
            "LIVE",
            "BLOCKS",
            "PEAK",
            "ALLOCATED",
            "ALLOCATIONS",
            "UNTRACKED FREES",
            "FAILED",
            "",
        ])];
        for process in processes.iter().take(MAX_PROCESSES) {
            let totals = &process.totals;
            rows.push(table::row([
                match process.merged {
                    0 => process.pid.to_string(),
                    _ => "-".to_owned(),
                },
                escape(&process.command).into_owned(),
                bytes(totals.live_bytes),
                count(totals.live_allocations),
                bytes(totals.peak_live_bytes),
                bytes(totals.allocated_bytes),
                count(totals.allocations),
                if is_partial {
                    "-".to_owned()
                } else {
                    count(process.untracked_frees)
                },
                count(process.failed_allocations),
                match (process.merged, process.ended) {
                    (0, false) => String::new(),
                    (0, true) => "ended".to_owned(),
                    (many, _) => format!("{} ended", count(many)),
                },
            ]));
        }
        writeln!(self.out, "{}\n", self.style.bold("Processes"))?;
        table::write(self.out, &rows, &[1, 9], self.style)?;
        if processes.len() > MAX_PROCESSES {
            let rest = count((processes.len() - MAX_PROCESSES) as u64);
            writeln!(self.out, "  and {rest} more")?;
        }
        writeln!(self.out)
    }

    /// The allocators, each once with the processes that it is hooked in.
    fn allocators(&mut self) -> io::Result<()> {
        let mut hooked = BTreeMap::<_, Vec<u32>>::new();
        let mut without = Vec::new();
        let processes = &self.findings.profile.processes;
        for process in processes.iter().filter(|process| process.merged == 0) {
            if process.allocators.is_empty() {
                without.push(process.pid);
            }
            for allocator in &process.allocators {
                hooked.entry(allocator).or_default().push(process.pid);
            }
        }
        writeln!(self.out, "{}\n", self.style.bold("Allocators"))?;
        for (allocator, pids) in hooked {
            writeln!(
                self.out,
                "  {} {} {}",
                escape(&allocator.kind),
                self.style.dim(&escape(&allocator.path)),
                self.style.dim(&format!("in {}", pid_list(&pids))),
            )?;
            let hooks = allocator.hooks.join(", ");
            writeln!(self.out, "    {}", escape(&hooks))?;
        }
        if !without.is_empty() {
            writeln!(self.out, "  none found in {}", pid_list(&without))?;
        }
        writeln!(self.out)
    }

    fn quality(&mut self) -> io::Result<()> {
        let quality = &self.findings.profile.quality;
        let info = &self.findings.profile.info;
        let (is_partial, is_sampled) = (info.is_partial(), info.mode.is_sampled());
        let nothing_lost = quality.lost.values().all(|count| *count == 0);
        let heading = match self.findings.filters {
            [] => "Quality",
            _ => "Quality (of the whole run)",
        };
        writeln!(self.out, "{}\n", self.style.bold(heading))?;
        writeln!(
            self.out,
            "  {:<20}{} seen, {}",
            if is_sampled { "samples" } else { "allocations" },
            count(quality.samples),
            if nothing_lost {
                "nothing lost"
            } else {
                "SOME LOST: the numbers above are incomplete"
            }
        )?;
        for (what, files) in [
            ("not probed", &quality.unprobed),
            ("not unwound", &quality.without_tables),
            ("not readable", &quality.unreadable),
        ] {
            for words in files {
                let line = format!("  {what:<20}{}", escape(words));
                writeln!(self.out, "{}", self.style.warning(&line))?;
            }
        }
        self.duty_cycle()?;
        for (reason, lost) in quality.lost.iter().filter(|(_, lost)| **lost > 0) {
            let line = format!("  {:<20}{} ({})", "lost", count(*lost), escape(reason));
            writeln!(self.out, "{}", self.style.warning(&line))?;
        }
        let zero = |table: &BTreeMap<String, u64>| {
            let names = table.iter().filter(|(_, count)| **count == 0);
            let names: Vec<_> = names.map(|(name, _)| escape(name)).collect();
            names.join(", ")
        };
        for (kind, noted) in quality.noted.iter().filter(|(_, noted)| **noted > 0) {
            writeln!(
                self.out,
                "  {:<20}{} ({})",
                "noted",
                count(*noted),
                escape(kind)
            )?;
        }
        for (title, names) in [
            ("lost 0", zero(&quality.lost)),
            ("noted 0", zero(&quality.noted)),
        ] {
            if !names.is_empty() {
                writeln!(
                    self.out,
                    "  {}",
                    self.style.dim(&format!("{title:<20}{names}"))
                )?;
            }
        }
        let all = quality
            .stacks_complete
            .saturating_add(quality.stacks_truncated)
            .saturating_add(quality.stacks_broken);
        let lines = [
            (
                "untracked frees",
                if is_partial {
                    "unknown: most blocks are not recorded on purpose".to_owned()
                } else {
                    format!(
                        "{} (of blocks from before tracing, mostly)",
                        count(quality.untracked_frees)
                    )
                },
            ),
            (
                "failed allocations",
                format!(
                    "{}{}",
                    if is_partial { "at least " } else { "" },
                    count(quality.failed_allocations)
                ),
            ),
            (
                "stacks",
                format!(
                    "{} complete ({}), {} deeper than the limit, {} broken off",
                    count(quality.stacks_complete),
                    share(quality.stacks_complete, all),
                    count(quality.stacks_truncated),
                    count(quality.stacks_broken)
                ),
            ),
            (
                "addresses",
                format!("{} without a name", count(self.findings.unsymbolized())),
            ),
            (
                "kernel memory",
                format!("{} in maps", bytes(quality.kernel_map_bytes)),
            ),
            (
                "agent",
                format!(
                    "{} of processor time, {} of memory at most",
                    duration(quality.agent_cpu_ns),
                    bytes(quality.agent_peak_bytes)
                ),
            ),
        ];
        for (name, value) in lines {
            writeln!(self.out, "  {name:<20}{value}")?;
        }
        Ok(())
    }

    fn lost_line(&mut self) -> io::Result<()> {
        let quality = &self.findings.profile.quality;
        let lost: Vec<String> = quality
            .lost
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, lost)| format!("{} {}", count(*lost), escape(reason)))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let line = format!("lost: {}", lost.join(", "));
        writeln!(self.out, "{}\n", self.style.warning(&line))
    }
}

fn site_totals(totals: &Totals) -> String {
    format!(
        "live {} in {}{}, allocated {} in {}",
        bytes(totals.live_bytes),
        count(totals.live_allocations),
        duty_cycle::perhaps(totals),
        bytes(totals.allocated_bytes),
        count(totals.allocations),
    )
}

fn pid_list(pids: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut list = pids
        .iter()
        .take(SHOWN)
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if pids.len() > SHOWN {
        list.push_str(&format!(" and {} more", pids.len() - SHOWN));
    }
    list
}
