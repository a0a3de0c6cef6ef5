//! Structs that cross from the kernel program to the agent, and the values of its maps.
//!
//! Fixed-width integers only, padding explicit and zero, layout asserted at compile time.

mod mapping;
mod thread;

pub use mapping::*;
pub use thread::*;

use crate::limits::{COMM_BYTES, MAPPINGS_SEEN, MAX_FRAMES};
use crate::names::NamePatterns;

/// What a ring record is; its first two bytes.
pub mod kind {
    /// An [`Alloc`](super::Alloc).
    pub const ALLOC: u16 = 1;
    /// A [`Free`](super::Free).
    pub const FREE: u16 = 2;
    /// A [`Stack`](super::Stack), cut off behind its last frame.
    pub const STACK: u16 = 3;
    /// A [`ProcessBegin`](super::ProcessBegin).
    pub const PROCESS_BEGIN: u16 = 4;
    /// A [`ProcessEnd`](super::ProcessEnd).
    pub const PROCESS_END: u16 = 5;
    /// A [`NeedTable`](super::NeedTable).
    pub const NEED_TABLE: u16 = 6;
    /// A [`MapChange`](super::MapChange).
    pub const MAP_CHANGE: u16 = 7;
}

/// Bits of the flags of [`Alloc`] and [`Free`].
pub mod flag {
    /// The freed block was the last one that this thread had allocated.
    pub const TEMPORARY: u16 = 1;
}

/// Why a process record ended.
pub mod end {
    /// Its last thread exited.
    pub const EXIT: u32 = 1;
    /// It called exec, and goes on under another record.
    pub const EXEC: u32 = 2;
}

/// Why a stack has the frames that it has.
pub mod walk {
    /// It ends at an outermost frame.
    pub const COMPLETE: u32 = 0;
    /// The frame limit was reached.
    pub const TRUNCATED: u32 = 1;
    /// An address where nothing is mapped: the frame before was misread.
    pub const UNMAPPED: u32 = 2;
    /// The table of a file has not been loaded yet; it is on its way.
    pub const NO_TABLE: u32 = 3;
    /// Somebody was changing the mappings just then.
    pub const BUSY: u32 = 4;
    /// The caller's address could not be read.
    pub const UNREADABLE: u32 = 5;
    /// What a step came to that went no further: its
    /// [`outcome`](crate::unwind::outcome) plus this.
    pub const STEP: u32 = 8;

    /// Name of the reason why a stack is broken off.
    pub const fn name(walk: u32) -> &'static str {
        use crate::unwind::outcome;
        match walk {
            UNMAPPED => "unmapped",
            NO_TABLE => "no_table_yet",
            BUSY => "mappings_busy",
            UNREADABLE => "unreadable",
            _ => match walk.wrapping_sub(STEP) {
                outcome::NO_RULE | outcome::NO_FRAME_POINTER => "no_unwind_information",
                outcome::UNSUPPORTED => "unsupported_rule",
                outcome::UNREADABLE | outcome::STUCK => "misread",
                outcome::LOST_FRAME_POINTER => "lost_frame_pointer",
                _ => "unknown",
            },
        }
    }
}

/// A successful allocation or reallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Alloc {
    /// [`kind::ALLOC`].
    pub kind: u16,
    /// [`flag`] bits, of the block named by `freed`.
    pub flags: u16,
    /// Thread that called.
    pub tid: u32,
    /// When it returned, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the new block.
    pub id: u64,
    /// Id of the stack.
    pub stack: u64,
    /// Address of the block.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Id of the block that realloc took this one's bytes from, 0 if none.
    pub freed: u64,
    /// Id of a block that stood at this address without having been seen freed, 0 if none.
    pub replaced: u64,
    /// Mean bytes between samples that it was taken under; 1 where all are taken.
    pub mean: u64,
}

/// A free of a recorded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Free {
    /// [`kind::FREE`].
    pub kind: u16,
    /// [`flag`] bits.
    pub flags: u16,
    /// Thread that called.
    pub tid: u32,
    /// When, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the block.
    pub id: u64,
}

/// Everything of a [`Stack`] before its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackHead {
    /// [`kind::STACK`].
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Number of frames.
    pub depth: u32,
    /// When it was first seen, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id by which allocations name it.
    pub id: u64,
    /// One of [`walk`].
    pub walk: u32,
    /// Zero.
    pub pad2: u32,
    /// The hash that the kernel program knows it by: with the process, its key in the stack map.
    pub hash: [u64; 2],
}

