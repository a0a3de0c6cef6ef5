//! The sites of a report, the largest first, each with its stack.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::{duty_cycle, groups, stack};
use crate::join::{Kind, Site, Totals};
use crate::output::grouping::Grouping;
use crate::output::report_input::process_label;
use crate::text::{bytes, count, escape, plus_minus, share};

/// Writes the sites, or their groups if grouping is requested.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    if let Some(grouping) = page.input.grouping {
        let grouping = Grouping {
            top: Some(page.options.top),
            ..grouping
        };
        let width = page.options.width.map(|_| page.width);
        return groups::write(page.out, page.input, grouping, width, page.style);
    }
    let metric = page.options.metric;
    let sites = page.input.sites_by(metric);
    if sites.is_empty() {
        let heading = format!("No site has any {}", metric.title());
        writeln!(page.out, "{}\n", page.style.bold(&heading))?;
        return Ok(());
    }
    let shown = sites.len().min(page.options.top);
    let heading = format!(
        "Top {} of {} by {}",
        count(shown as u64),
        match sites.len() {
            1 => "1 site".to_owned(),
            n => format!("{} sites", count(n as u64)),
        },
        metric.title()
    );
    writeln!(page.out, "{}\n", page.style.bold(&heading))?;
    for (rank, (site, value)) in sites.into_iter().take(shown).enumerate() {
        write_site(page, rank + 1, site, value)?;
    }
    Ok(())
}

fn write_site(page: &mut Page<'_, '_>, rank: usize, site: &Site, value: u64) -> io::Result<()> {
    let metric = page.options.metric;
    let part = share(value, metric.of(&page.input.profile.totals));
    let error = plus_minus(metric.error(&site.totals), |error| metric.format(error));
    let doubt = if metric.is_significant(&site.totals) {
        ""
    } else {
        ", not significant"
    };
    let value = format!("{}{error} ({part}{doubt})", metric.format(value));
    let process = match page.input.process(site) {
        Some(process) if page.input.profile.processes.len() > 1 => {
            format!("  in {}", process_label(process))
        }
        _ => String::new(),
    };
    let thread = page.input.thread(site).map(escape);
    let thread = thread.map_or_else(String::new, |name| format!("  by thread {name}"));
    let kind = match site.kind {
        Kind::Heap => "",
        Kind::Mapped => "  mapped (mmap)",
    };
    writeln!(
        page.out,
        "{rank:>3}. {}  {}{kind}{process}{thread}",
        page.style.number(&value),
        site_totals(&site.totals)
    )?;
    for line in stack::lines(page.input, site.stack, page.width, page.style) {
        writeln!(page.out, "     {line}")?;
    }
    writeln!(page.out)
}

fn site_totals(totals: &Totals) -> String {
    format!(
        "live {} in {}{}, allocated {} in {}",
        bytes(totals.live_bytes),
        count(totals.live_allocations),
        duty_cycle::uncertain_suffix(totals),
        bytes(totals.allocated_bytes),
        count(totals.allocations),
    )
}
