//! Measures the cost of a probe hit on this machine, within some hundredths of a second.
//!
//! Stage: probes. Two own functions are called in a loop, first without probes and then with the probes that `malloc`
//! and `free` get: on both entries and on one return. This measures the trap alone, without the kernel programs that
//! run in it. Probes one thread of this process only. Must not know allocators.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::perf_events::open_for_thread;
use crate::kernel::tracefs::Definitions;
use crate::proc::maps;
use crate::sys;

/// Pairs of calls in a round: some milliseconds of probe hits.
const CALLS: u32 = 2_000;

/// Rounds. The quickest counts, because a disturbance only makes a round slower.
const ROUNDS: usize = 6;

/// Probe hits in a pair of calls.
const HITS: u32 = 3;

/// A function that begins with an instruction that the kernel emulates, like most probe locations.
#[cfg(target_arch = "x86_64")]
macro_rules! probed {
    ($name:ident) => {
        #[unsafe(naked)]
        extern "C" fn $name() {
            core::arch::naked_asm!("push rbp", "pop rbp", "ret")
        }
    };
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! probed {
    ($name:ident) => {
        #[inline(never)]
        extern "C" fn $name() {
            black_box(stringify!($name));
        }
    };
}
probed!(like_malloc);
probed!(like_free);

/// Measures the time of a probe hit. Also returns the events that it was measured with: closing them takes the kernel
/// longer than the measurement, and they have to be closed before their definitions are removed.
pub fn hit(definitions: &mut Definitions) -> io::Result<(Duration, Vec<OwnedFd>)> {
    let unprobed = quickest();
    let mut open = Vec::new();
    for (function, is_return) in [
        (like_malloc as extern "C" fn(), true),
        (like_malloc, false),
        (like_free, false),
    ] {
        let (file, offset) = locate(function as usize as u64)?;
        let event = definitions.define(&file, offset, is_return)?;
        // SAFETY: a plain system call.
        let tid = unsafe { libc::gettid() };
        open.push(open_for_thread(event, tid as u32)?);
    }
    let probed = quickest();
    Ok((probed.saturating_sub(unprobed) / (CALLS * HITS), open))
}

fn quickest() -> Duration {
    let rounds = (0..ROUNDS).map(|_| round());
    rounds.min().unwrap_or_default()
}

fn round() -> Duration {
    let begin = sys::thread_time();
    for _ in 0..CALLS {
        black_box(like_malloc as extern "C" fn())();
        black_box(like_free as extern "C" fn())();
    }
    sys::thread_time().saturating_sub(begin)
}

/// The file that an address of this process's code is mapped from, and the offset in it.
fn locate(address: u64) -> io::Result<(File, u64)> {
    let own = std::process::id();
    let text = maps::read(own)?;
    let mapping = maps::parse(&text)
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
        .ok_or_else(|| io::Error::other("heaptrace's own code is not mapped from a file"))?;
    let offset = address - mapping.start + mapping.offset;
    let opened = maps::open_mapped(own, &mapping).map_err(io::Error::other)?;
    Ok((opened.file, offset))
}
