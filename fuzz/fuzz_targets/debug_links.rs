//! See the boundary of this name in heaptrace/src/fuzz.rs: `cargo +nightly fuzz run debug_links`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("debug_links", data));
