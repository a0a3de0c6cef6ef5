//! The accuracy of sampling: the kernel program's own arithmetic, run on simulated CPUs, and the real
//! join stage behind it, held against what is known to be true.
//!
//! Seeds are fixed, so that a run is like any other; `HEAPTRACE_ACCURACY_SEED` makes it another one.
//! `cargo xtask accuracy` has the table of errors written to docs/accuracy.md.
#![expect(clippy::unwrap_used, reason = "a test")]

mod coverage;
mod estimates;
mod gaps;
mod machine;
mod mutants;
mod random;
mod replay;
