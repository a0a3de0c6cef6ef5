//! The cargo-fuzz target of the boundary `jitdump` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run jitdump`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("jitdump", data));
