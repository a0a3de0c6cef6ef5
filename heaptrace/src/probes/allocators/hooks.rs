//! The table of allocator functions, with the kernel programs that read their arguments.
//!
//! Stage: probes. Must not know files.

use super::model::{Hook, OnReturn};

/// Groups of functions with the same arguments and result: their names, and the programs on them.
pub(super) type Family = &'static [(&'static [&'static str], Hook)];

/// All families.
const ALL: [Family; 10] = [
    MALLOC,
    MAPPINGS,
    REALLOCARRAY,
    JEMALLOC,
    OPERATORS,
    TCMALLOC,
    MIMALLOC,
    SNMALLOC,
    RPMALLOC,
    RUST,
];

/// The static name of an entry program, if a function in these tables has it.
pub(super) fn entry(name: &str) -> Option<&'static str> {
    let hooks = ALL.into_iter().flatten().map(|(_, hook)| hook.entry);
    hooks.into_iter().find(|entry| *entry == name)
}

const fn allocates(entry: &'static str) -> Hook {
    Hook {
        entry,
        on_return: OnReturn::Probed,
    }
}

const fn throws(entry: &'static str) -> Hook {
    Hook {
        entry,
        on_return: OnReturn::Instructions,
    }
}

const FREES: Hook = Hook {
    entry: "free_entry",
    on_return: OnReturn::Ignored,
};

const HEAP_FREES: Hook = Hook {
    entry: "heap_free_entry",
    on_return: OnReturn::Ignored,
};

/// The malloc family. The names may have a prefix.
///
/// `reallocarray` is not in it, because some allocators implement it by a call of `realloc`, which is counted.
pub(super) const MALLOC: Family = &[
    (&["malloc", "valloc", "pvalloc"], allocates("malloc_entry")),
    (&["calloc"], allocates("calloc_entry")),
    (&["realloc"], allocates("realloc_entry")),
    (
        &["free", "cfree", "free_sized", "free_aligned_sized"],
        FREES,
    ),
    (&["posix_memalign"], allocates("posix_memalign_entry")),
    (&["aligned_alloc", "memalign"], allocates("aligned_entry")),
];

const fn maps(entry: &'static str) -> Hook {
    Hook {
        entry,
        on_return: OnReturn::Mapped,
    }
}

/// Functions with which programs map memory.
pub(super) const MAPPINGS: Family = &[
    (&["mmap", "mmap64"], maps("mmap_entry")),
    (&["munmap"], maps("munmap_entry")),
    (&["mremap"], maps("mremap_entry")),
];

/// What is on the functions of a C library.
pub fn c_library(mappings: bool) -> impl Iterator<Item = Hook> {
    let mapping = MAPPINGS.iter().filter(move |_| mappings);
    MALLOC.iter().chain(mapping).map(|(_, hook)| *hook)
}

/// What is on the functions of other libraries that many programs have: jemalloc, and those with operators of C++.
pub fn other_libraries() -> impl Iterator<Item = Hook> {
    JEMALLOC.iter().chain(OPERATORS).map(|(_, hook)| *hook)
}

/// `reallocarray` and its like, for allocators that don't implement them by a call of `realloc`.
pub(super) const REALLOCARRAY: Family = &[
    (&["reallocarray"], allocates("reallocarray_entry")),
    (&["reallocf"], allocates("reallocf_entry")),
];

/// Further functions of jemalloc, with the same prefix as its `malloc`.
pub(super) const JEMALLOC: Family = &[
    (&["mallocx"], allocates("malloc_entry")),
    (&["rallocx"], allocates("realloc_entry")),
    (&["xallocx"], allocates("resize_entry")),
    (&["dallocx", "sdallocx"], FREES),
];

