//! Every map of the program. Sizes are defaults; the agent sets them when it loads the object.
//!
//! Entries of hash maps get their memory when they are inserted (BPF_F_NO_PREALLOC). Since Linux 6.1 the
//! kernel reuses the memory of a removed entry immediately, while a program that has just looked it up may
//! still read it. The memory stays an entry of the same map, so every access is to an entry, but the entry
//! may belong to another key by then. So an entry that others may remove is copied first, and the copy is
//! used only if it is confirmed: by a field that names its owner, by removing the entry under its key, or by
//! a second read. Such an entry is changed under its key, not through a pointer.

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps,
    macros::{btf_map, map},
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use heaptrace_common::{
    counters::COUNTERS as COUNTER_SLOTS,
    counting_filter::{BLOCK_SLOTS, CALL_SLOTS},
    hints::{HINT_SLOTS, MAX_FAST},
    limits::{
        DECLINED_SLOTS, DEFAULT_MAX_LIVE, DEFAULT_RING_BYTES, DEFAULT_SEGMENTS, MAX_JVMS,
        MAX_LANGUAGE_STACKS, MAX_PAGES, MAX_PROCESSES, MAX_PYTHON_CODES, MAX_PYTHON_IMAGES,
        MAX_RAW_WALKS, MAX_RULES, MAX_SELECTED, MAX_SHORT_LIVED, MAX_STACKS, MAX_TABLES,
        MAX_THREADS, MAX_V8_IMAGES, RULE_CACHE_SLOTS, SEGMENT_SLOTS,
    },
    unwind::Rule,
    wire::{
        Block, BlockKey, CallSlot, Countdown, DeclinedCall, FileKey, JavaStack, Jvm,
        LanguageStackKey, MAX_UNMAPPED, MapCall, NameFilter, ProcessEnd, ProcessState,
        PythonCodeKey, PythonImage, PythonWalk, RawWalk, SIZE_CLASSES, ShortLived, ShortLivedKey,
        StackKey, TableRef, ThreadState, Unmapped, V8Image, V8Walk, setting,
    },
};

/// Records for the agent.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);

/// Blocks that were recorded and not freed.
#[map]
pub static LIVE: HashMap<BlockKey, Block> =
    HashMap::with_max_entries(DEFAULT_MAX_LIVE, BPF_F_NO_PREALLOC);

/// How many blocks of the live map have an address in each slot. The agent uncounts the blocks that it removes.
#[map]
pub static BLOCK_FILTER: Array<u64> = Array::with_max_entries(BLOCK_SLOTS, BPF_F_MMAPABLE);

/// Hints of a process on the fast path: see `heaptrace_common::hints`.
type Hints = btf_maps::Array<u64, { HINT_SLOTS as usize }, { BPF_F_MMAPABLE as usize }>;

/// Hint arrays. The agent creates one for each process that it moves to the fast path.
#[btf_map]
pub static HINTS: btf_maps::ArrayOfMaps<Hints, { MAX_FAST as usize }> =
    btf_maps::ArrayOfMaps::new();

/// Processes on the fast path, and their forked children: one more than the index of their hint array.
#[map]
pub static FAST_PROCESSES: HashMap<u32, u64> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// The thread of each process whose probe hit was counted last.
#[map]
pub static LAST_HITS: HashMap<u32, u32> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Threads that must be stopped in user mode at their next probe hit, each with the signal that stops it.
#[map]
pub static STOPS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_FAST, 0);

/// Calls, by the slot of their stack pointer.
#[map]
pub static CALL_FILTER: Array<CallSlot> = Array::with_max_entries(CALL_SLOTS, 0);

/// State of each thread, by process and thread id.
#[map]
pub static THREADS: HashMap<u64, ThreadState> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// Declined calls, by thread.
#[map]
pub static DECLINED: Array<DeclinedCall> = Array::with_max_entries(DECLINED_SLOTS, 0);

/// Pending calls that change mappings, by process and thread id.
#[map]
pub static MAP_CALLS: HashMap<u64, MapCall> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// Memory that was unmapped by calls whose event did not fit into the ring, each under an id of its own.
#[map]
pub static UNMAPPED: HashMap<u64, Unmapped> =
    HashMap::with_max_entries(MAX_UNMAPPED, BPF_F_NO_PREALLOC);

/// State of each process, by process id.
#[map]
pub static PROCESSES: HashMap<u32, ProcessState> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Probe hits that were counted, by process id. The agent takes the entries out.
#[map]
pub static PROBE_HITS: HashMap<u32, u64> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Ends of processes whose event did not fit into the ring, by serial number.
#[map]
pub static ENDED: HashMap<u64, ProcessEnd> =
    HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Ids of the stacks that were sent.
#[map]
pub static STACKS: HashMap<StackKey, u64> =
    HashMap::with_max_entries(MAX_STACKS, BPF_F_NO_PREALLOC);

/// Files with a Python interpreter. The agent sets an entry before a table refers to it, and changes none.
#[map]
pub static PYTHON_IMAGES: Array<PythonImage> = Array::with_max_entries(MAX_PYTHON_IMAGES, 0);

/// State of the walks over Python frames, by process and thread id.
#[map]
pub static PYTHON_WALKS: HashMap<u64, PythonWalk> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// A state without frames, which is too large for the program's stack.
#[map]
pub static BLANK_PYTHON: Array<PythonWalk> = Array::with_max_entries(1, 0);

/// Stacks of language frames that were sent. One that has no room any more is sent again.
#[map]
pub static LANGUAGE_STACKS: LruHashMap<LanguageStackKey, u8> =
    LruHashMap::with_max_entries(MAX_LANGUAGE_STACKS, 0);

