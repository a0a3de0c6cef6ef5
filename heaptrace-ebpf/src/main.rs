//! heaptrace's kernel program. The verifier checks it: no panics, no unbounded loops, at most 512 bytes of
//! stack.
//!
//! The layers, from the lowest up. Each one uses only layers above it in this list:
//!
//! - `globals`: constants that the agent sets before it loads the program
//! - `maps`: every map, and how entries are read safely
//! - `own_stack`: keeps programs on the stack of the thread they run for
//! - `kernel`: the clock, and members of kernel structs
//! - `memory`: the memory of the traced process
//! - `counters`: counters and unique ids
//! - `ring`: records of any length, and when the agent is woken for records
//! - `hash`: the hash of stacks
//! - `caller`: the calling thread, and where its call returns to
//! - `fast`: calls that come from the fast path's code, and the hints for it
//! - `probe_hits`: the first step of each probe program; counts probe hits per process
//! - `counting_filter`: tells most calls that nothing is known of their address
//! - `declined`: calls that the sampling declined and that have no return probe
//! - `process_filter`, `process`: which processes are recorded, and their records
//! - `short_lived`: counts processes that end before the agent has reached them
//! - `sample`: which calls are recorded
//! - `live`: the blocks that are allocated and not freed
//! - `window`: a copy of a piece of the traced thread's stack
//! - `mapping_cache`, `rule_cache`, `walk`, `walk_cache`: the state and the caches of a walk
//! - `language`: what the frames of all languages have in common
//! - `python`: the frames of Python code
//! - `java`: steps through generated code of Java, and its frames
//! - `v8`: the frames of JavaScript
//! - `unwind`: the walk up a stack
//! - `raw`: what the agent needs to continue a walk that had no table
//! - `stack`: call stacks, captured and sent
//! - `thread`: the pending call of each thread
//! - `hooks`: the programs, one file per family of functions
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "fetch-and-add: see counters.rs")]

mod caller;
mod counters;
mod counting_filter;
mod declined;
mod fast;
mod globals;
mod hash;
mod hooks;
mod java;
mod kernel;
mod language;
mod live;
mod mapping_cache;
mod mapping_tree;
mod maps;
mod memory;
mod nested;
mod own_stack;
mod probe_hits;
mod process;
mod process_filter;
mod python;
mod raw;
mod ring;
mod rule_cache;
mod sample;
mod short_lived;
mod stack;
mod thread;
mod unwind;
mod v8;
mod walk;
mod walk_cache;
mod window;

/// SHA-256 of the sources that this object was built from, as hexadecimal digits.
#[used]
#[unsafe(link_section = "heaptrace.digest")]
static DIGEST: [u8; 64] = {
    let digest = env!("HEAPTRACE_SOURCES_SHA256").as_bytes();
    let mut bytes = [0; 64];
    let mut index = 0;
    while index < 64 {
        bytes[index] = digest[index];
        index += 1;
    }
    bytes
};

/// The licence that the kernel requires of programs that call GPL-only helpers.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // The verifier refuses any program that can reach this, and there is nothing to report to.
    loop {}
}
