//! The probes of a file, in the order in which they have to be attached.
//!
//! Stage: probes. Plain values; attaches nothing.

use heaptrace_common::cookie;

use super::allocators::{Allocator, OnReturn, RET_PROGRAM};
use crate::config::Probes as ProbeKind;

/// A probe that is to be attached.
pub(super) struct Planned {
    /// Names of the function.
    pub(super) function: String,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Whether it is on the return of what is called there.
    pub(super) is_return: bool,
    /// Name of the kernel program.
    pub(super) program: &'static str,
    /// What the program gets to know of the place.
    pub(super) cookie: u64,
}

/// What is to be attached to an allocator's file.
pub(super) fn plan(allocator: &Allocator, kind: ProbeKind) -> Vec<Planned> {
    let full = |program| match kind {
        ProbeKind::Full => program,
        ProbeKind::Empty => "baseline_entry",
    };
    // Returns first: an entry whose return is not probed would leave its call pending.
    let mut planned: Vec<Planned> = allocator
        .rets
        .iter()
        .map(|offset| Planned {
            function: format!("the return at {offset:#x}"),
            offset: *offset,
            is_return: false,
            program: full(RET_PROGRAM),
            cookie: 0,
        })
        .collect();
    // Frees before allocations: where a run goes on meanwhile, a free too many is none, but a free that
    // was missed is a leak.
    let mut entries = Vec::new();
    for place in &allocator.places {
        let placement = &place.placed;
        let probe = |program, is_return| Planned {
            function: place.names.join("/"),
            offset: place.offset + placement.offset,
            is_return,
            program,
            cookie: cookie::pack(
                place.reach.0.saturating_add(placement.offset),
                place.reach.1.saturating_sub(placement.offset),
                placement.registers,
            ),
        };
        let hook = place.hook;
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
