//! The cargo-fuzz target of the boundary `debug_links` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run debug_links`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("debug_links", data));
