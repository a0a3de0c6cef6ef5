//! A C++ function's name, taken apart.
//!
//! Stage: types. Inline namespaces of the standard library are left out. Must not know what the names mean for a block.

use super::people::is_inline_namespace;
use super::text::{Segment, segments};

/// A function's name, taken apart, without inline namespaces.
pub(super) struct Parsed<'c> {
    /// The scope, innermost last.
    pub(super) scope: Vec<Segment<'c>>,
    pub(super) function: Segment<'c>,
}

/// Takes a function's name apart.
pub(super) fn parsed(name: &str) -> Option<Parsed<'_>> {
    let mut parts = segments(name);
    if parts.first().is_some_and(|it| it.name == "std")
        && parts.get(1).is_some_and(|it| is_inline_namespace(it.name))
    {
        parts.remove(1);
    }
    if parts.len() > 2 && parts.get(1).is_some_and(|it| is_inline_namespace(it.name)) {
        parts.remove(1);
    }
    let function = parts.pop()?;
    Some(Parsed {
        scope: parts,
        function,
    })
}

impl<'c> Parsed<'c> {
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        self.scope.first().is_some_and(|it| it.name == namespace)
    }

    /// Whether it is of the standard library.
    pub(super) fn is_standard(&self) -> bool {
        self.is_in("std") || self.is_in("__gnu_cxx")
    }

    /// Whether it is of a library of containers.
    pub(super) fn is_of_library(&self) -> bool {
        self.is_standard() || self.is_in("boost") || self.is_in("absl")
    }

    /// The class that it is a member of.
    pub(super) fn class(&self) -> Option<&Segment<'c>> {
        self.scope.last()
    }
}

/// Whether a symbol is an allocating function of C, or an `operator new`.
pub(super) fn is_allocator(symbol: &str) -> bool {
    matches!(
        symbol,
        "malloc"
            | "calloc"
            | "realloc"
            | "reallocarray"
            | "memalign"
            | "aligned_alloc"
            | "posix_memalign"
            | "valloc"
            | "pvalloc"
    ) || symbol.starts_with("_Znw")
        || symbol.starts_with("_Zna")
}

/// Functions between a program and its allocator that have no type.
pub(super) fn is_plain_allocator(name: &str) -> bool {
    let plain = name.split(['(', '@']).next().unwrap_or(name).trim_end();
    let plain = plain.split("[abi:").next().unwrap_or(plain);
    is_allocator(plain)
        || matches!(
            plain,
            "operator new"
                | "operator new[]"
                | "std::__libcpp_operator_new"
                | "std::__libcpp_allocate"
                | "std::__1::__libcpp_operator_new"
                | "std::__1::__libcpp_allocate"
        )
        || plain.starts_with("std::__1::__libcpp_operator_new<")
}
