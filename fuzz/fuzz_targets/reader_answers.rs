//! The cargo-fuzz target of the boundary `reader_answers` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run reader_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("reader_answers", data));
