//! What a library is for, by its name.
//!
//! Stage: probes. Knows no file: some are gone before anybody looks into them.

/// Whether a library is a C library itself.
pub(super) fn is_c_library(path: &str) -> bool {
    let name = name_of(path);
    ["libc.so", "libc.musl", "libc-2.", "ld-musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether a library is a C library or comes with one: their own calls map arenas and stacks.
pub fn is_of_c_library(path: &str) -> bool {
    let name = name_of(path);
    is_c_library(path) || name.starts_with("libpthread") || name.starts_with("ld-linux")
}

/// Whether a library is an allocator, or one of the kind that allocates for itself.
pub fn is_allocator(path: &str) -> bool {
    let name = name_of(path);
    is_c_library(path) || name.contains("malloc") && name.contains(".so")
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that C libraries are known by the names that distributions, old ones too, give them.
    #[test]
    fn libraries_are_told_by_name() {
        for path in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libc-2.31.so",
            "/lib/libc.musl-x86_64.so.1",
            "/lib/ld-musl-x86_64.so.1",
        ] {
            assert!(is_c_library(path) && is_allocator(path), "{path}");
        }
        assert!(is_of_c_library("/lib64/ld-linux-x86-64.so.2"));
        let jemalloc = "/usr/lib/libjemalloc.so.2";
        assert!(is_allocator(jemalloc) && !is_c_library(jemalloc));
        for path in [
            "/libc.so.6/libcurl.so.4",
            "/usr/bin/malloc-bench",
            "libc-client.so",
        ] {
            assert!(!is_allocator(path), "{path}");
        }
    }
}
