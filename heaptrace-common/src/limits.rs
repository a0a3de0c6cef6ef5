//! Sizes that both sides must know.

/// Most frames that a stack can have, whatever the user asks for.
pub const MAX_FRAMES: usize = 128;

/// Bytes of a thread or process name, as the kernel keeps it.
pub const COMM_BYTES: usize = 16;

/// Threads whose state the kernel program can keep at a time.
pub const MAX_THREADS: u32 = 1 << 16;

/// Processes it can keep at a time.
pub const MAX_PROCESSES: u32 = 1 << 16;

/// Distinct stacks it remembers having sent.
pub const MAX_STACKS: u32 = 1 << 18;

/// Default of the blocks that can be live at a time.
pub const DEFAULT_MAX_LIVE: u32 = 1 << 22;

/// Default size of the ring between the kernel and the agent.
pub const DEFAULT_RING_BYTES: u32 = 32 << 20;
