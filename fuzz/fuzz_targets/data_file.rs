//! See the boundary of this name in heaptrace/src/fuzz.rs: `cargo +nightly fuzz run data_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("data_file", data));
