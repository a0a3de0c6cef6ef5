//! The cargo-fuzz target of the boundary `maps` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run maps`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("maps", data));
