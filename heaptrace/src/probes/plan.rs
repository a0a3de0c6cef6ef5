//! Lists the probes of a file in the order in which they have to be attached.
//!
//! Stage: probes. Plain values; must not attach anything.

use heaptrace_common::cookie;

use super::allocators::{Allocator, OnReturn, RET_PROGRAM};
use crate::config::Probes as ProbeKind;

/// A probe that will be attached.
pub(super) struct Planned {
    /// Names of the function, for messages.
    pub(super) function: String,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Whether it is a return probe.
    pub(super) is_return: bool,
    /// Name of the kernel program.
    pub(super) program: &'static str,
    /// The cookie, which describes the probe location to the program.
    pub(super) cookie: u64,
}

/// Lists the probes of an allocator's file.
pub(super) fn plan(allocator: &Allocator, kind: ProbeKind) -> Vec<Planned> {
    let full = |program| match kind {
        ProbeKind::Full => program,
        ProbeKind::Empty => "baseline_entry",
    };
    // Returns first: an entry whose return is not probed would leave its call pending.
    let mut planned: Vec<Planned> = allocator
        .returns
        .iter()
        .map(|offset| Planned {
            function: format!("the return instruction at {offset:#x}"),
            offset: *offset,
            is_return: false,
            program: full(RET_PROGRAM),
            cookie: 0,
        })
        .collect();
    // Frees before allocations: if events are recorded meanwhile, a free without its allocation does no harm,
    // but a missed free looks like a leak.
    let mut entries = Vec::new();
    for function in &allocator.functions {
        let placement = &function.placed;
        let probe = |program, is_return| Planned {
            function: function.names.join("/"),
            offset: function.offset + placement.offset,
            is_return,
            program,
            cookie: cookie::pack(
                function.reach.0.saturating_add(placement.offset),
                function.reach.1.saturating_sub(placement.offset),
                placement.registers,
            ),
        };
        let hook = function.hook;
        if let Some(program) = hook.on_return.program() {
            let program = match kind {
                ProbeKind::Full => program,
                ProbeKind::Empty => "baseline_return",
            };
            planned.push(probe(program, true));
        }
        let allocates = hook.on_return != OnReturn::Ignored && hook.entry != "munmap_entry";
        entries.push((allocates, probe(full(hook.entry), false)));
    }
    entries.sort_by_key(|(allocates, _)| *allocates);
    planned.extend(entries.into_iter().map(|(_, probe)| probe));
    planned
}
