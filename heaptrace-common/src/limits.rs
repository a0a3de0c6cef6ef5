//! Sizes that both sides must know.

/// Most frames that a stack can have, whatever the user asks for.
pub const MAX_FRAMES: usize = 128;

/// Bytes of a thread or process name, as the kernel keeps it.
pub const COMM_BYTES: usize = 16;

/// Mappings that a thread's state remembers.
pub const MAPPINGS_SEEN: usize = 8;

/// Control groups, and users, that a choice of processes can name.
pub const MAX_CHOICES: u32 = 64;

/// Levels of control groups above a process that are searched for one of them.
pub const MAX_CGROUP_LEVELS: u32 = 32;

/// Places of code whose rules are remembered; a power of two.
pub const FOUND_SLOTS: u32 = 1 << 16;

/// Of how many hits of probes one is noted, where they are counted.
pub const HITS_PER_NOTE: u32 = 64;

/// Threads whose state the kernel program can keep at a time.
pub const MAX_THREADS: u32 = 1 << 16;

/// Notes of calls that were decided about; threads that run at a time hardly ever share one. A power of two.
pub const DECIDED_SLOTS: u32 = 1 << 12;

/// Processes it can keep at a time.
pub const MAX_PROCESSES: u32 = 1 << 16;

/// Distinct stacks it remembers having sent.
pub const MAX_STACKS: u32 = 1 << 18;

/// Files whose unwind tables can be loaded.
pub const MAX_TABLES: u32 = 1 << 14;

/// Entries of the table of 64-KiB pages of code, over all files: four gibibytes of code.
pub const MAX_PAGES: u32 = 1 << 16;

/// Slots of a segment of rows, two rows of four bytes in each: 2 MiB. Segments are made as they are
/// needed.
pub const SEGMENT_SLOTS: u32 = 1 << 18;

/// Segments of rows, unless the agent sets another number: the default budget.
pub const DEFAULT_SEGMENTS: u32 = 128;

/// Distinct unwind rules, over all files.
pub const MAX_RULES: u32 = 1 << 16;

/// Most blocks that can be live at a time, whatever memory there is.
pub const MAX_BLOCKS: u32 = 1 << 28;

/// Default of the blocks that can be live at a time.
pub const DEFAULT_MAX_LIVE: u32 = 1 << 22;

/// Default size of the ring between the kernel and the agent.
pub const DEFAULT_RING_BYTES: u32 = 32 << 20;