/// A stack that was not seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stack {
    /// What precedes the frames.
    pub head: StackHead,
    /// Return addresses, innermost first; `head.depth` of them are sent.
    pub frames: [u64; MAX_FRAMES],
}

/// A process that calls an allocator for the first time, or for the first time since its exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessBegin {
    /// [`kind::PROCESS_BEGIN`].
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Process id.
    pub tgid: u32,
    /// When it was first seen, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number that its events carry.
    pub process: u64,
    /// When the process started, nanoseconds on the boot clock.
    pub start_time: u64,
    /// Name, which is that of its first thread.
    pub comm: [u8; COMM_BYTES],
    /// Id of its control group in the unified hierarchy, 0 where that can't be known.
    pub cgroup: u64,
}

/// The end of a process record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessEnd {
    /// [`kind::PROCESS_END`].
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// One of [`end`].
    pub reason: u32,
    /// When, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the record.
    pub process: u64,
    /// Allocator calls that failed.
    pub failed: u64,
    /// Frees of blocks that were not recorded.
    pub untracked: u64,
    /// Allocations that found no place.
    pub lost: u64,
}

/// A file that code stands in, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FileKey {
    /// Inode number.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u64,
    /// Which of the contents that the file had, or of the files that had the number one after the
    /// other: the time of its last change, see [`version_of`].
    pub version: u64,
}

/// A file's version from the time of its last change (ctime), which nobody can set back. Kernels
/// since 6.13 keep a mark in the highest bit of the nanoseconds.
#[inline(always)]
pub const fn version_of(seconds: u64, nanoseconds: u32) -> u64 {
    seconds << 32 | (nanoseconds & 0x7fff_ffff) as u64
}

impl FileKey {
    /// Stands for the kernel's vDSO, which is no file but has code. No device has such a number.
    pub const VDSO: Self = Self {
        inode: 1,
        device: u64::MAX,
        version: 0,
    };

    /// What tells an entry of the table map from another file's that has taken its memory.
    #[inline(always)]
    pub const fn check(self) -> u32 {
        let mixed = (self.inode ^ self.device.rotate_left(21) ^ self.version.rotate_left(42))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32
    }
}

/// Value of the table map: where the unwind table of a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TableRef {
    /// One of [`table`].
    pub state: u32,
    /// Index of its first page's entry.
    pub pages_at: u32,
    /// Number of its pages.
    pub pages: u32,
    /// Number of the first page in the file.
    pub first_page: u32,
    /// Where its use is noted; 0 where it is not.
    pub slot: u32,
    /// The check of the file that it is named for ([`FileKey::check`]); 0 as long as it is named for none.
    pub check: u32,
}

impl TableRef {
    /// One that stands for no table.
    pub const fn none(state: u32) -> Self {
        Self {
            state,
            pages_at: 0,
            pages: 0,
            first_page: 0,
            slot: 0,
            check: 0,
        }
    }

    /// The same, named for a file.
    #[inline(always)]
    pub const fn of(self, file: FileKey) -> Self {
        Self {
            check: file.check(),
            ..self
        }
    }
}

/// State of a [`TableRef`].
pub mod table {
    /// Asked for.
    pub const REQUESTED: u32 = 0;
    /// Loaded.
    pub const LOADED: u32 = 1;
    /// The file has no unwind information; frame pointers have to do.
    pub const ABSENT: u32 = 2;
}

/// A file whose unwind table is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NeedTable {
    /// [`kind::NEED_TABLE`].
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// A process that has it mapped.
    pub tgid: u32,
    /// Start of the mapping.
    pub start: u64,
    /// End of the mapping.
    pub end: u64,
    /// The file.
    pub file: FileKey,
}

/// Key of the live map: an address means nothing without its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct BlockKey {
    /// Address of the block.
    pub address: u64,
    /// Serial number of the process record.
    pub process: u64,
}

/// Value of the live map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// Id of the block, never 0 and never used again.
    pub id: u64,
    /// Requested bytes.
    pub size: u64,
    /// 0 while the block lives. Else when it was freed by a call whose event found no place in the
    /// ring; the agent sweeps such entries.
    pub freed_at: u64,
}

