//! What a hit of a probe costs on this machine: measured, in some hundredths of a second.
//!
//! Stage: probes. Two functions of our own are called in a loop, without probes and with some, as `malloc` and
//! `free` have them: on both entries and on one return. What is measured is the trap; the programs that run
//! in it come on top. Probes a thread of this process, and nobody else.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::attach::attributes;
use crate::kernel::tracefs::Definitions;
use crate::proc::maps;
use crate::sys::{self, PerfTarget};

/// Pairs of calls in a round: some milliseconds of hits.
const CALLS: u32 = 2_000;

/// Rounds, of which the quickest counts: whatever disturbs one only makes it slower.
const ROUNDS: usize = 6;

/// Hits in a pair of calls.
const HITS: u32 = 3;

/// Begins with an instruction that the kernel emulates, as the places do that probes are put on.
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

/// Time that a hit takes, and the events that it was measured by. To close them takes the kernel longer than all of
/// this, and they have to be closed before their definitions go.
pub fn hit(definitions: &mut Definitions) -> io::Result<(Duration, Vec<OwnedFd>)> {
    let unprobed = quickest();
    let mut open = Vec::new();
    for (function, is_return) in [
        (like_malloc as extern "C" fn(), true),
        (like_malloc, false),
        (like_free, false),
    ] {
        let (file, offset) = place(function as usize as u64)?;
        let event = definitions.define(&file, offset, is_return)?;
        // SAFETY: a plain system call.
        let tid = unsafe { libc::gettid() };
        let target = PerfTarget::Thread(tid as u32);
        open.push(sys::perf_event_open(&mut attributes(event), target)?);
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

/// The file and the offset in it that an address of this process's code stands for.
fn place(address: u64) -> io::Result<(File, u64)> {
    let own = std::process::id();
    let text = maps::read(own)?;
    let mapping = maps::parse(&text)
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
        .ok_or_else(|| io::Error::other("this program's own code is mapped from no file"))?;
    let offset = address - mapping.start + mapping.offset;
    let opened = maps::open_mapped(own, &mapping).map_err(io::Error::other)?;
    Ok((opened.file, offset))
}
