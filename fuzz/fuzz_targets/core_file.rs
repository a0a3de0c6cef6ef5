//! The cargo-fuzz target of the boundary `core_file` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run core_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("core_file", data));
