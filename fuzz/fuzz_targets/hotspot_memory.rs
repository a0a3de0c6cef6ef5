//! The cargo-fuzz target of the boundary `hotspot_memory` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run hotspot_memory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("hotspot_memory", data));
