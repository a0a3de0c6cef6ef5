//! The cargo-fuzz target of the boundary `v8_image` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run v8_image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("v8_image", data));
