//! The cargo-fuzz target of the boundary `perf_map` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run perf_map`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("perf_map", data));
