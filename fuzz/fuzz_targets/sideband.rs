//! The cargo-fuzz target of the boundary `sideband` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run sideband`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("sideband", data));
