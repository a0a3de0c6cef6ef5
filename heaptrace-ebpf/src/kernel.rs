//! What the running kernel tells: the clock, and members of its structs.
//!
//! The offsets of the members are globals, which the agent reads from the kernel's BTF.

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task, bpf_ktime_get_boot_ns, bpf_ktime_get_ns},
};
use heaptrace_common::limits::COMM_BYTES;

use crate::globals::{
    SIGNAL_EXIT_CODE, SIGNAL_MAX_RESIDENT, SIGNAL_OOM_MM, TASK_COMM, TASK_EXIT_CODE, TASK_FSBASE,
    TASK_GROUP_LEADER, TASK_REAL_PARENT, TASK_SIGNAL, TASK_START_BOOTTIME, TASK_TGID,
};

/// Nanoseconds on the monotonic clock.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// Reads a member of a kernel struct; 0 if that fails.
///
/// # Safety
///
/// None that matters: the helper checks the address.
#[inline(always)]
pub unsafe fn read<T: Copy + Default>(base: u64, offset: u32) -> T {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const T) }.unwrap_or_default()
}

/// Nanoseconds on the boot clock, which start times are on.
#[inline(always)]
pub fn boot_time() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// The name of the current process, which is the name of its first thread; zeros if it can't be read.
#[inline(always)]
pub fn process_name() -> [u8; COMM_BYTES] {
    // SAFETY: as in `leader`.
    unsafe { read(leader(), TASK_COMM.load()) }
}

/// When the current process started, on the boot clock; 0 if that can't be read.
#[inline(always)]
pub fn start_time() -> u64 {
    // SAFETY: as in `leader`.
    unsafe { read(leader(), TASK_START_BOOTTIME.load()) }
}

/// The most resident pages at a time of the process that ends or calls exec now; 0 if that can't be read. The
/// kernel brings the number up to date before it runs the tracepoints of both.
#[inline(always)]
pub fn peak_pages() -> u64 {
    // SAFETY: as in `leader`.
    unsafe { read(signal(), SIGNAL_MAX_RESIDENT.load()) }
}

/// The status of the process whose last thread ends now, as `wait` returns it. A process that ends as a whole has it for all
/// threads. One whose threads end one by one has that of its first thread.
#[inline(always)]
pub fn exit_status() -> u32 {
    // SAFETY: as in `leader`.
    unsafe {
        match read(signal(), SIGNAL_EXIT_CODE.load()) {
            0 => read(leader(), TASK_EXIT_CODE.load()),
            status => status,
        }
    }
}

/// Whether the kernel has chosen the current process to be killed because memory is short.
#[inline(always)]
pub fn is_out_of_memory() -> bool {
    // SAFETY: as in `leader`.
    unsafe { read::<u64>(signal(), SIGNAL_OOM_MM.load()) != 0 }
}

/// The address of the current thread's own block, as the C library sets it.
#[inline(always)]
pub fn thread_block() -> u64 {
    // SAFETY: the helper has no preconditions; the offset comes from the kernel's BTF.
    unsafe { read(bpf_get_current_task(), TASK_FSBASE.load()) }
}

/// Process id of the current process's parent.
#[inline(always)]
pub fn parent_tgid() -> u32 {
    // SAFETY: as in `leader`.
    let parent: u64 = unsafe { read(leader(), TASK_REAL_PARENT.load()) };
    // SAFETY: as in `leader`.
    unsafe { read(parent, TASK_TGID.load()) }
}

/// The kernel's `signal_struct` of the current process.
#[inline(always)]
fn signal() -> u64 {
    // SAFETY: as in `leader`.
    unsafe { read(bpf_get_current_task(), TASK_SIGNAL.load()) }
}

/// The kernel's `task_struct` of the current process's first thread.
#[inline(always)]
fn leader() -> u64 {
    // SAFETY: reads at an offset from the kernel's own BTF; a wrong offset yields an error.
    unsafe { read(bpf_get_current_task(), TASK_GROUP_LEADER.load()) }
}
