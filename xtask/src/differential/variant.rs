//! How a program is built, and how it is run.
//!
//! Part of differential. It chooses, and must not know the commands.

use std::fmt;

use heaptrace_tests::Random;

use super::feature::{Feature, Features};
use super::program::Language;

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Pie,
    NoPie,
    Static,
    StaticPie,
}

/// How a program is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    pub(super) clang: bool,
    /// Such as `2`, for `-O2`.
    pub(super) level: &'static str,
    pub(super) lto: bool,
    pub(super) link: Link,
    pub(super) stripped: bool,
    pub(super) frame_pointers: bool,
    /// Whether the program defines the allocator's functions itself, as wrappers.
    pub(super) wrapped: bool,
    /// Whether the program waits for a moment after it has loaded something, so that a tracer has read it.
    pub(super) settles: bool,
}

/// A library that replaces the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocator {
    Jemalloc,
    Tcmalloc,
    Mimalloc,
}

/// A library that wraps the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapper {
    /// Calls `__libc_malloc`.
    Libc,
    /// Calls what `dlsym(RTLD_NEXT)` finds.
    Next,
}

/// How a program is run and traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Attaches at the gate, rather than to start the program.
    pub(super) attach: bool,
    pub(super) allocator: Option<Allocator>,
    pub(super) wrapper: Option<Wrapper>,
    pub(super) small_ring: bool,
}

impl Build {
    pub(super) fn random(random: &mut Random, features: &Features, language: Language) -> Self {
        let link = match random.below(8) {
            0 if features.has(Feature::Static) => Link::Static,
            1 if features.has(Feature::Static) => Link::StaticPie,
            2 | 3 => Link::NoPie,
            _ => Link::Pie,
        };
        let is_rust = language == Language::Rust;
        let levels = ["0", "1", "2", "2", "3", "s"];
        let is_static = matches!(link, Link::Static | Link::StaticPie);
        Self {
            clang: !is_rust && features.has(Feature::Clang) && random.one_in(3),
            level: levels[random.below(levels.len())],
            lto: features.has(Feature::Lto) && random.one_in(4),
            link,
            // The names of functions must remain, as those that a program exports do.
            stripped: !is_rust && !is_static && features.has(Feature::Stripped) && random.one_in(5),
            frame_pointers: features.has(Feature::FramePointers) && random.one_in(4),
            wrapped: !is_static && !is_rust && features.has(Feature::Wrappers) && random.one_in(10),
            settles: !random.one_in(3),
        }
    }

    /// Whether lld links the C library in, which leaves no byte between functions that need none.
    pub(super) fn is_packed(&self, language: Language) -> bool {
        self.is_static() && (language == Language::Rust || self.clang && self.lto)
    }

    pub(super) fn is_static(&self) -> bool {
        matches!(self.link, Link::Static | Link::StaticPie)
    }
}

impl Run {
    /// Two runs of a program, each of another kind.
    pub(super) fn random_pair(
        random: &mut Random,
        features: &Features,
        build: &Build,
    ) -> [Self; 2] {
        // Nothing is preloaded into a static program; and one that defines the functions itself hides a library's.
        let may_preload = !build.is_static() && !build.wrapped;
        let mut one = |attach| {
            let allocator = match random.below(8) {
                0 if features.has(Feature::Jemalloc) => Some(Allocator::Jemalloc),
                1 if features.has(Feature::Tcmalloc) => Some(Allocator::Tcmalloc),
                2 if features.has(Feature::Mimalloc) => Some(Allocator::Mimalloc),
                _ => None,
            };
            let wrapper = match random.below(8) {
                0 if features.has(Feature::Wrappers) => Some(Wrapper::Libc),
                1 if features.has(Feature::Wrappers) => Some(Wrapper::Next),
                _ => None,
            };
            Self {
                attach,
                allocator: allocator.filter(|_| may_preload && wrapper != Some(Wrapper::Libc)),
                wrapper: wrapper.filter(|_| may_preload),
                small_ring: features.has(Feature::SmallRing) && random.one_in(12),
            }
        };
        [one(false), one(features.has(Feature::Attach))]
    }
}

impl Allocator {
    pub(super) const ALL: [Self; 3] = [Self::Jemalloc, Self::Tcmalloc, Self::Mimalloc];

    /// The beginning of its file's name.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Jemalloc => "libjemalloc.so.",
            Self::Tcmalloc => "libtcmalloc_minimal.so.",
            Self::Mimalloc => "libmimalloc.so.",
        }
    }

    pub(super) fn feature(self) -> Feature {
        match self {
            Self::Jemalloc => Feature::Jemalloc,
            Self::Tcmalloc => Feature::Tcmalloc,
            Self::Mimalloc => Feature::Mimalloc,
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} -O{}", self.link, self.level)?;
        let words = [
            (self.clang, "clang"),
            (self.lto, "LTO"),
            (self.stripped, "stripped"),
            (self.frame_pointers, "frame pointers"),
            (self.wrapped, "wrapped in the program"),
            (self.settles, "settles"),
        ];
        for (_, word) in words.iter().filter(|(is, _)| *is) {
            write!(f, ", {word}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.attach { "attached" } else { "launched" })?;
        if let Some(wrapper) = self.wrapper {
            write!(f, ", wrapper {wrapper:?}")?;
        }
        if let Some(allocator) = self.allocator {
            write!(f, ", {allocator:?}")?;
        }
        if self.small_ring {
            f.write_str(", small ring")?;
        }
        Ok(())
    }
}