/// Value of the process map, by process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessState {
    /// Serial number of the record; 0 where the process is not to be traced.
    pub process: u64,
    /// Allocator calls that failed.
    pub failed: u64,
    /// Frees of blocks that were not recorded.
    pub untracked: u64,
    /// Allocations that found no place.
    pub lost: u64,
    /// 1 for a vfork child: it runs in its parent's memory, under its parent's record.
    pub borrowed: u64,
    /// The user whose process it was when that was decided.
    pub user: u32,
    /// The process, by which its entry is told from another one that has taken its memory.
    pub tgid: u32,
}

/// What a choice of processes asks for; bits of the kernel program's `CHOICES`.
pub mod choice {
    /// A name that the patterns mean.
    pub const NAME: u32 = 1;
    /// A name that the other patterns don't mean.
    pub const EXCLUDE: u32 = 2;
    /// One of some control groups, or one below them.
    pub const CGROUP: u32 = 4;
    /// One of some users.
    pub const USER: u32 = 8;
}

/// Names of the processes that are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChosenNames {
    /// Those to be traced.
    pub include: NamePatterns,
    /// Those that are not, whatever else they are.
    pub exclude: NamePatterns,
}

/// What the pending call of a thread is.
pub mod call {
    /// Returns the block.
    pub const ALLOC: u32 = 1;
    /// Returns zero, and stores the block's address.
    pub const POSIX_MEMALIGN: u32 = 2;
    /// Returns the block, and frees another.
    pub const REALLOC: u32 = 3;
    /// As `ALLOC`, with a product of sizes that overflows: it can only fail.
    pub const OVERFLOW: u32 = 4;
    /// As `REALLOC`, and frees the block where it fails.
    pub const REALLOC_OR_FREE: u32 = 5;
    /// Returns how large a block is that it may have resized where it stands.
    pub const RESIZE: u32 = 6;
}

/// The countdown of a CPU to its next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Countdown {
    /// Bytes left up to and with the one that is sampled; as a signed number, zero or below while
    /// the next countdown is not begun.
    pub left: u64,
    /// Mean bytes between samples that it was begun with.
    pub mean: u64,
}

/// Entries of the map of settings, which the agent changes as the run goes.
pub mod setting {
    /// Mean bytes between samples, 1 where all calls are taken.
    pub const MEAN: u32 = 0;
    /// By which power of two it is larger for processes that have no entry of their own.
    pub const SHIFT: u32 = 1;
    /// How many there are.
    pub const COUNT: u32 = 2;
}

/// Classes of sizes: none for zero, and one for each power of two.
pub const SIZE_CLASSES: u32 = 65;

/// The class of a size: 0 for 0, else one more than the power of two that is not above it.
#[inline(always)]
pub const fn size_class(size: u64) -> u32 {
    u64::BITS - size.leading_zeros()
}

/// Key of the stack map: 128 bits of a hash whose seed is drawn anew for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StackKey {
    /// First half of the hash.
    pub low: u64,
    /// Second half.
    pub high: u64,
    /// Serial number of the process record.
    pub process: u64,
}

const _: () = {
    assert!(size_of::<Alloc>() == 80);
    assert!(size_of::<Free>() == 32);
    assert!(size_of::<StackHead>() == 56);
    assert!(size_of::<Stack>() == 56 + 8 * MAX_FRAMES);
    assert!(size_of::<ProcessEnd>() == 48);
    assert!(size_of::<ProcessBegin>() == 56);
    assert!(size_of::<BlockKey>() == 16);
    assert!(size_of::<Block>() == 24);
    assert!(size_of::<ProcessState>() == 48);
    assert!(size_of::<ChosenNames>() == 2 * (24 + 8 * 256));
    assert!(size_of::<ThreadState>() == 104 + size_of::<Stack>() + size_of::<WalkState>());
    assert!(
        size_of::<WalkState>()
            == 144
                + MAPPINGS_SEEN * size_of::<Mapping>()
                + size_of::<StackWindow>()
                + size_of::<Trail>()
    );
    assert!(size_of::<Trail>() == 48 + 12 * MAX_FRAMES);
    assert!(size_of::<StackWindow>() == 8 + 8 * WINDOW_SLOTS);
    assert!(size_of::<Countdown>() == 16);
    assert!(size_of::<Mapping>() == 48);
    assert!(size_of::<StackKey>() == 24);
    assert!(size_of::<FileKey>() == 24);
    assert!(size_of::<TableRef>() == 24);
    assert!(size_of::<NeedTable>() == 48);
    assert!(core::mem::offset_of!(ThreadState, stack) == 104);
};
