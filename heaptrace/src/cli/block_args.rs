//! The options that keep each block in a data file.
//!
//! Part of the command line. Must not know what is done with the blocks.

use std::time::Duration;

use clap::Args;

use super::values;
use crate::config::KeptBlocks;

#[derive(Debug, Args)]
pub(super) struct Blocks {
    /// Keep each live block in the file, for `heaptrace who` and `heaptrace map`: its address, size, stack, thread and time.
    ///
    /// The file has the blocks that are live at each update and at the end, and what each process had not freed when it ended. A block
    /// that is freed before the next update (--interval) is left out. Each block needs about 8 bytes when it is allocated, and 4 when
    /// it is freed. What of the memory of processes is resident is read at the end, and every ten seconds or less often: a process
    /// can't change its mappings meanwhile. With --rotate, each file begins with the blocks that are live then, and the memory of that
    /// moment.
    #[arg(long)]
    blocks: bool,
    /// Keep each allocation and each free in the file, also those of blocks that live only briefly.
    ///
    /// `heaptrace who` can then show all blocks that were at an address. The file grows by about 10 bytes for each allocation with its
    /// free: some 10 MB a second in a program that allocates a million times a second. --sample makes it smaller.
    #[arg(long)]
    events: bool,
    /// Look into live blocks for the classes of C++ objects, read only: with --blocks or --events.
    ///
    /// An object with virtual functions begins with the address of its class's table of them, also in stripped programs. The first word
    /// of each live block is read at the end, and every ten seconds or less often, because a process can end before the run does. Memory that
    /// was swapped out comes back for it.
    #[arg(long)]
    inspect_live: bool,
    /// Look for blocks that nothing points to, at each mark and at the end; `heaptrace leaks` shows them.
    ///
    /// The process is stopped for it, usually for a few milliseconds, and for some 40 ms for each GiB if it has much memory. Registers, stacks, variables and
    /// blocks are searched for pointers, also for those that point into the middle of a block. What they don't lead to is unreachable:
    /// a leak, unless the program hides its pointers. A process that ends by itself can't be searched any more: end the run before, with
    /// --duration or Ctrl-C, or set a mark with --mark-every or SIGUSR2. A waiting system call of the process may return early (EINTR), as
    /// under a debugger. A pointer that is hidden (compressed, encrypted, in a file or a device), or that only the kernel keeps (epoll,
    /// io_uring), is not seen. In a sample, or in a process that ran before, memory that belongs to no recorded block counts as pointing,
    /// too, so fewer blocks are found. The data file needs no --blocks for this.
    #[arg(long)]
    pub(super) reachable: bool,
    /// With --reachable: stop a process for at most this long to read its memory, e.g. 500ms [default: 35ms, or 35ms for each GiB].
    ///
    /// If that is too short for all of it (reading takes some 200 ms for each GiB, divided by the number of processors), the rest is read
    /// before and, several times, afterwards, while the process runs. Then a pointer that the program moves all the time can be missed, and
    /// `heaptrace leaks` says so. All threads must have stopped before (within 300 ms), and the process waits for up to 200 ms more
    /// until its last allocations and frees are known.
    #[arg(long, value_name = "TIME", requires = "reachable", value_parser = values::duration)]
    pub(super) max_stop: Option<Duration>,
}

impl Blocks {
    /// Why the options can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let has_blocks = self.blocks || self.events;
        (self.inspect_live && !has_blocks).then_some(
            "--inspect-live looks into single blocks: record them with --blocks or --events",
        )
    }

    /// Whether live blocks are looked into.
    pub(super) fn inspects(&self) -> bool {
        self.inspect_live
    }
}

impl From<Blocks> for KeptBlocks {
    fn from(blocks: Blocks) -> Self {
        match (blocks.events, blocks.blocks) {
            (true, _) => Self::All,
            (false, true) => Self::Lasting,
            (false, false) => Self::None,
        }
    }
}
