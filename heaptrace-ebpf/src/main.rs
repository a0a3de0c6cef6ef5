//! heaptrace's kernel program.
//!
//! One file per concern (`thread`, `process`, `live`, `stack`, `counters`), one per hook family
//! (`hooks/`). Everything here runs under the verifier: no panics, no unbounded loops, at most 512
//! bytes of stack; what is larger lives in [`maps`].
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "fetch-and-add: see counters.rs")]

mod choice;
mod counters;
mod decided;
mod found;
mod globals;
mod hits;
mod hooks;
mod live;
mod maps;
mod own_stack;
mod places;
mod process;
mod ring;
mod sample;
mod seen;
mod stack;
mod thread;
mod trail;
mod unwind;
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

/// What the kernel asks of programs that call GPL-only helpers.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // The verifier refuses a program that could come here; nothing to report to.
    loop {}
}
