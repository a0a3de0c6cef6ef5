//! What the kernel program and the agent agree on: wire structs, counters and limits.
#![no_std]
/// Sum, checked.
pub fn sum(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}
