//! The features of programs, builds and runs, each of which can be left out.
//!
//! Part of differential. It must not know what a feature does.

/// Something that programs, builds or runs can have.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feature {
    Cpp,
    Rust,
    Clang,
    Lto,
    Static,
    Stripped,
    FramePointers,
    Attach,
    Jemalloc,
    Tcmalloc,
    Mimalloc,
    /// Wrappers of the allocator's functions, preloaded or in the program.
    Wrappers,
    /// A ring that is too small.
    SmallRing,
    TailCalls,
    Failures,
    Threads,
    Signals,
    Fork,
    Vfork,
    Exec,
    Dlopen,
    Longjmp,
    Exceptions,
    Coroutines,
    Callbacks,
    Recursion,
}

/// The features that are left in.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    pub(super) without: Vec<Feature>,
    pub(super) only: Vec<Feature>,
}

impl Features {
    pub(super) fn has(&self, feature: Feature) -> bool {
        let wanted = self.only.is_empty() || self.only.contains(&feature);
        wanted && !self.without.contains(&feature)
    }
}
