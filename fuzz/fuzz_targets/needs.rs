//! The cargo-fuzz target of the boundary `needs` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run needs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("needs", data));
