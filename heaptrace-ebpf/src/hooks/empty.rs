//! Programs that do nothing, at the same places: the floor of what tracing can cost.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};

/// In place of every entry program.
#[uprobe]
pub fn empty_entry(_: ProbeContext) -> u32 {
    0
}

/// In place of the return program.
#[uretprobe]
pub fn empty_return(_: RetProbeContext) -> u32 {
    0
}
