//! The sideband: perf's own records of executable mappings, forks, execs and exits.
//!
//! Stage: events. There is one ring per CPU, for the whole machine. The kernel writes a record when a file is
//! mapped executable, when a process forks or exits, and when it gets a new name by `exec`. No process traps
//! for that. Does not know which processes are of interest.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya_obj::generated::{
    perf_event_attr, perf_event_mmap_page, perf_event_sample_format::PERF_SAMPLE_TIME,
    perf_sw_ids::PERF_COUNT_SW_DUMMY, perf_type_id::PERF_TYPE_SOFTWARE,
};

use crate::open::Expected;
use crate::sys::{self, PerfTarget};

/// The fewest and the most data pages of a ring, powers of two. A record has about a hundred bytes. A process
/// that maps thousands of files in a moment must not make other processes lose their records.
const MIN_PAGES: usize = 64;
const MAX_PAGES: usize = 512;

/// Data pages of all rings, unless each ring has the fewest already.
const ALL_PAGES: usize = 8192;

const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
const MISC_COMM_EXEC: u16 = 1 << 13;

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Path, as the process sees it, or a name in brackets.
    pub path: String,
    /// The file, by the kernel's numbers.
    pub file: Expected,
    /// Whether what the process writes there is in the file, too.
    pub is_shared: bool,
}

/// How the kernel names files that are memory: of a shared mapping without a file, of `memfd_create`, of `shmget`.
const MEMORY: [&str; 3] = ["/dev/zero (deleted)", "/memfd:", "/SYSV"];

impl Mapped {
    /// Whether there is no file that names could be found in: memory that the process fills with code. Runtimes also map such code
    /// twice, to write and to run it, and need a file of memory for that. A program or a library in such a file is
    /// mapped privately.
    pub fn is_memory(&self) -> bool {
        let is_memory_file = || MEMORY.iter().any(|it| self.path.starts_with(it));
        self.path.starts_with("//") || self.is_shared && is_memory_file()
    }
}

/// A change of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was forked.
    Forked {
        /// Its parent process.
        parent: u32,
    },
    /// It runs another program now.
    Exec {
        /// Its new name.
        command: String,
    },
    /// It mapped an executable file.
    Mapped(Mapped),
    /// Its first thread ended.
    Exited,
}

/// A record of the sideband.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideEvent {
    /// The time, in nanoseconds on the monotonic clock.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The change.
    pub change: Change,
}

/// When records wake the reader of a ring of all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// After about the records of one program start: its mappings have allocations soon. If each record woke the reader,
    /// every fork of the machine would pay for it.
    WithEachProgram,
    /// When a part of the ring is full: programs that start are not traced yet, and the reader looks now and then anyway.
    Seldom,
}

/// The records that a ring gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Mappings, forks, execs and exits.
    Everything(Wakes),
    /// Forks and exits. Each record wakes a reader at once.
    Births,
}

/// The rings of all CPUs. Its descriptor is readable when one of them has records.
pub struct Sideband {
    /// Readable when any ring is.
    any_readable: OwnedFd,
    rings: Vec<Ring>,
    /// Events that were read, but are later than the last call of `drain`.
    held: Vec<SideEvent>,
    lost: u64,
}

impl AsFd for Sideband {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any_readable.as_fd()
    }
}

impl AsRawFd for Sideband {
    fn as_raw_fd(&self) -> RawFd {
        self.any_readable.as_raw_fd()
    }
}

impl Sideband {
    /// Opens a ring per CPU.
    pub fn open(wakes: Wakes) -> io::Result<Self> {
        Self::with(Scope::Everything(wakes))
    }

    /// Opens a ring per CPU for forks and exits alone, for a reader that waits for them.
    pub fn births() -> io::Result<Self> {
        Self::with(Scope::Births)
    }

    fn with(scope: Scope) -> io::Result<Self> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let cpus = sys::parse_cpu_list(&online);
        let pages = match scope {
            Scope::Everything(_) => pages_of_each(cpus.len()),
            Scope::Births => MIN_PAGES,
        };
        let rings: Vec<Ring> = cpus
            .into_iter()
            .map(|cpu| Ring::open(cpu, scope, pages))
            .collect::<io::Result<_>>()?;
        let any_readable = sys::any_readable(rings.iter().map(|ring| ring.event.as_fd()))?;
        Ok(Self {
            any_readable,
            rings,
            held: Vec::new(),
            lost: 0,
        })
    }

    /// The new events up to the time of this call, in the order of time.
    ///
    /// A process moves from one CPU to another, so its newer events can be read before its older ones. Events
    /// from before this call are in their ring when it is read, so only these are returned.
    pub fn drain(&mut self) -> Vec<SideEvent> {
        let until = sys::monotonic_now();
        let mut events = std::mem::take(&mut self.held);
        for ring in &mut self.rings {
            ring.drain(|record| match parse(record) {
                Parsed::Event(event) => events.push(event),
                Parsed::Lost(count) => self.lost += count,
                Parsed::Other => {}
            });
        }
        events.sort_by_key(|event| event.time);
        self.held = events.split_off(events.partition_point(|event| event.time <= until));
        events
    }

    /// Whether there are events that were read, but not returned.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Descriptors that become readable with each record; only for rings of forks and exits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.event.as_fd())
    }

    /// Records that found no room in a ring.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Data pages of each ring, for so many processors.
