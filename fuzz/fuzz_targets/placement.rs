//! The cargo-fuzz target of the boundary `placement` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run placement`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("placement", data));