/// C++'s operators, for allocators that have their own.
pub(super) const OPERATORS: Family = &[
    (
        &[
            "_Znwm",
            "_Znam",
            "_ZnwmSt11align_val_t",
            "_ZnamSt11align_val_t",
        ],
        throws("new_entry"),
    ),
    (
        &[
            "_ZnwmRKSt9nothrow_t",
            "_ZnamRKSt9nothrow_t",
            "_ZnwmSt11align_val_tRKSt9nothrow_t",
            "_ZnamSt11align_val_tRKSt9nothrow_t",
        ],
        allocates("malloc_entry"),
    ),
    (
        &[
            "_ZdlPv",
            "_ZdaPv",
            "_ZdlPvRKSt9nothrow_t",
            "_ZdaPvRKSt9nothrow_t",
            "_ZdlPvm",
            "_ZdaPvm",
            "_ZdlPvSt11align_val_t",
            "_ZdaPvSt11align_val_t",
            "_ZdlPvSt11align_val_tRKSt9nothrow_t",
            "_ZdaPvSt11align_val_tRKSt9nothrow_t",
            "_ZdlPvmSt11align_val_t",
            "_ZdaPvmSt11align_val_t",
        ],
        FREES,
    ),
];

/// tcmalloc's own names, both of gperftools and of Google's newer tcmalloc.
pub(super) const TCMALLOC: Family = &[
    (
        &[
            "tc_malloc",
            "tc_valloc",
            "tc_pvalloc",
            "tc_malloc_skip_new_handler",
            "TCMallocInternalMalloc",
            "TCMallocInternalValloc",
            "TCMallocInternalPvalloc",
            "TCMallocInternalNewNothrow",
            "TCMallocInternalNewArrayNothrow",
            "TCMallocInternalNewAlignedNothrow",
            "TCMallocInternalNewArrayAlignedNothrow",
            "tc_new_nothrow",
            "tc_newarray_nothrow",
            "tc_new_aligned_nothrow",
            "tc_newarray_aligned_nothrow",
            "tcmalloc_size_returning_operator_new_nothrow",
            "tcmalloc_size_returning_operator_new_aligned_nothrow",
            "tcmalloc_size_returning_operator_new_hot_cold_nothrow",
            "tcmalloc_size_returning_operator_new_aligned_hot_cold_nothrow",
        ],
        allocates("malloc_entry"),
    ),
    (
        &[
            "tc_new",
            "tc_newarray",
            "tc_new_aligned",
            "tc_newarray_aligned",
            "TCMallocInternalNew",
            "TCMallocInternalNewArray",
            "TCMallocInternalNewAligned",
            "TCMallocInternalNewArrayAligned",
            "__size_returning_new",
            "__size_returning_new_aligned",
            "__size_returning_new_hot_cold",
            "__size_returning_new_aligned_hot_cold",
            "tcmalloc_size_returning_operator_new",
            "tcmalloc_size_returning_operator_new_aligned",
            "_Znwm12__hot_cold_t",
            "_Znam12__hot_cold_t",
            "_ZnwmSt11align_val_t12__hot_cold_t",
            "_ZnamSt11align_val_t12__hot_cold_t",
        ],
        throws("new_entry"),
    ),
    (
        &["tc_calloc", "TCMallocInternalCalloc"],
        allocates("calloc_entry"),
    ),
    (
        &["tc_realloc", "TCMallocInternalRealloc"],
        allocates("realloc_entry"),
    ),
    (
        &["TCMallocInternalReallocArray"],
        allocates("reallocarray_entry"),
    ),
    (
        &[
            "tc_memalign",
            "TCMallocInternalMemalign",
            "TCMallocInternalAlignedAlloc",
        ],
        allocates("aligned_entry"),
    ),
    (
        &["tc_posix_memalign", "TCMallocInternalPosixMemalign"],
        allocates("posix_memalign_entry"),
    ),
    (
        &[
            "tc_free",
            "tc_cfree",
            "tc_free_sized",
            "tc_delete",
            "tc_deletearray",
            "tc_delete_sized",
            "tc_deletearray_sized",
            "tc_delete_nothrow",
            "tc_deletearray_nothrow",
            "tc_delete_aligned",
            "tc_deletearray_aligned",
            "tc_delete_sized_aligned",
            "tc_deletearray_sized_aligned",
            "tc_delete_aligned_nothrow",
            "tc_deletearray_aligned_nothrow",
            "TCMallocInternalFree",
            "TCMallocInternalCfree",
            "TCMallocInternalFreeSized",
            "TCMallocInternalFreeAlignedSized",
            "TCMallocInternalSdallocx",
            "TCMallocInternalDelete",
            "TCMallocInternalDeleteArray",
            "TCMallocInternalDeleteSized",
            "TCMallocInternalDeleteArraySized",
            "TCMallocInternalDeleteNothrow",
            "TCMallocInternalDeleteArrayNothrow",
            "TCMallocInternalDeleteAligned",
            "TCMallocInternalDeleteArrayAligned",
            "TCMallocInternalDeleteSizedAligned",
            "TCMallocInternalDeleteArraySizedAligned",
            "TCMallocInternalDeleteAlignedNothrow",
            "TCMallocInternalDeleteArrayAlignedNothrow",
            "sdallocx",
        ],
        FREES,
    ),
];

