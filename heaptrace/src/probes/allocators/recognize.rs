//! Recognizes the known allocators by the names of their functions.
//!
//! Stage: probes. Uses symbol names only; must not know addresses.

use super::hooks::{
    Family, JEMALLOC, MALLOC, MAPPINGS, MIMALLOC, OPERATORS, REALLOCARRAY, RPMALLOC, RUST,
    SNMALLOC, TCMALLOC,
};
use super::model::{Hook, OnReturn};
use super::symbols::Symbols;

/// Most prefixes that are accepted in one file.
const MAX_PREFIXES: usize = 8;

/// A function that should be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its name.
    pub(super) name: String,
    /// The programs on it.
    pub(super) hook: Hook,
    /// Whether it may only call other probed functions. It is not probed then.
    pub(super) may_call_others: bool,
}

/// A recognized allocator.
#[derive(Debug)]
pub(super) struct Recognized {
    /// Its name.
    pub(super) kind: &'static str,
    /// Its functions that the file has.
    pub(super) wanted: Vec<Wanted>,
}

/// Suffixes of names by which allocators are recognized, with any prefix.
const ENDS: [&str; 12] = [
    "malloc",
    "calloc",
    "alloc",
    "free",
    "memalign",
    "mallctl",
    "allocx",
    "free_sized",
    "rust_alloc",
    "rust_alloc_zeroed",
    "reallocarray",
    "reallocf",
];

/// Prefixes of such names.
const BEGINNINGS: [&str; 12] = [
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdaPv",
    "mi_",
    "sn_",
    "rp",
    "tc_",
    "TCMalloc",
    "__size_returning",
    "tcmalloc_size_returning",
    "free_aligned",
];

/// The function that maps stacks for threads.
pub(super) const STARTS_THREADS: &str = "pthread_create";

/// Complete names that identify a file, or that are looked up themselves.
const MARKS: [&str; 8] = [
    STARTS_THREADS,
    "gnu_get_libc_version",
    "__libc_start_main",
    "_int_free",
    "mmap",
    "mmap64",
    "munmap",
    "mremap",
];

/// Whether a symbol with this name may be needed.
pub(super) fn is_wanted(name: &[u8]) -> bool {
    MARKS.iter().any(|mark| mark.as_bytes() == name)
        || ENDS.iter().any(|end| name.ends_with(end.as_bytes()))
        || BEGINNINGS
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
        || name.starts_with(b"_ZN8snmalloc")
        || name.ends_with(b"__rust_dealloc")
        || name.ends_with(b"__rust_realloc")
}

/// The allocators whose functions are among these symbols, the most specific first.
pub(super) fn recognize(symbols: &Symbols, prefix: Option<&str>) -> Vec<Recognized> {
    let mut found = Vec::new();
    let add = |found: &mut Vec<Recognized>, kind, prefix: &str, families: &[Family]| {
        let mut wanted = Vec::new();
        for (names, hook) in families.iter().copied().flatten() {
            for name in *names {
                let name = format!("{prefix}{name}");
                if symbols.has(&name) {
                    wanted.push(Wanted {
                        may_call_others: name.starts_with("_Zn"),
                        name,
                        hook: *hook,
                    });
                }
            }
        }
        if !wanted.is_empty() {
            found.push(Recognized { kind, wanted });
        }
    };
    let is_mimalloc = ["mi_malloc", "mi_malloc_aligned", "mi_heap_malloc"]
        .iter()
        .any(|name| symbols.has(name));
    if is_mimalloc && symbols.has("mi_free") {
        add(
            &mut found,
            "mimalloc",
            "",
            &[MALLOC, REALLOCARRAY, MIMALLOC, OPERATORS],
        );
    }
    let is_tcmalloc = symbols.has("tc_malloc") || symbols.has("TCMallocInternalMalloc");
    if is_tcmalloc {
        add(
            &mut found,
            "tcmalloc",
            "",
            &[MALLOC, TCMALLOC, OPERATORS, REALLOCARRAY],
        );
    }
    for prefix in jemalloc_prefixes(symbols) {
        if is_tcmalloc && prefix.is_empty() {
            continue;
        }
        if prefix.is_empty() {
            add(
                &mut found,
                "jemalloc",
                "",
                &[MALLOC, JEMALLOC, OPERATORS, REALLOCARRAY],
            );
        } else {
            add(
                &mut found,
                "jemalloc",
                &prefix,
                &[MALLOC, JEMALLOC, REALLOCARRAY],
            );
        }
    }
    let is_snmalloc = symbols.has("sn_malloc")
        || symbols.has("sn_rust_alloc")
        || symbols.names().any(|name| name.starts_with("_ZN8snmalloc"));
    if is_snmalloc {
        add(
            &mut found,
            "snmalloc",
            "",
            &[SNMALLOC, MALLOC, OPERATORS, REALLOCARRAY],
        );
    }
    // A linker omits functions that are never called.
    let is_rpmalloc = ["rpmalloc", "rpaligned_alloc", "rpcalloc"]
        .iter()
        .any(|name| symbols.has(name));
    if is_rpmalloc && symbols.has("rpfree") {
        add(
            &mut found,
            "rpmalloc",
            "",
            &[RPMALLOC, MALLOC, OPERATORS, REALLOCARRAY],
        );
    }
    let is_glibc = symbols.has("gnu_get_libc_version") && symbols.has("__libc_start_main");
    if is_glibc || symbols.has("_int_malloc") && symbols.has("_int_free") {
        add(&mut found, "glibc", "", &[MALLOC]);
    } else if symbols.has("__libc_start_main") {
        add(&mut found, "musl", "", &[MALLOC]);
    }
    if let Some(prefix) = prefix {
        add_named(symbols, prefix, &mut found);
    }
    found
}

