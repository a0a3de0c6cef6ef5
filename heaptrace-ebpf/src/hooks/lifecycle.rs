//! Fork, exec and exit of threads and processes.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, generated::bpf_get_current_task},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use heaptrace_common::wire::end;

use crate::{
    fast,
    globals::{SIGNAL_LIVE, TASK_MM, TASK_SIGNAL, TASK_TGID},
    java, kernel, process, short_lived, thread,
};

/// `sched_process_fork(parent, child)`: a child that runs in its parent's memory shares its parent's record.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    let (parent, child): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    // SAFETY: offsets come from the kernel's BTF; the helper checks addresses.
    let (parent_tgid, child_tgid, shared) = unsafe {
        let mm = TASK_MM.load();
        (
            kernel::read::<u32>(parent, TASK_TGID.load()),
            kernel::read::<u32>(child, TASK_TGID.load()),
            kernel::read::<u64>(parent, mm) == kernel::read::<u64>(child, mm),
        )
    };
    if parent_tgid != child_tgid {
        fast::inherit(parent_tgid, child_tgid);
        if shared {
            process::share_record(parent_tgid, child_tgid);
        }
    }
    0
}

/// `sched_process_exec(task, old_pid, bprm)`: the old program and all its blocks are gone.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    let key = bpf_get_current_pid_tgid();
    let tgid = (key >> 32) as u32;
    // A thread that is not the leader takes over the leader's id.
    let old_tid: u64 = ctx.arg(1);
    thread::end(key);
    thread::end(u64::from(tgid) << 32 | old_tid & 0xffff_ffff);
    process::end(&ctx, tgid, end::EXEC);
    java::end_process(tgid);
    fast::leave(tgid);
    0
}

/// `sched_process_exit(task, …)`: a thread ends. With its last thread, a process ends.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(ctx: RawTracePointContext) -> i32 {
    let key = bpf_get_current_pid_tgid();
    thread::end(key);
    // SAFETY: as above.
    let alive = unsafe {
        let signal = kernel::read::<u64>(bpf_get_current_task(), TASK_SIGNAL.load());
        kernel::read::<u32>(signal, SIGNAL_LIVE.load())
    };
    if alive == 0 {
        let tgid = (key >> 32) as u32;
        short_lived::end(&ctx, tgid);
        process::end(&ctx, tgid, end::EXIT);
        java::end_process(tgid);
        fast::leave(tgid);
    }
    0
}
