//! Constants that the agent sets before it loads the program, by these names.

use aya_ebpf::Global;
use heaptrace_common::limits::DEFAULT_RING_BYTES;

/// Process id of the agent, which is never traced; 0 if no probe reaches the agent.
#[unsafe(no_mangle)]
pub static AGENT_TGID: Global<u32> = Global::new(0);

/// Process id of the agent's guardian, which is never traced.
#[unsafe(no_mangle)]
pub static GUARDIAN_TGID: Global<u32> = Global::new(0);

/// Process id of the agent's installer, which is never traced, nor what it starts; 0 if there is none.
#[unsafe(no_mangle)]
pub static INSTALLER_TGID: Global<u32> = Global::new(0);

/// 1 if the agent reaches processes one by one, some time after they start.
#[unsafe(no_mangle)]
pub static ONE_BY_ONE: Global<u32> = Global::new(0);

/// What is done in processes that are moved to the fast path: a constant of `hints::way`.
#[unsafe(no_mangle)]
pub static FAST: Global<u32> = Global::new(0);

/// The number by which calls that come from the fast path's code are recognized, drawn for each run.
#[unsafe(no_mangle)]
pub static FAST_COOKIE: Global<u64> = Global::new(0);

/// The criteria of the process filter: bits of `wire::selection`.
#[unsafe(no_mangle)]
pub static SELECTION: Global<u32> = Global::new(0);

/// Maximum number of frames of a stack, 1 to `MAX_FRAMES`.
#[unsafe(no_mangle)]
pub static MAX_STACK_DEPTH: Global<u32> = Global::new(128);

/// With more unread bytes than this, the ring is filling up.
#[unsafe(no_mangle)]
pub static RING_FILLING_BYTES: Global<u32> = Global::new(DEFAULT_RING_BYTES / 8);

/// Seed of the stack hash, drawn for each run so that a traced process can't prepare a collision.
#[unsafe(no_mangle)]
pub static HASH_SEED: Global<u64> = Global::new(0x9e37_79b9_7f4a_7c15);

/// 1 if not every call is recorded.
#[unsafe(no_mangle)]
pub static PARTIAL: Global<u32> = Global::new(0);

/// Calls for fewer bytes are not recorded.
#[unsafe(no_mangle)]
pub static MIN_SIZE: Global<u64> = Global::new(0);

/// Calls for more bytes are not recorded.
#[unsafe(no_mangle)]
pub static MAX_SIZE: Global<u64> = Global::new(u64::MAX);

/// Whether some calls are not recorded.
#[inline(always)]
pub fn is_partial() -> bool {
    PARTIAL.load() != 0
}

// The rest are offsets of members of kernel structs, from the running kernel's BTF.

/// `task_struct.tgid`.
#[unsafe(no_mangle)]
pub static TASK_TGID: Global<u32> = Global::new(0);
/// `task_struct.mm`.
#[unsafe(no_mangle)]
pub static TASK_MM: Global<u32> = Global::new(0);
/// `task_struct.thread.fsbase`; 0 if the kernel has no such member.
#[unsafe(no_mangle)]
pub static TASK_FSBASE: Global<u32> = Global::new(0);
/// `task_struct.signal`.
#[unsafe(no_mangle)]
pub static TASK_SIGNAL: Global<u32> = Global::new(0);
/// `task_struct.group_leader`.
#[unsafe(no_mangle)]
pub static TASK_GROUP_LEADER: Global<u32> = Global::new(0);
/// `task_struct.real_parent`.
#[unsafe(no_mangle)]
pub static TASK_REAL_PARENT: Global<u32> = Global::new(0);
/// `task_struct.comm`.
#[unsafe(no_mangle)]
pub static TASK_COMM: Global<u32> = Global::new(0);
/// `task_struct.start_boottime`.
#[unsafe(no_mangle)]
pub static TASK_START_BOOTTIME: Global<u32> = Global::new(0);
/// `task_struct.exit_code`.
#[unsafe(no_mangle)]
pub static TASK_EXIT_CODE: Global<u32> = Global::new(0);
/// `signal_struct.group_exit_code`.
#[unsafe(no_mangle)]
pub static SIGNAL_EXIT_CODE: Global<u32> = Global::new(0);
/// `signal_struct.oom_mm`, which is set when the process is killed because memory is short.
#[unsafe(no_mangle)]
pub static SIGNAL_OOM_MM: Global<u32> = Global::new(0);
/// `mm_struct.mm_lock_seq`, which changes with each change of the mappings; 0 on kernels without it (before
/// 6.4).
#[unsafe(no_mangle)]
pub static MM_LOCK_SEQ: Global<u32> = Global::new(0);
/// `mm_struct.mm_mt.ma_root`, from which a maple tree leads to all mappings; 0 on kernels without it (before 6.1), or with nodes
/// of another form.
#[unsafe(no_mangle)]
pub static MM_MAPPING_TREE: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_start`.
#[unsafe(no_mangle)]
pub static VMA_START: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_end`.
#[unsafe(no_mangle)]
pub static VMA_END: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_pgoff`.
#[unsafe(no_mangle)]
pub static VMA_PGOFF: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_file`.
#[unsafe(no_mangle)]
pub static VMA_FILE: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_mm`.
#[unsafe(no_mangle)]
pub static VMA_MM: Global<u32> = Global::new(0);
/// `vm_area_struct.vm_refcnt`, which is 0 for a mapping that was removed; 0 on kernels without it (before 6.15).
#[unsafe(no_mangle)]
pub static VMA_REFERENCES: Global<u32> = Global::new(0);
/// `vm_area_struct.detached`, which is 1 for a mapping that was removed; 0 on kernels without it (before 6.4, and
/// since 6.15).
#[unsafe(no_mangle)]
pub static VMA_DETACHED: Global<u32> = Global::new(0);
/// `mm_struct.context.vdso`.
#[unsafe(no_mangle)]
pub static MM_VDSO: Global<u32> = Global::new(0);
/// `mm_struct.start_code`: where the program's own code begins.
#[unsafe(no_mangle)]
pub static MM_START_CODE: Global<u32> = Global::new(0);
/// `mm_struct.end_code`.
#[unsafe(no_mangle)]
pub static MM_END_CODE: Global<u32> = Global::new(0);
/// `mm_struct.start_stack`: where the stack of the first thread begins, above all frames.
#[unsafe(no_mangle)]
pub static MM_START_STACK: Global<u32> = Global::new(0);
/// `file.f_inode`.
#[unsafe(no_mangle)]
pub static FILE_INODE: Global<u32> = Global::new(0);
/// `inode.i_ino`.
#[unsafe(no_mangle)]
pub static INODE_NUMBER: Global<u32> = Global::new(0);
/// `inode.i_sb`.
#[unsafe(no_mangle)]
pub static INODE_SUPER: Global<u32> = Global::new(0);
/// Seconds of an inode's last change.
#[unsafe(no_mangle)]
pub static INODE_CHANGE_SECONDS: Global<u32> = Global::new(0);
/// Nanoseconds of an inode's last change.
#[unsafe(no_mangle)]
pub static INODE_CHANGE_NANOSECONDS: Global<u32> = Global::new(0);
/// `super_block.s_dev`.
#[unsafe(no_mangle)]
pub static SUPER_DEVICE: Global<u32> = Global::new(0);
/// `signal_struct.live`.
#[unsafe(no_mangle)]
pub static SIGNAL_LIVE: Global<u32> = Global::new(0);
/// `signal_struct.maxrss`.
#[unsafe(no_mangle)]
pub static SIGNAL_MAX_RESIDENT: Global<u32> = Global::new(0);
