//! The cargo-fuzz target of the boundary `cgroup` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run cgroup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("cgroup", data));
