//! Code, data and hints in a target, mapped by calls of one of its threads.
//!
//! Stage: probes. The thread makes few calls. At most four descriptors are open in the target meanwhile, and its stack is
//! not touched: the reserved addresses serve as scratch memory before the parts are mapped over them, or else a new page. Must not know what
//! the code does, nor how the thread was stopped.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use libc::c_int;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::messages::{LinkPlace, Sizes};
use super::remote::{Borrowed, Failure};
use super::target_memory::TargetMemory;
use super::written_stubs::PAGE;
use crate::proc::maps;

/// Opens a thread, not a process (Linux 6.9).
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Where things are in the scratch memory.
mod scratch {
    /// Two descriptors.
    pub(super) const SOCKETS: u64 = 0;
    /// A `struct msghdr`.
    pub(super) const MESSAGE: u64 = 16;
    /// A `struct iovec`.
    pub(super) const VECTOR: u64 = 80;
    /// A byte to receive.
    pub(super) const BYTE: u64 = 96;
    /// A `struct cmsghdr`.
    pub(super) const CONTROL: u64 = 104;
}

/// Bytes of scratch memory, if none is reserved: a page.
const SCRATCH_BYTES: u64 = 4096;

/// Bytes for a control message with at most two descriptors.
const CONTROL_BYTES: u64 = 24;

/// Where something is to be mapped.
pub(super) enum Place {
    /// At the first of these addresses that is free.
    FirstFree {
        places: Vec<u64>,
        /// The file of code and data.
        file: OwnedFd,
    },
    /// Where an earlier run has mapped code and data. They stay, and only the hints are mapped, in place of the old ones.
    Old(u64),
}

/// What is to be mapped, and where.
pub(super) struct Mapping {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) place: Place,
    pub(super) sizes: Sizes,
    pub(super) memory: TargetMemory,
    /// The memory of the hints.
    pub(super) hints: OwnedFd,
    /// Where pages of links are to be.
    pub(super) links: Vec<LinkPlace>,
}

