//! Every map of the program. Sizes are defaults; the agent sets them when it loads the object.
//!
//! The entries of hash maps take their memory as they come (BPF_F_NO_PREALLOC). Since Linux 6.1 the kernel gives
//! a removed entry's memory to the next one at once, while a program that has just found it may still look
//! at it. It stays an entry of the same map, so nothing is read or written that is no entry; but it may be another
//! key's by then. What may be removed by others while a program looks at it is therefore read first, and believed only
//! if that is confirmed: by something in the entry that tells whose it is, by its removal under its key, or by
//! another look. It is changed under its key, and not through a pointer.

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps,
    macros::{btf_map, map},
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use heaptrace_common::{
    counters::COUNTERS as COUNTER_SLOTS,
    limits::{
        DECIDED_SLOTS, DEFAULT_MAX_LIVE, DEFAULT_RING_BYTES, DEFAULT_SEGMENTS, FOUND_SLOTS,
        MAX_CHOICES, MAX_PAGES, MAX_PROCESSES, MAX_RULES, MAX_STACKS, MAX_TABLES, MAX_THREADS,
        SEGMENT_SLOTS,
    },
    places::{BLOCK_PLACES, CALL_PLACES},
    unwind::Rule,
    wire::{
        Block, BlockKey, CallPlace, ChosenNames, Countdown, Decided, FileKey, MAX_UNMAPPED,
        MapCall, ProcessEnd, ProcessState, SIZE_CLASSES, StackKey, TableRef, ThreadState, Unmapped,
        setting,
    },
};

/// Records on their way to the agent.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);

/// Blocks that were recorded and not freed: the truth about what is live.
#[map]
pub static LIVE: HashMap<BlockKey, Block> =
    HashMap::with_max_entries(DEFAULT_MAX_LIVE, BPF_F_NO_PREALLOC);

/// How many blocks of the live map have their address in each place. The agent takes out what it removes.
#[map]
pub static BLOCKS_AT: Array<u64> = Array::with_max_entries(BLOCK_PLACES, BPF_F_MMAPABLE);

/// Calls, by the place of their stack pointer.
#[map]
pub static CALLS_AT: Array<CallPlace> = Array::with_max_entries(CALL_PLACES, 0);

/// State per thread, under its process and thread id.
#[map]
pub static THREADS: HashMap<u64, ThreadState> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// Calls that were decided about, by thread.
#[map]
pub static DECIDED: Array<Decided> = Array::with_max_entries(DECIDED_SLOTS, 0);

/// Pending calls that change mappings, by process and thread id.
#[map]
pub static MAP_CALLS: HashMap<u64, MapCall> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// What was unmapped by calls whose event found no place in the ring, under ids of their own.
#[map]
pub static UNMAPPED: HashMap<u64, Unmapped> =
    HashMap::with_max_entries(MAX_UNMAPPED, BPF_F_NO_PREALLOC);

/// State per process, under its process id.
#[map]
pub static PROCESSES: HashMap<u32, ProcessState> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Hits of probes that were noted, per process id; the agent takes them out. See [`crate::hits`].
#[map]
pub static HITS: HashMap<u32, u64> = HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Ends of processes whose event found no place in the ring, under their serial number.
#[map]
pub static ENDED: HashMap<u64, ProcessEnd> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Stacks that were sent, with the id they have.
#[map]
pub static STACKS: HashMap<StackKey, u64> =
    HashMap::with_max_entries(MAX_STACKS, BPF_F_NO_PREALLOC);

/// A thread state with nothing in it: too large for the program's stack.
#[map]
pub static BLANK: Array<ThreadState> = Array::with_max_entries(1, 0);

/// Unwind tables, by file.
#[map]
pub static TABLES: HashMap<FileKey, TableRef> =
    HashMap::with_max_entries(MAX_TABLES, BPF_F_NO_PREALLOC);

/// When tables were used: the agent's clock in the first slot, and in each table's slot what the
/// clock said when it was last walked by.
#[map]
pub static USES: Array<u64> = Array::with_max_entries(MAX_TABLES, BPF_F_MMAPABLE);

/// Where the rows of each 64-KiB page of code stand.
#[map]
pub static PAGES: Array<u64> = Array::with_max_entries(MAX_PAGES, BPF_F_MMAPABLE);

/// A segment of rows of unwind tables, two in a slot.
type Segment = btf_maps::Array<u64, { SEGMENT_SLOTS as usize }, { BPF_F_MMAPABLE as usize }>;

/// Segments of rows. The kernel takes an array's memory when it is made, so the agent makes these one by
/// one, as tables come.
#[btf_map]
pub static ROWS: btf_maps::ArrayOfMaps<Segment, { DEFAULT_SEGMENTS as usize }> =
    btf_maps::ArrayOfMaps::new();

/// Unwind rules, which rows name.
#[map]
pub static RULES: Array<Rule> = Array::with_max_entries(MAX_RULES, BPF_F_MMAPABLE);

/// Rules that were found, by place: a cache.
#[map]
pub static FOUND: Array<u64> = Array::with_max_entries(FOUND_SLOTS, BPF_F_MMAPABLE);

/// Counters, per CPU.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_SLOTS as u32, 0);

/// Last sequence number of ids, per CPU.
#[map]
pub static SEQUENCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Countdowns to the next sample. The agent begins the first ones.
#[map]
pub static COUNTDOWN: PerCpuArray<Countdown> = PerCpuArray::with_max_entries(1, 0);

/// What the agent changes as the run goes.
#[map]
pub static SETTINGS: Array<u64> = Array::with_max_entries(setting::COUNT, 0);

/// By which power of two the mean between samples is larger, per process.
#[map]
pub static SHIFTS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// How often sizes of each class were asked for, per CPU.
#[map]
pub static SIZES: PerCpuArray<u64> = PerCpuArray::with_max_entries(SIZE_CLASSES, 0);

/// When the agent was last woken, on the monotonic clock.
#[map]
pub static LAST_WAKE: Array<u64> = Array::with_max_entries(1, 0);

/// 1 while calls are recorded. Opened when all probes are in place and closed before the first one
/// goes, so that a run never sees an allocator's one function without the other.
#[map]
pub static GATE: Array<u32> = Array::with_max_entries(1, 0);

/// Names of the processes that are chosen.
#[map]
pub static CHOSEN_NAMES: Array<ChosenNames> = Array::with_max_entries(1, 0);

/// Ids of the control groups that are chosen.
#[map]
pub static CHOSEN_CGROUPS: HashMap<u64, u8> = HashMap::with_max_entries(MAX_CHOICES, 0);

/// Ids of the users that are chosen.
#[map]
pub static CHOSEN_USERS: HashMap<u32, u8> = HashMap::with_max_entries(MAX_CHOICES, 0);
