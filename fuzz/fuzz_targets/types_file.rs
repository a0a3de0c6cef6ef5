//! The cargo-fuzz target of the boundary `types_file` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run types_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("types_file", data));