impl Mapping {
    /// The descriptors that it needs.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.memory.descriptor(), self.hints.as_raw_fd()];
        if let Place::FirstFree { file, .. } = &self.place {
            all.push(file.as_raw_fd());
        }
        all
    }

    /// Lets a thread of the process map the parts. Returns the first address. If that fails, nothing is left of it.
    pub(super) fn make(&self, thread: &mut Borrowed<'_>) -> Result<u64, Failure> {
        let total = self.sizes.total();
        let (places, file) = match &self.place {
            Place::FirstFree { places, file } => (places, file),
            Place::Old(base) => return self.replace_hints(thread, *base).map(|()| *base),
        };
        let base = reserve(thread, places, total)?;
        let mapped = self.map_at(thread, base, file);
        if let Err(failure) = mapped {
            thread.call("munmap", libc::SYS_munmap, &[base, total])?;
            return Err(failure);
        }
        Ok(base)
    }

    /// Lets the thread map the pages of links: memory of zeros that the process can only read. Returns their addresses, 0 for
    /// those that can't be mapped. They are mapped behind all else, and nothing depends on them.
    pub(super) fn make_links(&self, thread: &mut Borrowed<'_>) -> Result<Vec<u64>, Failure> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let mut all = Vec::new();
        for link in &self.links {
            let places = match link {
                LinkPlace::FirstFree(places) => places,
                LinkPlace::Old(page) => {
                    all.push(if self.has_links(*page) { *page } else { 0 });
                    continue;
                }
            };
            let mut mapped = 0;
            for place in places {
                match map(thread, *place, PAGE, libc::PROT_READ, flags, (u64::MAX, 0)) {
                    Ok(()) => {
                        mapped = *place;
                        break;
                    }
                    Err(Failure::Ended) => return Err(Failure::Ended),
                    Err(_) => {}
                }
            }
            all.push(mapped);
        }
        Ok(all)
    }

    /// Whether an earlier run has mapped a page of links there.
    fn has_links(&self, page: u64) -> bool {
        let text = maps::read(self.tid).unwrap_or_default();
        maps::parse(&text)
            .any(|it| maps::is_read_only_memory(&it) && (it.start..it.end).contains(&page))
    }

    fn map_at(&self, thread: &mut Borrowed<'_>, base: u64, file: &OwnedFd) -> Result<(), Failure> {
        let Sizes {
            code,
            data,
            hints,
            mark,
        } = self.sizes;
        let [file, map_file] = self.pass(thread, base, [file.as_fd(), self.hints.as_fd()])?;
        let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
        let (data_at, hints_at) = (base + code, base + code + data);
        let parts = [
            (base, code, read | execute, private, (file, 0)),
            (data_at, data, read | write, private, (file, code)),
            (hints_at, hints, read, shared, (map_file, 0)),
        ];
        let mut result = Ok(());
        for (address, length, protection, flags, from) in parts {
            let flags = flags | libc::MAP_FIXED;
            result = result.and_then(|()| map(thread, address, length, protection, flags, from));
        }
        close(thread, &[file, map_file])?;
        result?;
        let mark_at = hints_at + hints;
        let flags = private | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        map(thread, mark_at, mark, read, flags, (u64::MAX, 0))?;
        let wiped = libc::MADV_WIPEONFORK as u64;
        thread.call("madvise", libc::SYS_madvise, &[mark_at, mark, wiped])?;
        Ok(())
    }

    /// Maps the hints over those of an earlier run. The kernel does this in one step, so threads may read them meanwhile.
    fn replace_hints(&self, thread: &mut Borrowed<'_>, base: u64) -> Result<(), Failure> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let anywhere = [0, SCRATCH_BYTES, protection, flags, u64::MAX, 0];
        let scratch = thread.call("mmap", libc::SYS_mmap, &anywhere)?;
        let passed = self.pass(thread, scratch, [self.hints.as_fd()]);
        let replaced = passed.and_then(|[file]| {
            let replaced = self.map_over_hints(thread, base, file);
            close(thread, &[file])?;
            replaced
        });
        thread.call("munmap", libc::SYS_munmap, &[scratch, SCRATCH_BYTES])?;
        replaced
    }

    fn map_over_hints(
        &self,
        thread: &mut Borrowed<'_>,
        base: u64,
        file: u64,
    ) -> Result<(), Failure> {
        let Sizes {
            code, data, hints, ..
        } = self.sizes;
        let (at, read) = (base + code + data, libc::PROT_READ);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let replaced = map(thread, at, hints, read, flags, (file, 0));
        if let Err(failure @ Failure::Call { .. }) = replaced {
            // The old ones may be gone, and threads may read here: zeros mean that no block is recorded.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            map(thread, at, hints, read, flags, (u64::MAX, 0))?;
            return Err(failure);
        }
        replaced
    }

    /// Gives the thread's process descriptors. Returns their numbers there.
    fn pass<const N: usize>(
        &self,
        thread: &mut Borrowed<'_>,
        base: u64,
        descriptors: [BorrowedFd<'_>; N],
    ) -> Result<[u64; N], Failure> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let at = base + scratch::SOCKETS;
        let arguments = [libc::AF_UNIX as u64, kind as u64, 0, at];
        thread.call("socketpair", libc::SYS_socketpair, &arguments)?;
        let sockets = self.word(at)?;
        let (ours, theirs) = (sockets & u64::from(u32::MAX), sockets >> 32);
        let sent = self.send(ours as c_int, &descriptors);
        let received = sent.and_then(|()| self.receive(thread, theirs, base));
        close(thread, &[ours, theirs])?;
        match <[u64; N]>::try_from(received?) {
            Ok(all) => Ok(all),
            Err(some) => {
                close(thread, &some)?;
                Err(Failure::Unsuitable(
                    "it can't receive descriptors (too many open files?)",
                ))
            }
        }
    }

    /// Sends the descriptors through the target's own socket.
    fn send(&self, socket: c_int, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        let target = |id: u32, flags| {
            let id = Pid::from_raw(id as i32).ok_or(rustix::io::Errno::SRCH)?;
            pidfd_getfd(pidfd_open(id, flags)?, socket, PidfdGetfdFlags::empty())
        };
        // The process has no descriptors left if its first thread has ended.
        let socket = target(self.tid, PIDFD_THREAD)
            .or_else(|_| target(self.pid, PidfdFlags::empty()))
            .map_err(|error| failed("pidfd_getfd", error))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&socket, &[IoSlice::new(&[0])], &mut control, flags)
            .map_err(|error| failed("sendmsg", error))?;
        Ok(())
    }

    /// Lets the thread receive the descriptors. Returns the numbers of those that it got.
    fn receive(
        &self,
        thread: &mut Borrowed<'_>,
        socket: u64,
        base: u64,
    ) -> Result<Vec<u64>, Failure> {
        let vector = [base + scratch::BYTE, 1];
        let control = base + scratch::CONTROL;
        // No name; one vector; control messages; no flags.
        let message = [0, 0, base + scratch::VECTOR, 1, control, CONTROL_BYTES, 0];
        self.put(base + scratch::VECTOR, &vector)?;
        self.put(base + scratch::MESSAGE, &message)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        let arguments = [socket, base + scratch::MESSAGE, flags];
        thread.call("recvmsg", libc::SYS_recvmsg, &arguments)?;
        // The memory was zero, so the length is zero if nothing was received.
        let length = self.word(control)?.saturating_sub(16);
        let both = self.word(control + 16)?;
        let numbers = [both & u64::from(u32::MAX), both >> 32];
        Ok(numbers.into_iter().take(length as usize / 4).collect())
    }

    fn word(&self, address: u64) -> Result<u64, Failure> {
        self.memory.word(address).map_err(|_| Failure::Ended)
    }

    fn put(&self, address: u64, words: &[u64]) -> Result<(), Failure> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let written = self.memory.write(address, &bytes);
        written.map_err(|_| Failure::Ended)
    }
}

