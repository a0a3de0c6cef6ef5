//! Process records: how they begin and end, the state of a process, and the process filter.

use crate::limits::COMM_BYTES;
use crate::names::NamePatterns;

/// The first call of a process to an allocator, or its first call since its exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessBegin {
    /// [`kind::PROCESS_BEGIN`](super::kind::PROCESS_BEGIN).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Process id.
    pub tgid: u32,
    /// When it was made, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the record, which all its events carry.
    pub process: u64,
    /// When the process started, nanoseconds on the boot clock.
    pub start_time: u64,
    /// Name of the process, which is the name of its first thread.
    pub comm: [u8; COMM_BYTES],
    /// Id of its control group in the unified hierarchy, 0 if unknown.
    pub cgroup: u64,
}

/// The end of a process record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessEnd {
    /// [`kind::PROCESS_END`](super::kind::PROCESS_END).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// A constant of [`end`].
    pub reason: u32,
    /// When, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the record.
    pub process: u64,
    /// Allocator calls that failed.
    pub failed: u64,
    /// Frees of blocks that were not recorded.
    pub untracked: u64,
    /// Allocations that were lost because a map or the ring was full.
    pub lost: u64,
    /// The most pages that were resident at a time.
    pub peak_pages: u64,
    /// The status as `wait` returns it; 0 if the process called exec.
    pub status: u32,
    /// 1 if the kernel has chosen the process to be killed because memory was short.
    pub out_of_memory: u32,
}

/// Why a process record ended.
pub mod end {
    /// Its last thread exited.
    pub const EXIT: u32 = 1;
    /// The process called exec, and continues under another record.
    pub const EXEC: u32 = 2;
}

/// Value of the process map, by process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessState {
    /// Serial number of the record; 0 if the process is not selected.
    pub process: u64,
    /// Allocator calls that failed.
    pub failed: u64,
    /// Frees of blocks that were not recorded.
    pub untracked: u64,
    /// Allocations that were lost because a map or the ring was full.
    pub lost: u64,
    /// 1 for a vfork child, which runs in its parent's memory, under its parent's record.
    pub borrowed: u64,
    /// The process's user when the process filter decided.
    pub user: u32,
    /// The process id. It tells whether the entry's memory was reused for another process.
    pub tgid: u32,
}

/// Criteria of the process filter; bits of the kernel program's `SELECTION`.
pub mod selection {
    /// The name must match a pattern.
    pub const NAME: u32 = 1;
    /// The name must not match a pattern of excluded names.
    pub const EXCLUDE: u32 = 2;
    /// The control group must be a selected one, or below one.
    pub const CGROUP: u32 = 4;
    /// The user must be a selected one.
    pub const USER: u32 = 8;
}

/// Patterns for the names of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NameFilter {
    /// Names of processes that are recorded.
    pub include: NamePatterns,
    /// Names of processes that are not recorded, even if they match `include`.
    pub exclude: NamePatterns,
}

/// Processes that ended before the agent reached them have one count for each name and control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ShortLivedKey {
    /// Name of the process when it ended.
    pub comm: [u8; COMM_BYTES],
    /// Id of its control group in the unified hierarchy, 0 if unknown.
    pub cgroup: u64,
}

/// The count of a [`ShortLivedKey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ShortLived {
    /// How many processes there were.
    pub processes: u64,
    /// The sum of the times from the start of each to its end, in nanoseconds.
    pub lived_ns: u64,
}

const _: () = {
    assert!(size_of::<ShortLivedKey>() == 24);
    assert!(size_of::<ShortLived>() == 16);
    assert!(size_of::<ProcessEnd>() == 64);
    assert!(size_of::<ProcessBegin>() == 56);
    assert!(size_of::<ProcessState>() == 48);
    assert!(size_of::<NameFilter>() == 2 * (24 + 8 * 256));
};
