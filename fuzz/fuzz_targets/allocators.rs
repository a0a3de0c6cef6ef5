//! See the boundary of this name in heaptrace/src/fuzz.rs: `cargo +nightly fuzz run allocators`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("allocators", data));
