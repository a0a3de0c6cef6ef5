//! The cargo-fuzz target of the boundary `allocators` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run allocators`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("allocators", data));
