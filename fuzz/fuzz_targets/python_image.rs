//! The cargo-fuzz target of the boundary `python_image` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run python_image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("python_image", data));