/// Name of the kind of functions that map memory.
pub const MAPPINGS_KIND: &str = "mmap";

/// The functions with which programs map memory: those of a C library, and those of files that replace them.
pub(super) fn mappings(symbols: &Symbols) -> Option<Recognized> {
    let is_there =
        |name| symbols.has("__libc_start_main") && symbols.has(name) || symbols.exports(name);
    if !is_there("mmap") || !is_there("munmap") {
        return None;
    }
    let wanted = MAPPINGS
        .iter()
        .flat_map(|(names, hook)| names.iter().map(move |name| (*name, *hook)))
        .filter(|(name, _)| symbols.has(name))
        .map(|(name, hook)| Wanted {
            name: name.to_owned(),
            hook,
            may_call_others: false,
        })
        .collect();
    Some(Recognized {
        kind: MAPPINGS_KIND,
        wanted,
    })
}

/// An unknown allocator that the whole process uses, because it exports `malloc` and `free`.
pub(super) fn unnamed(symbols: &Symbols, kind: Option<&'static str>) -> Option<Recognized> {
    if !symbols.exports("malloc") || !symbols.exports("free") {
        return None;
    }
    let mut found = Vec::new();
    add_named(symbols, "", &mut found);
    let recognised = found.pop()?;
    Some(Recognized {
        kind: kind.unwrap_or("unknown"),
        ..recognised
    })
}

/// Adds the functions of a file that the user names as an allocator.
fn add_named(symbols: &Symbols, prefix: &str, found: &mut Vec<Recognized>) {
    let mut wanted = Vec::new();
    for (names, hook) in [MALLOC, REALLOCARRAY, JEMALLOC].iter().copied().flatten() {
        for name in *names {
            let name = format!("{prefix}{name}");
            if symbols.has(&name) {
                wanted.push(Wanted {
                    may_call_others: false,
                    name,
                    hook: *hook,
                });
            }
        }
    }
    if prefix.is_empty() {
        for (names, hook) in OPERATORS {
            for name in names.iter().filter(|name| symbols.has(name)) {
                wanted.push(Wanted {
                    may_call_others: true,
                    name: (*name).to_owned(),
                    hook: *hook,
                });
            }
        }
    }
    if !wanted.is_empty() {
        found.push(Recognized {
            kind: "named by the user",
            wanted,
        });
    }
}

/// The functions that Rust's standard library calls, for programs whose own allocator is not known.
pub(super) fn rust(symbols: &Symbols) -> Recognized {
    let mut wanted = Vec::new();
    for (ends, hook) in RUST {
        for end in *ends {
            let is_it = |name: &&str| {
                // Newer mangling: `_RNv`, the crate, and the name with its length before it.
                *name == *end || name.starts_with("_R") && name.ends_with(&format!("_{end}"))
            };
            for name in symbols.names().filter(is_it) {
                wanted.push(Wanted {
                    name: name.to_owned(),
                    hook: *hook,
                    may_call_others: true,
                });
            }
        }
    }
    // If all allocating functions were inlined, the others would only add cost: they call another allocator.
    if !wanted
        .iter()
        .any(|it| it.hook.on_return != OnReturn::Ignored)
    {
        wanted.clear();
    }
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    Recognized {
        kind: "rust",
        wanted,
    }
}

/// Whether a function of another file may allocate, judged by its name.
pub(super) fn is_hooked_elsewhere(name: &str) -> bool {
    [MALLOC, MIMALLOC, TCMALLOC, OPERATORS]
        .iter()
        .copied()
        .flatten()
        .any(|(names, _)| names.contains(&name))
}

/// Prefixes of jemalloc's names. `mallctl` identifies any prefix. A linker may omit it if it is never called, so the usual
/// prefixes are accepted without it.
fn jemalloc_prefixes(symbols: &Symbols) -> Vec<String> {
    const USUAL: [&str; 4] = ["", "je_", "_rjem_", "jemalloc_"];
    const OWN: [&str; 5] = ["mallctl", "mallocx", "rallocx", "xallocx", "sdallocx"];
    let mut prefixes: Vec<String> = symbols
        .names()
        .filter_map(|name| OWN.iter().find_map(|own| name.strip_suffix(own)))
        .filter(|prefix| USUAL.contains(prefix) || symbols.has(&format!("{prefix}mallctl")))
        // tcmalloc has some of these names as well.
        .filter(|prefix| *prefix != "tc_" && !prefix.starts_with("TCMalloc"))
        .filter(|prefix| {
            ["malloc", "calloc", "mallocx"]
                .iter()
                .any(|name| symbols.has(&format!("{prefix}{name}")))
        })
        .map(str::to_owned)
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes.truncate(MAX_PREFIXES);
    prefixes
}
