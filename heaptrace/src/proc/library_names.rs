//! Recognizes C libraries and allocators by the path of a mapping.
//!
//! Part of `proc`. Must not open files, because some are removed before they could be opened.

/// Whether a file is a C library itself.
pub fn is_c_library(path: &str) -> bool {
    let name = name_of(path);
    ["libc.so", "libc.musl", "libc-2.", "ld-musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether a file is a C library or a part of one. Their own calls map arenas and stacks.
pub fn is_of_c_library(path: &str) -> bool {
    let name = name_of(path);
    is_c_library(path) || name.starts_with("libpthread") || name.starts_with("ld-linux")
}

/// Whether a file is a library of an allocator, or a C library, which has one.
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

    /// Check that C libraries and allocators are recognized by the names that old and new distributions give them.
    #[test]
    fn libraries_are_recognized_by_name() {
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
