//! The cargo-fuzz target of the boundary `demangle` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run demangle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("demangle", data));
