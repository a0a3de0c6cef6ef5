//! The cargo-fuzz target of the boundary `ring_events` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run ring_events`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("ring_events", data));
