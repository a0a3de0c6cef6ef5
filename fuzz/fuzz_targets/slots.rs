//! The cargo-fuzz target of the boundary `slots` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run slots`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("slots", data));