/// mimalloc's own names. Version 3 has heaps of threads in addition to its heaps.
pub(super) const MIMALLOC: Family = &[
    (
        &[
            "mi_malloc",
            "mi_zalloc",
            "mi_malloc_small",
            "mi_zalloc_small",
            "mi_malloc_aligned",
            "mi_malloc_aligned_at",
            "mi_zalloc_aligned",
            "mi_zalloc_aligned_at",
            "mi_valloc",
            "mi_pvalloc",
            "mi_new_nothrow",
            "mi_new_aligned_nothrow",
        ],
        allocates("malloc_entry"),
    ),
    (
        &[
            "mi_aligned_alloc",
            "mi_memalign",
            "mi_heap_malloc",
            "mi_theap_malloc",
            "mi_heap_zalloc",
            "mi_theap_zalloc",
            "mi_heap_malloc_small",
            "mi_theap_malloc_small",
            "mi_heap_malloc_aligned",
            "mi_theap_malloc_aligned",
            "mi_heap_malloc_aligned_at",
            "mi_theap_malloc_aligned_at",
            "mi_heap_zalloc_aligned",
            "mi_theap_zalloc_aligned",
            "mi_heap_zalloc_aligned_at",
            "mi_theap_zalloc_aligned_at",
        ],
        allocates("aligned_entry"),
    ),
    (
        &[
            "mi_calloc",
            "mi_mallocn",
            "mi_calloc_aligned",
            "mi_calloc_aligned_at",
        ],
        allocates("calloc_entry"),
    ),
    (
        &[
            "mi_heap_calloc",
            "mi_theap_calloc",
            "mi_heap_mallocn",
            "mi_theap_mallocn",
            "mi_heap_calloc_aligned",
            "mi_theap_calloc_aligned",
            "mi_heap_calloc_aligned_at",
            "mi_theap_calloc_aligned_at",
        ],
        allocates("heap_calloc_entry"),
    ),
    (&["mi_posix_memalign"], allocates("posix_memalign_entry")),
    (
        &[
            "mi_realloc",
            "mi_rezalloc",
            "mi_realloc_aligned",
            "mi_realloc_aligned_at",
            "mi_rezalloc_aligned",
            "mi_rezalloc_aligned_at",
        ],
        allocates("realloc_entry"),
    ),
    (
        &[
            "mi_heap_realloc",
            "mi_theap_realloc",
            "mi_heap_rezalloc",
            "mi_theap_rezalloc",
            "mi_heap_realloc_aligned",
            "mi_theap_realloc_aligned",
            "mi_heap_realloc_aligned_at",
            "mi_theap_realloc_aligned_at",
            "mi_heap_rezalloc_aligned",
            "mi_theap_rezalloc_aligned",
            "mi_heap_rezalloc_aligned_at",
            "mi_theap_rezalloc_aligned_at",
        ],
        allocates("heap_realloc_entry"),
    ),
    (&["mi_reallocf"], allocates("reallocf_entry")),
    (
        &["mi_heap_reallocf", "mi_theap_reallocf"],
        allocates("heap_reallocf_entry"),
    ),
    (
        &[
            "mi_reallocn",
            "mi_recalloc",
            "mi_reallocarray",
            "mi_recalloc_aligned",
            "mi_recalloc_aligned_at",
            "mi_aligned_recalloc",
            "mi_aligned_offset_recalloc",
        ],
        allocates("reallocarray_entry"),
    ),
    (
        &[
            "mi_heap_reallocn",
            "mi_theap_reallocn",
            "mi_heap_recalloc",
            "mi_theap_recalloc",
            "mi_heap_recalloc_aligned",
            "mi_theap_recalloc_aligned",
            "mi_heap_recalloc_aligned_at",
            "mi_theap_recalloc_aligned_at",
        ],
        allocates("heap_reallocarray_entry"),
    ),
    (
        &[
            "mi_free",
            "mi_cfree",
            "mi_free_size",
            "mi_free_size_aligned",
            "mi_free_aligned",
        ],
        FREES,
    ),
    (&["mi_new", "mi_new_aligned"], throws("new_entry")),
    (&["mi_new_n"], throws("new_n_entry")),
    (
        &["mi_heap_alloc_new", "mi_theap_alloc_new"],
        throws("heap_new_entry"),
    ),
    (
        &["mi_heap_alloc_new_n", "mi_theap_alloc_new_n"],
        throws("heap_new_n_entry"),
    ),
    (&["mi_new_realloc"], throws("new_realloc_entry")),
    (&["mi_new_reallocn"], throws("new_reallocn_entry")),
];

