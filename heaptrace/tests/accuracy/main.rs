//! Tests of the accuracy of sampling: the kernel program's arithmetic on simulated CPUs, and the real join, compared with the
//! truth.
//!
//! Seeds are fixed, so every run is the same; `HEAPTRACE_ACCURACY_SEED` sets another seed. `cargo xtask accuracy` writes the
//! table of errors to docs/accuracy.md.
#![expect(clippy::unwrap_used, reason = "a test")]

mod coverage;
mod estimates;
mod gaps;
mod intervals;
mod machine;
mod mutants;
mod random;
mod replay;
