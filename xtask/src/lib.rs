//! heaptrace's development tasks: everything behind `cargo xtask TASK`.
//!
//! No stage of the flow. It builds, runs, tests and measures heaptrace from outside, and links none of its
//! code. Each task has a file or a folder of its own, as does each part that tasks share.

pub mod accuracy;
pub mod advisories;
pub mod apt;
pub mod bench;
pub mod bpf_linker;
pub mod build_ebpf;
pub mod built_with;
pub mod busy;
pub mod cargo;
pub mod check;
pub mod dependencies;
pub mod differential;
pub mod digest;
pub mod fuzz;
pub mod fuzz_table;
pub mod hostile;
pub mod lanes;
pub mod licence;
pub mod npm;
pub mod packages;
pub mod pip;
pub mod placements;
pub mod process;
pub mod release;
pub mod run;
pub mod runtimes;
pub mod soak;
pub mod stable_rustc;
pub mod test;
pub mod test_result;
pub mod toolchain;
pub mod types;
pub mod vm;
pub mod workspace;
