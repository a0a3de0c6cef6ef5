//! The rows of the table of resident memory.
//!
//! Stage: output. Knows names and words, not how the numbers are found.

use crate::proc::residency::MappingKind;

/// What resident memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Requested bytes of live blocks.
    Live,
    /// What their sizes are rounded up by.
    Rounding,
    /// What the allocator has before each block.
    Headers,
    /// Free bytes on pages that also have live blocks.
    Fragmentation,
    /// Pages of an allocator without a live block.
    FreePages,
    /// What an allocator has beside live blocks, where the parts of it are not known.
    HeapRest,
    /// Memory of an allocator where the states of pages are not known.
    Heap,
    /// What the program mapped itself.
    Mapped,
    /// Stacks of threads.
    Stacks,
    /// Programs, libraries and other files.
    Files,
    /// Memory that can be shared.
    Shared,
    /// Memory without a file that was not recorded.
    Other,
    /// Pages of the kernel.
    Kernel,
}

impl What {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 13] = [
        Self::Live,
        Self::Rounding,
        Self::Headers,
        Self::Fragmentation,
        Self::FreePages,
        Self::HeapRest,
        Self::Heap,
        Self::Mapped,
        Self::Stacks,
        Self::Files,
        Self::Shared,
        Self::Other,
        Self::Kernel,
    ];

    /// Its name for programs.
    pub fn key(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Rounding => "rounding",
            Self::Headers => "headers",
            Self::Fragmentation => "fragmentation",
            Self::FreePages => "free_pages",
            Self::HeapRest => "heap_rest",
            Self::Heap => "heap",
            Self::Mapped => "mapped",
            Self::Stacks => "stacks",
            Self::Files => "files",
            Self::Shared => "shared",
            Self::Other => "other",
            Self::Kernel => "kernel",
        }
    }

    /// The row of a mapping in which nothing was recorded.
    pub(super) fn of_mapping(kind: MappingKind) -> Self {
        match kind {
            MappingKind::Anonymous => Self::Other,
            MappingKind::Heap => Self::FreePages,
            MappingKind::Stack => Self::Stacks,
            MappingKind::File => Self::Files,
            MappingKind::Shared => Self::Shared,
            MappingKind::Kernel => Self::Kernel,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What it is.
    pub what: What,
    /// Resident bytes.
    pub bytes: u64,
    /// Their standard error; 0 if they are counted.
    pub error: u64,
}
