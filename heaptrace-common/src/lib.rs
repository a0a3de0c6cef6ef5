//! What the kernel program and the agent agree on: wire structs, counters and limits.
#![no_std]
