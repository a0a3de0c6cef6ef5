//! Lists the probes of a file in the order in which they have to be attached.
//!
//! Stage: probes. Plain values; must not attach anything.

use std::collections::BTreeSet;

use heaptrace_common::cookie;
use heaptrace_common::hints::way;

use super::allocators::{Allocator, Hook, OnReturn, RET_PROGRAM, c_library, other_libraries};
use super::fast::code::Probe;
use crate::config::{Probes as ProbeKind, RunConfig, Target};
use crate::kernel::next_programs::{BLOCK_PROGRAM, WALK_PROGRAM};

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

/// The programs that almost every run needs: those on the functions of the C library, and the one that they end with. In a run for
/// all processes also those on other libraries: when a server that has one is met, it needs the processor that loads them.
pub fn usual_programs(config: &RunConfig) -> BTreeSet<&'static str> {
    let mut programs = programs_on(config.probes, c_library(config.mappings));
    if config.target == Target::All {
        programs.extend(programs_on(config.probes, other_libraries()));
    }
    if config.way() == way::EXACT {
        programs.insert(BLOCK_PROGRAM);
    }
    programs
}

fn programs_on(kind: ProbeKind, hooks: impl Iterator<Item = Hook>) -> BTreeSet<&'static str> {
    let of_one = |hook: Hook| {
        let at_ret = (hook.on_return == OnReturn::Instructions).then_some(RET_PROGRAM);
        [Some(hook.entry), hook.on_return.program(), at_ret]
    };
    match kind {
        ProbeKind::Full => hooks
            .flat_map(of_one)
            .flatten()
            .chain([WALK_PROGRAM])
            .collect(),
        ProbeKind::Empty => BTreeSet::new(),
    }
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

/// Lists the probes in the fast path's code.
pub(super) fn plan_fast_code(probes: &[Probe], kind: ProbeKind) -> Vec<Planned> {
    let of_one = |probe: &Probe| Planned {
        function: format!("{} in the fast path's code", probe.function),
        offset: probe.offset,
        is_return: false,
        program: match kind {
            ProbeKind::Full => probe.program,
            ProbeKind::Empty => "baseline_entry",
        },
        cookie: cookie::FAST_CODE,
    };
    probes.iter().map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the usual programs are the walk and those on the functions of the C library, and those on functions that
    /// map memory only if mappings are recorded.
    #[test]
    fn usual_programs_are_those_of_the_c_library() {
        let of = |mappings| programs_on(ProbeKind::Full, c_library(mappings));
        let without = [
            "aligned_entry",
            "alloc_return",
            "calloc_entry",
            "free_entry",
            "malloc_entry",
            "posix_memalign_entry",
            "realloc_entry",
            "walk_stack",
        ];
        assert_eq!(of(false), without.into());
        let mut with = BTreeSet::from(without);
        with.extend([
            "mapping_return",
            "mmap_entry",
            "mremap_entry",
            "munmap_entry",
        ]);
        assert_eq!(of(true), with);
        assert!(programs_on(ProbeKind::Empty, c_library(true)).is_empty());
        let of_others = programs_on(ProbeKind::Full, other_libraries());
        let further: Vec<_> = of_others.difference(&with).copied().collect();
        assert_eq!(further, ["alloc_at_ret", "new_entry", "resize_entry"]);
    }
}
