//! The list of allocators.
//!
//! Stage: output.

use std::collections::BTreeMap;
use std::io;

use super::page::Page;
use crate::text::escape;

/// Writes each allocator once, with the processes in which it is probed.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let mut hooked = BTreeMap::<_, Vec<u32>>::new();
    let mut without = Vec::new();
    let processes = &page.input.profile.processes;
    for process in processes.iter().filter(|process| process.merged == 0) {
        if process.allocators.is_empty() {
            without.push(process.pid);
        }
        for allocator in &process.allocators {
            hooked.entry(allocator).or_default().push(process.pid);
        }
    }
    writeln!(page.out, "{}\n", page.style.bold("Allocators"))?;
    for (allocator, pids) in hooked {
        writeln!(
            page.out,
            "  {} {} {}",
            escape(&allocator.kind),
            page.style.dim(&escape(&allocator.path)),
            page.style.dim(&format!("in {}", pid_list(&pids))),
        )?;
        let hooks = allocator.hooks.join(", ");
        writeln!(page.out, "    {}", escape(&hooks))?;
    }
    if !without.is_empty() {
        writeln!(page.out, "  none found in {}", pid_list(&without))?;
    }
    writeln!(page.out)
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
