//! Processes that end before the agent has reached them, in a run that reaches processes one by one.
//!
//! They cost nothing else: no probe hit, and no event for the agent, however many there are.

use aya_ebpf::{EbpfContext, bindings::BPF_NOEXIST, helpers::generated::bpf_get_current_cgroup_id};
use heaptrace_common::{
    counters::Counter,
    wire::{ShortLived, ShortLivedKey},
};

use crate::{
    caller::is_recorded,
    counters::{add, add_one, count_and_warn},
    globals::ONE_BY_ONE,
    kernel,
    maps::{REACHED, SHORT_LIVED},
    process_filter,
};

/// Counts the current process, which ends now, unless it was reached.
#[inline(always)]
pub fn end(ctx: &impl EbpfContext, tgid: u32) {
    // Threads of the kernel have no memory.
    if ONE_BY_ONE.load() == 0
        || REACHED.remove(tgid).is_ok()
        || !is_recorded()
        || kernel::peak_pages() == 0
        || !process_filter::is_selected(tgid)
    {
        return;
    }
    count(ctx);
}

#[inline(never)]
fn count(ctx: &impl EbpfContext) {
    let key = ShortLivedKey {
        comm: kernel::process_name(),
        // SAFETY: takes no arguments.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
    };
    let lived_ns = kernel::boot_time().wrapping_sub(kernel::start_time());
    let first = ShortLived {
        processes: 1,
        lived_ns,
    };
    // Another process of the name may end at the same time, and be the first.
    if add_to(&key, lived_ns)
        || SHORT_LIVED
            .insert(key, first, u64::from(BPF_NOEXIST))
            .is_ok()
        || add_to(&key, lived_ns)
    {
        return;
    }
    count_and_warn!(
        ctx,
        Counter::ShortLivedUnnamed,
        "no room for the names of processes: {} not named"
    );
}

#[inline(always)]
fn add_to(key: &ShortLivedKey, lived_ns: u64) -> bool {
    let Some(entry) = SHORT_LIVED.get_ptr_mut(key) else {
        return false;
    };
    // SAFETY: the pointer comes from a lookup in this program; the fields are aligned. Entries are never removed.
    unsafe {
        add_one(&raw mut (*entry).processes);
        add(&raw mut (*entry).lived_ns, lived_ns);
    }
    true
}