/// snmalloc's own names: its functions with a prefix, and those that its Rust crate calls.
pub(super) const SNMALLOC: Family = &[
    (&["sn_malloc"], allocates("malloc_entry")),
    (&["sn_calloc"], allocates("calloc_entry")),
    (&["sn_realloc"], allocates("realloc_entry")),
    (&["sn_reallocarray"], allocates("reallocarray_entry")),
    (
        &[
            "sn_aligned_alloc",
            "sn_memalign",
            "sn_rust_alloc",
            "sn_rust_alloc_zeroed",
        ],
        allocates("aligned_entry"),
    ),
    (&["sn_posix_memalign"], allocates("posix_memalign_entry")),
    (&["sn_rust_realloc"], allocates("rust_realloc_entry")),
    (&["sn_free", "sn_cfree", "sn_rust_dealloc"], FREES),
];

/// rpmalloc's own names.
pub(super) const RPMALLOC: Family = &[
    (
        &["rpmalloc", "rpvalloc", "rppvalloc", "rpzalloc"],
        allocates("malloc_entry"),
    ),
    (&["rpcalloc"], allocates("calloc_entry")),
    (&["rprealloc"], allocates("realloc_entry")),
    (
        &[
            "rpaligned_alloc",
            "rpaligned_zalloc",
            "rpmemalign",
            "rpmalloc_heap_alloc",
        ],
        allocates("aligned_entry"),
    ),
    (
        &["rpaligned_calloc", "rpmalloc_heap_calloc"],
        allocates("heap_calloc_entry"),
    ),
    (
        &["rpmalloc_heap_aligned_alloc"],
        allocates("heap_aligned_entry"),
    ),
    (
        &["rpmalloc_heap_aligned_calloc"],
        allocates("heap_aligned_calloc_entry"),
    ),
    (&["rpposix_memalign"], allocates("posix_memalign_entry")),
    (&["rpaligned_realloc"], allocates("aligned_realloc_entry")),
    (&["rpmalloc_heap_realloc"], allocates("heap_realloc_entry")),
    (
        &["rpmalloc_heap_aligned_realloc"],
        allocates("heap_aligned_realloc_entry"),
    ),
    (&["rpfree"], FREES),
    (&["rpmalloc_heap_free"], HEAP_FREES),
];

/// Functions that Rust's standard library calls. These are suffixes, because newer compilers mangle the names.
pub(super) const RUST: Family = &[
    (
        &["__rust_alloc", "__rust_alloc_zeroed"],
        allocates("malloc_entry"),
    ),
    (&["__rust_realloc"], allocates("rust_realloc_entry")),
    (&["__rust_dealloc"], FREES),
];
