//! The cargo-fuzz target of the boundary `data_messages` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run data_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("data_messages", data));
