//! Mappings of a process, with their pages.
//!
//! Part of `proc`. Must not know how they are read.

/// What is in a page of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageState {
    /// Nothing: it was never touched, or was given back.
    Untouched,
    /// It is in memory.
    Resident,
    /// It is in memory, and part of a huge page.
    Huge,
    /// It is swapped.
    Swapped,
    /// It was read and never written. All such pages share one page of zeros, which no process is charged for.
    Zero,
}

impl PageState {
    /// All of them, in the order of their numbers in data files.
    pub const ALL: [Self; 5] = [
        Self::Untouched,
        Self::Resident,
        Self::Huge,
        Self::Swapped,
        Self::Zero,
    ];

    /// Whether the page counts as resident memory of the process.
    pub fn is_resident(self) -> bool {
        matches!(self, Self::Resident | Self::Huge)
    }
}

/// Pages that follow each other, all in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub pages: u32,
    /// What is in them.
    pub state: PageState,
}

/// Kinds of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MappingKind {
    /// Memory of the process alone, without a file.
    #[default]
    Anonymous,
    /// The heap that grows by `brk`.
    Heap,
    /// The stack of a thread.
    Stack,
    /// A file, also a changed copy of a part of it, and the zeroed variables of a program or library.
    File,
    /// Memory that can be shared with other processes: shared memory, memory files.
    Shared,
    /// Pages of the kernel, as the vDSO.
    Kernel,
}

impl MappingKind {
    /// All of them, in the order of their numbers in data files.
    pub const ALL: [Self; 6] = [
        Self::Anonymous,
        Self::Heap,
        Self::Stack,
        Self::File,
        Self::Shared,
        Self::Kernel,
    ];
}

/// A mapping of a process, with sums in bytes as the kernel counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Its kind.
    pub kind: MappingKind,
    /// Path of its file, or a name in brackets; empty if it has none.
    pub name: String,
    /// What is in memory.
    pub resident: u64,
    /// The part of that which no other process has.
    pub private: u64,
    /// What is swapped.
    pub swapped: u64,
    /// What is in huge pages.
    pub huge: u64,
    /// Its pages; empty if they were not looked at.
    pub runs: Vec<Run>,
}
