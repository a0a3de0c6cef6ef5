//! The cargo-fuzz target of the boundary `reader_questions` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run reader_questions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("reader_questions", data));
