//! Sizes and limits that both the kernel program and the agent use.

/// Maximum number of frames of a stack; `--max-stack-depth` can only lower it.
pub const MAX_FRAMES: usize = 128;

/// Maximum number of Python frames of a stack.
pub const MAX_PYTHON_FRAMES: usize = 128;

/// Bytes of the name of a Python function that are sent; a power of two.
pub const PYTHON_NAME_BYTES: usize = 128;

/// Bytes of the path of a Python file that are sent; a power of two.
pub const PYTHON_FILE_BYTES: usize = 256;

/// Bytes of a Python function's table of lines that are sent; a power of two.
pub const PYTHON_LINES_BYTES: usize = 1 << 13;

/// The same for most functions; a power of two.
pub const PYTHON_SHORT_LINES_BYTES: usize = 1 << 9;

/// Maximum number of stacks of language frames that are remembered as sent.
pub const MAX_LANGUAGE_STACKS: u32 = 1 << 14;

/// Maximum number of Python code objects that are remembered as sent.
pub const MAX_PYTHON_CODES: u32 = 1 << 13;

/// Maximum number of files with a Python interpreter.
pub const MAX_PYTHON_IMAGES: u32 = 64;

/// Maximum number of frames of JavaScript of a stack: each is one of its frames of machine code.
pub const MAX_V8_FRAMES: usize = MAX_FRAMES;

/// Maximum number of files with V8.
pub const MAX_V8_IMAGES: u32 = 64;

/// Maximum number of Java frames of a stack, those of generated code included.
pub const MAX_JAVA_FRAMES: usize = 128;

/// Maximum number of parts of a Java virtual machine's code cache.
pub const CODE_HEAPS: usize = 3;

/// Maximum number of processes with generated code that are asked about.
pub const MAX_JVMS: u32 = 1 << 13;

/// Bytes of a stack that are searched for the words of a raw stack.
pub const RAW_STACK_BYTES: u64 = 32 << 10;

/// Maximum number of words of a raw stack; a power of two.
pub const MAX_RAW_WORDS: usize = 1024;

/// Maximum number of threads that keep a raw stack at a time.
pub const MAX_RAW_WALKS: u32 = 1 << 10;

/// Bytes of a thread or process name in the kernel, including the final zero.
pub const COMM_BYTES: usize = 16;

/// Mappings that the mapping cache of a thread holds.
pub const CACHED_MAPPINGS: usize = 8;

/// Maximum number of control groups, and of users, that the process filter can select.
pub const MAX_SELECTED: u32 = 64;

/// Levels of control groups that are searched for a selected group, from the root down.
pub const MAX_CGROUP_LEVELS: u32 = 32;

/// Slots of the rule cache; a power of two.
pub const RULE_CACHE_SLOTS: u32 = 1 << 16;

/// If probe hits are counted, one in this many is, at random.
pub const HITS_PER_COUNT: u32 = 64;

/// Maximum number of threads with a state at a time.
pub const MAX_THREADS: u32 = 1 << 16;

/// Allocators whose calls inside of one call of a thread are recognized by their caller: wrappers around an
/// allocator, each with its own code, and the allocator.
pub const NESTED_ALLOCATORS: usize = 4;

/// Slots for declined calls; a power of two. Threads that run at the same time hardly ever share one.
pub const DECLINED_SLOTS: u32 = 1 << 12;

/// Maximum number of processes with a state at a time.
pub const MAX_PROCESSES: u32 = 1 << 16;

/// Maximum number of names and control groups of processes that ended before they were reached.
pub const MAX_SHORT_LIVED: u32 = 1 << 12;

/// Maximum number of distinct stacks that are remembered as sent.
pub const MAX_STACKS: u32 = 1 << 18;

/// Maximum number of files with a loaded unwind table.
pub const MAX_TABLES: u32 = 1 << 14;

/// Maximum number of 64-KiB pages of code with rows, over all files: 4 GiB of code.
pub const MAX_PAGES: u32 = 1 << 16;

/// Slots of a segment of rows: 2 MiB. Each slot holds two rows of four bytes. Segments are created on demand.
pub const SEGMENT_SLOTS: u32 = 1 << 18;

/// Segments of rows in the default budget; the agent may set another number.
pub const DEFAULT_SEGMENTS: u32 = 128;

/// Maximum number of distinct unwind rules, over all files.
pub const MAX_RULES: u32 = 1 << 16;

/// Maximum number of blocks that can be live at a time, however large the memory is.
pub const MAX_BLOCKS: u32 = 1 << 28;

/// Default maximum number of live blocks.
pub const DEFAULT_MAX_LIVE: u32 = 1 << 22;

/// Default size of the ring between the kernel and the agent.
pub const DEFAULT_RING_BYTES: u32 = 32 << 20;