/// Reserves addresses. No other thread of the target can get them then.
fn reserve(thread: &mut Borrowed<'_>, places: &[u64], total: u64) -> Result<u64, Failure> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    for place in places {
        let place = *place;
        match map(thread, place, total, protection, flags, (u64::MAX, 0)) {
            Err(Failure::Call {
                error: libc::EEXIST,
                ..
            }) => {}
            Err(failure) => return Err(failure),
            Ok(()) => return Ok(place),
        }
    }
    Err(Failure::Unsuitable(
        "it has no free addresses near the allocator",
    ))
}

/// Maps something at an address.
fn map(
    thread: &mut Borrowed<'_>,
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    (file, offset): (u64, u64),
) -> Result<(), Failure> {
    let (protection, flags) = (protection as u64, flags as u64);
    let arguments = [address, length, protection, flags, file, offset];
    let mapped = thread.call("mmap", libc::SYS_mmap, &arguments)?;
    if mapped == address {
        return Ok(());
    }
    // A kernel that doesn't know a flag has mapped somewhere else.
    thread.call("munmap", libc::SYS_munmap, &[mapped, length])?;
    Err(Failure::Unsuitable("the kernel is too old (before 4.17)"))
}

/// Closes descriptors: with one call if their numbers follow each other, because each call holds the thread for longer.
fn close(thread: &mut Borrowed<'_>, numbers: &[u64]) -> Result<(), Failure> {
    if let [first, last] = numbers
        && first + 1 == *last
    {
        let range = [*first, *last, 0];
        match thread.call("close_range", libc::SYS_close_range, &range) {
            Ok(_) => return Ok(()),
            // Linux before 5.9 doesn't have this call.
            Err(Failure::Call { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    for number in numbers {
        match thread.call("close", libc::SYS_close, &[*number]) {
            // An error of the call itself means that it is closed.
            Ok(_) | Err(Failure::Call { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

fn failed(name: &'static str, error: rustix::io::Errno) -> Failure {
    Failure::Call {
        name,
        error: error.raw_os_error(),
    }
}