/// Python code objects that were sent, in the same way.
#[map]
pub static PYTHON_CODES: LruHashMap<PythonCodeKey, u8> =
    LruHashMap::with_max_entries(MAX_PYTHON_CODES, 0);

/// Files with V8, in the same way as those with a Python interpreter.
#[map]
pub static V8_IMAGES: Array<V8Image> = Array::with_max_entries(MAX_V8_IMAGES, 0);

/// State of the passes over frames of JavaScript, by process and thread id.
#[map]
pub static V8_WALKS: HashMap<u64, V8Walk> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// A state without frames, which is too large for the program's stack.
#[map]
pub static BLANK_V8: Array<V8Walk> = Array::with_max_entries(1, 0);

/// Java virtual machines, by process id. The kernel program adds an entry with its request, the agent sets it.
#[map]
pub static JVMS: HashMap<u32, Jvm> = HashMap::with_max_entries(MAX_JVMS, BPF_F_NO_PREALLOC);

/// Java frames of pending calls, by process and thread id.
#[map]
pub static JAVA_STACKS: HashMap<u64, JavaStack> =
    HashMap::with_max_entries(MAX_THREADS, BPF_F_NO_PREALLOC);

/// A state without frames, which is too large for the program's stack.
#[map]
pub static BLANK_JAVA: Array<JavaStack> = Array::with_max_entries(1, 0);

/// Raw stacks of pending calls, by process and thread id.
#[map]
pub static RAW_WALKS: HashMap<u64, RawWalk> =
    HashMap::with_max_entries(MAX_RAW_WALKS, BPF_F_NO_PREALLOC);

/// A state without a raw stack, which is too large for the program's stack.
#[map]
pub static BLANK_RAW: Array<RawWalk> = Array::with_max_entries(1, 0);

/// An empty thread state, which is too large for the program's stack.
#[map]
pub static BLANK_THREAD: Array<ThreadState> = Array::with_max_entries(1, 0);

/// Unwind tables, by file.
#[map]
pub static TABLES: HashMap<FileKey, TableRef> =
    HashMap::with_max_entries(MAX_TABLES, BPF_F_NO_PREALLOC);

/// When tables were last used. The first slot holds the agent's clock; the slot of each table holds the
/// clock's value at its last use.
#[map]
pub static USES: Array<u64> = Array::with_max_entries(MAX_TABLES, BPF_F_MMAPABLE);

/// Where the rows of each 64-KiB page of code are.
#[map]
pub static PAGES: Array<u64> = Array::with_max_entries(MAX_PAGES, BPF_F_MMAPABLE);

/// A segment of rows of unwind tables, two in a slot.
type Segment = btf_maps::Array<u64, { SEGMENT_SLOTS as usize }, { BPF_F_MMAPABLE as usize }>;

/// Segments of rows. The kernel allocates all memory of an array when it is created. So the agent creates the
/// segments one by one, as tables are loaded.
#[btf_map]
pub static ROWS: btf_maps::ArrayOfMaps<Segment, { DEFAULT_SEGMENTS as usize }> =
    btf_maps::ArrayOfMaps::new();

/// Unwind rules, by the index that rows hold.
#[map]
pub static RULES: Array<Rule> = Array::with_max_entries(MAX_RULES, BPF_F_MMAPABLE);

/// Indexes of rules, by position in the code.
#[map]
pub static RULE_CACHE: Array<u64> = Array::with_max_entries(RULE_CACHE_SLOTS, BPF_F_MMAPABLE);

/// Counters, per CPU.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_SLOTS as u32, 0);

/// Last sequence number of ids, per CPU.
#[map]
pub static SEQUENCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Countdowns to the next sample, per CPU. The agent starts the first ones.
#[map]
pub static COUNTDOWN: PerCpuArray<Countdown> = PerCpuArray::with_max_entries(1, 0);

/// Values that the agent changes during the run.
#[map]
pub static SETTINGS: Array<u64> = Array::with_max_entries(setting::COUNT, 0);

/// The power of two by which a process's mean between samples is larger, by process id.
#[map]
pub static SHIFTS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Processes that the agent has reached with probes, or has nothing to probe in, in a run that reaches processes one by
/// one.
#[map]
pub static REACHED: HashMap<u32, u8> = HashMap::with_max_entries(MAX_PROCESSES, BPF_F_NO_PREALLOC);

/// Processes that ended before the agent reached them, by name and control group.
#[map]
pub static SHORT_LIVED: HashMap<ShortLivedKey, ShortLived> =
    HashMap::with_max_entries(MAX_SHORT_LIVED, BPF_F_NO_PREALLOC);

/// How often sizes of each class were requested, per CPU.
#[map]
pub static SIZES: PerCpuArray<u64> = PerCpuArray::with_max_entries(SIZE_CLASSES, 0);

/// When the agent was last woken, on the monotonic clock.
#[map]
pub static LAST_WAKE: Array<u64> = Array::with_max_entries(1, 0);

/// 1 while calls are recorded. The agent opens it when all probes are attached, and closes it before it
/// detaches the first one. So a run never records one function of an allocator without the others.
#[map]
pub static GATE: Array<u32> = Array::with_max_entries(1, 0);

/// Patterns for the names of processes.
#[map]
pub static NAME_FILTER: Array<NameFilter> = Array::with_max_entries(1, 0);

/// Ids of the selected control groups.
#[map]
pub static CGROUP_FILTER: HashMap<u64, u8> = HashMap::with_max_entries(MAX_SELECTED, 0);

/// Ids of the selected users.
#[map]
pub static USER_FILTER: HashMap<u32, u8> = HashMap::with_max_entries(MAX_SELECTED, 0);