fn pages_of_each(cpus: usize) -> usize {
    let share = ALL_PAGES / cpus.max(1);
    let power = share.checked_ilog2().map_or(1, |power| 1 << power);
    power.clamp(MIN_PAGES, MAX_PAGES)
}

struct Ring {
    event: OwnedFd,
    /// The number of its data pages.
    pages: usize,
    page: NonNull<perf_event_mmap_page>,
    page_size: usize,
    /// A copy of a record that wraps around the end of the ring.
    wrapped: Vec<u8>,
}

impl Ring {
    fn open(cpu: u32, scope: Scope, pages: usize) -> io::Result<Self> {
        // SAFETY: the struct has only integers, and zero means that nothing is asked for.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.type_ = PERF_TYPE_SOFTWARE as u32;
        attr.config = PERF_COUNT_SW_DUMMY as u64;
        attr.sample_type = PERF_SAMPLE_TIME as u64;
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_task(1);
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = match scope {
            Scope::Everything(Wakes::WithEachProgram) => 1024,
            Scope::Everything(Wakes::Seldom) => 1 << 15,
            Scope::Births => 1,
        };
        if scope != Scope::Births {
            // Without the older kind of mapping records, the kernel does not look for listeners at all.
            attr.set_mmap(1);
            attr.set_mmap2(1);
            attr.set_comm_exec(1);
            attr.set_comm(1);
        }
        let event = sys::perf_event_open(&mut attr, PerfTarget::Cpu(cpu))?;
        let page_size = sys::page_size();
        // SAFETY: a new mapping of the event's own ring, at no particular address.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (1 + pages) * page_size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_fd().as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            event,
            pages,
            page: NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            page_size,
            wrapped: Vec::new(),
        })
    }

    fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let page = self.page.as_ptr();
        // SAFETY: the mapping has this length, and its data begin at the second page.
        let data = unsafe {
            std::slice::from_raw_parts(
                page.cast::<u8>().add(self.page_size),
                self.pages * self.page_size,
            )
        };
        // SAFETY: both are aligned and in the mapped page. The kernel writes `data_head` and reads
        // `data_tail`, in pairs of acquire and release.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while at < end {
            let start = (at % data.len() as u64) as usize;
            // Records are multiples of eight bytes, so a header never wraps.
            let Some(size) = u16_at(data, start + 6).filter(|size| *size >= 8) else {
                at = end;
                break;
            };
            let size = usize::from(size);
            match data.get(start..start + size) {
                Some(record) => take(record),
                None => {
                    let first = data.get(start..).unwrap_or_default();
                    let rest = data.get(..size - first.len()).unwrap_or_default();
                    self.wrapped.clear();
                    self.wrapped.extend_from_slice(first);
                    self.wrapped.extend_from_slice(rest);
                    take(&self.wrapped);
                }
            }
            at += size as u64;
        }
        tail.store(at, Ordering::Release);
    }
}

// SAFETY: the mapping belongs only to the ring, and is not bound to a thread.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `open` made the mapping, and no reference to it is left.
        unsafe {
            libc::munmap(self.page.as_ptr().cast(), (1 + self.pages) * self.page_size);
        }
    }
}

pub(super) enum Parsed {
    Event(SideEvent),
    Lost(u64),
    Other,
}

/// Parses a record. A record that is not understood is [`Parsed::Other`].
pub(super) fn parse(record: &[u8]) -> Parsed {
    parse_checked(record).unwrap_or(Parsed::Other)
}

fn parse_checked(record: &[u8]) -> Option<Parsed> {
    let (kind, misc) = (u32_at(record, 0)?, u16_at(record, 4)?);
    // The time is the last field of every record.
    let (body, time) = record.split_last_chunk::<8>()?;
    let time = u64::from_ne_bytes(*time);
    let pid = u32_at(body, 8)?;
    let change = match kind {
        RECORD_MMAP2 => Change::Mapped(mapped(body)?),
        RECORD_FORK => {
            let parent = u32_at(body, 12)?;
            if parent == pid {
                return None; // a thread
            }
            Change::Forked { parent }
        }
        RECORD_EXIT if u32_at(body, 16)? == pid => Change::Exited,
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => Change::Exec {
            command: text(body.get(16..)?),
        },
        RECORD_LOST => return Some(Parsed::Lost(u64_at(body, 16)?)),
        _ => return None,
    };
    Some(Parsed::Event(SideEvent { time, pid, change }))
}

fn mapped(body: &[u8]) -> Option<Mapped> {
    let (start, len) = (u64_at(body, 16)?, u64_at(body, 24)?);
    Some(Mapped {
        start,
        end: start.checked_add(len)?,
        offset: u64_at(body, 32)?,
        path: text(body.get(72..)?),
        file: Expected {
            device: (u32_at(body, 40)?, u32_at(body, 44)?),
            inode: u64_at(body, 48)?,
        },
        is_shared: u32_at(body, 68)? & libc::MAP_SHARED as u32 != 0,
    })
}

/// Text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
