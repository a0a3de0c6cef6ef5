//! The cargo-fuzz target of the boundary `status` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run status`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("status", data));
