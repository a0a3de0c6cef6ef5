//! The cargo-fuzz target of the boundary `reports` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run reports`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("reports", data));
