//! The cargo-fuzz target of the boundary `types_names` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run types_names`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("types_names", data));
