//! Programs that do nothing, at the same probe locations: the lowest possible cost of tracing.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};

/// Replaces every entry program.
#[uprobe]
pub fn baseline_entry(_: ProbeContext) -> u32 {
    0
}

/// Replaces every return program.
#[uretprobe]
pub fn baseline_return(_: RetProbeContext) -> u32 {
    0
}
