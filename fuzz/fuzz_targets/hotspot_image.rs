//! The cargo-fuzz target of the boundary `hotspot_image` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run hotspot_image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("hotspot_image", data));
