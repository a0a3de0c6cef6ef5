//! The parts of which the page of leaks is made: headings, sentences, and places in code.
//!
//! Stage: output. Must not know what is shown.

use std::io;

use super::page::Page;
use super::{paragraph, site_type, stack};
use crate::join::{Kind, ProcessId, StackId};
use crate::output::report_input::process_label;
use crate::text::counted;

/// The lines below a title: facts, the process if there are several, and the stack.
pub(super) fn place(
    page: &mut Page<'_, '_>,
    facts: &str,
    process: ProcessId,
    kind: Kind,
    id: StackId,
) -> io::Result<()> {
    let mut facts = facts.to_owned();
    if kind == Kind::Mapped {
        facts.push_str("; mapped (mmap)");
    }
    let processes = &page.input.profile.processes;
    if let Some(process) = processes
        .get(process.0 as usize)
        .filter(|_| processes.len() > 1)
    {
        facts.push_str(&format!("; in {}", process_label(process)));
    }
    for line in paragraph::lines(&" ".repeat(stack::INDENT), &facts, page.width) {
        writeln!(page.out, "{line}")?;
    }
    let room = page.width.saturating_sub(stack::INDENT);
    if let Some(words) = site_type::of_stack(page.input, id, room) {
        writeln!(page.out, "     {words}")?;
    }
    stack::write_frames(page, id)
}

pub(super) fn heading(page: &mut Page<'_, '_>, words: &str) -> io::Result<()> {
    writeln!(page.out, "{}\n", page.style.bold(words))
}

pub(super) fn says(page: &mut Page<'_, '_>, words: &str) -> io::Result<()> {
    for line in paragraph::lines("", words, page.width) {
        writeln!(page.out, "{}", page.style.dim(&line))?;
    }
    writeln!(page.out)
}

/// Says how many entries of a list are not shown.
pub(super) fn more(page: &mut Page<'_, '_>, all: usize) -> io::Result<()> {
    let left = all.saturating_sub(page.options.top);
    if left > 0 {
        let words = format!("{} not shown; --top {all} shows all", sites(left));
        says(page, &words)?;
    }
    Ok(())
}

pub(super) fn sites(number: usize) -> String {
    counted(number as u64, "site", "sites")
}
