//! System calls, in the form that this crate uses.
//!
//! No stage of the flow; imports none. The `unsafe` calls here are those that rustix lacks: `perf_event_open`, `bpf`,
//! `open_by_handle_at`, `signal`, `getpwnam_r`, `localtime_r`, `kcmp`, and the clock of a process by its id; and tokio's
//! registration of a descriptor. The other functions combine calls of rustix, or convert their results.

mod priority;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, bpf_attach_type::BPF_PERF_EVENT, bpf_attr, bpf_cmd, perf_event_attr,
};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{MemfdFlags, fstatfs, memfd_create};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use priority::{ThreadPriority, set_realtime};

/// The threads that a perf event counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfTarget {
    /// One thread, on every CPU.
    Thread(u32),
    /// Every thread, on one CPU.
    Cpu(u32),
}

/// Opens a perf event.
pub fn perf_event_open(attr: &mut perf_event_attr, target: PerfTarget) -> io::Result<OwnedFd> {
    attr.size = size_of::<perf_event_attr>() as u32;
    let (pid, cpu) = match target {
        PerfTarget::Thread(tid) => (tid as libc::pid_t, -1),
        PerfTarget::Cpu(cpu) => (-1, cpu as libc::c_int),
    };
    // SAFETY: the attribute block is valid and its size is set.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(attr),
            pid,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(fd)
}

/// Links a program to a perf event, with a cookie that the program can read.
pub fn link_perf_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    attr.link_create.__bindgen_anon_2.target_fd = event.as_raw_fd() as u32;
    attr.link_create.attach_type = BPF_PERF_EVENT as u32;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    owned(bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr))
}

/// Removes an entry from a hash map and returns its value; `None` if the map has no such entry.
///
/// `K` and `V` must be the map's key and value types. The kernel does not check them.
pub fn map_take<K: aya::Pod, V: aya::Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    let mut value = std::mem::MaybeUninit::<V>::uninit();
    let mut attr = zeroed_attr();
    // SAFETY: this command reads this member of the union.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(key) as u64;
    element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    if bpf(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, &mut attr) < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the call has filled the value.
    Ok(Some(unsafe { value.assume_init() }))
}

/// Mounts a file system without a mount point, so that no other process sees it. Returns its root folder.
pub fn mount_detached(kind: &CStr) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::empty();
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// A descriptor that is readable when at least one of several descriptors is readable.
pub fn any_readable<'a>(all: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for one in all {
        epoll::add(
            &any,
            one,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
    }
    Ok(any)
}

/// Registers a descriptor with the event loop, which can then wait until it is readable. Must be called inside the loop.
pub fn when_readable<T: AsFd + AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `AsFd` guarantees that the source keeps its one descriptor open while it lives.
    let registered = unsafe { AsyncFd::register_with_interest(source, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// Tells for each descriptor whether it is readable or closed at its other end. With `wait`, blocks until one of them is.
pub fn are_readable<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
    wait: bool,
) -> io::Result<Vec<bool>> {
    const AT_ONCE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds: Vec<PollFd<'_>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = (!wait).then_some(&AT_ONCE);
    loop {
        match poll(&mut fds, timeout) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Nanoseconds on the clock that events carry.
pub fn monotonic_now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds on the clock that start times of processes are on.
pub fn boot_time() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

/// A number of clock ticks, which `/proc` counts times in, in nanoseconds.
pub fn ticks_to_ns(ticks: u64) -> u64 {
    // SAFETY: takes a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let per_second = u64::try_from(per_second).unwrap_or(100).max(1);
    ticks.saturating_mul(1_000_000_000 / per_second)
}

/// The size of a page in bytes.
pub fn page_size() -> usize {
    // SAFETY: takes a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The processor time that this thread has used.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor time and memory that this process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// Peak of its resident memory, bytes.
    pub peak_bytes: u64,
}

/// The usage of this process. `peak_bytes` is zero if the kernel doesn't tell it.
pub fn own_usage() -> Usage {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Not by `getrusage`: its peak includes the memory of the program that started this one.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse::<u64>().ok());
    Usage {
        cpu_ns: nanoseconds(time),
        peak_bytes: peak.unwrap_or(0) << 10,
    }
}

/// A random number that can't be predicted.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    if getrandom(&mut bytes, GetRandomFlags::empty())? != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Raises the soft limit of open files to the hard limit: each traced thread needs one descriptor for each probe. Best
/// effort.
pub fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// The most files that this process may have open.
pub fn most_open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Does work during which this process, which must have one thread, can open no file.
pub fn without_opening<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..before
    };
    // Best effort, as in `raise_open_files`. The old limit is allowed again, because the hard limit stays.
    let _ = setrlimit(Resource::Nofile, none);
    let result = work();
    let _ = setrlimit(Resource::Nofile, before);
    result
}

/// Whether an error of a file below `/proc` means that its process is gone.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Gives memory that was freed back to the system.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether SIGXFSZ had its default action when this program began.
static SIGXFSZ_WAS_DEFAULT: AtomicBool = AtomicBool::new(false);

/// Ignores SIGXFSZ: a write beyond the limit of a file's length then fails, like a write to a full disk, instead of ending
/// this process.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    SIGXFSZ_WAS_DEFAULT.store(before == libc::SIG_DFL, Ordering::Relaxed);
}

/// Restores the action of SIGXFSZ that this program was started with. For a child between fork and exec.
pub fn restore_file_size_signal() {
    if SIGXFSZ_WAS_DEFAULT.load(Ordering::Relaxed) {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}

/// The processor time of all threads of a process, including ended threads. `None` if there is no such process.
pub fn process_time(pid: u32) -> Option<Duration> {
    /// The kind of clock that counts scheduled time, as `clock_getcpuclockid` encodes it.
    const SCHEDULED: libc::clockid_t = 2;
    let clock = (!(pid as libc::clockid_t) << 3) | SCHEDULED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Whether two processes run in the same memory. `false` if the kernel does not tell.
pub fn share_memory(one: u32, other: u32) -> bool {
    /// Compares the memory of the processes (`KCMP_VM`).
    const MEMORY: libc::c_int = 1;
    let (one, other) = (one as libc::pid_t, other as libc::pid_t);
    // SAFETY: the kernel only compares.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) };
    result == 0
}

/// The numbers in a list of CPUs such as `/sys/devices/system/cpu/online`.
pub fn parse_cpu_list(list: &str) -> Vec<u32> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .collect()
}

/// Makes a file with this content that exists in memory only.
pub fn file_in_memory(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// Whether a folder is in the unified control group hierarchy (version 2).
pub fn is_unified_cgroup(folder: BorrowedFd<'_>) -> bool {
    fstatfs(folder).is_ok_and(|found| found.f_type == libc::CGROUP2_SUPER_MAGIC)
}

/// Opens a control group by its id. `hierarchy` is any folder of the group's hierarchy. The descriptor only tells the
/// group's path (`O_PATH`).
pub fn open_cgroup(hierarchy: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    /// The kernel's `struct file_handle`, with the content that a control group file system puts into it.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        id: [u8; 8],
    }
    /// The kernel's `FILEID_KERNFS`.
    const KERNFS: i32 = 0xfe;
    let handle = Handle {
        bytes: 8,
        kind: KERNFS,
        id: id.to_ne_bytes(),
    };
    // SAFETY: the handle contains its length, and the call only reads it.
    owned(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            hierarchy.as_raw_fd(),
            std::ptr::from_ref(&handle),
            libc::O_PATH | libc::O_CLOEXEC,
        )
    })
}

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> libc::c_long {
    // SAFETY: the attribute block is valid, and zero except for the fields that the command reads.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    }
}

fn zeroed_attr() -> bpf_attr {
    // SAFETY: every member of this union consists of integers.
    unsafe { std::mem::zeroed() }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The id of a user of this machine, by name.
pub fn user_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; 1 << 16];
    // SAFETY: the struct consists of integers and pointers, for which zero is valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the buffer has the length that is passed, and lives longer than the entry that points into it.
    let result = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    (result == 0 && !found.is_null()).then_some(entry.pw_uid)
}

/// Seconds by which local time is ahead of UTC at a time, in seconds since the Unix epoch; 0 if that can't be told.
///
/// The first call reads the file of the time zone, later ones don't.
pub fn local_time_ahead(unix_s: u64) -> i64 {
    let time = libc::time_t::try_from(unix_s).unwrap_or(0);
    // SAFETY: all-zero bytes are a valid `tm`: numbers, and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live until the call returns.
    let found = unsafe { libc::localtime_r(&raw const time, &raw mut local) };
    match found.is_null() {
        true => 0,
        false => local.tm_gmtoff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process's time includes that of its threads, and that a process that doesn't exist has no time.
    #[test]
    fn process_time_includes_threads() {
        let before = process_time(std::process::id()).unwrap();
        let begin = thread_time();
        while thread_time() - begin < Duration::from_millis(20) {}
        let after = process_time(std::process::id()).unwrap();
        assert!(
            after - before >= Duration::from_millis(20),
            "{before:?} {after:?}"
        );
        assert_eq!(process_time(i32::MAX as u32 >> 3), None);
    }

    /// Check that a CPU list may mix ranges and single numbers.
    #[test]
    fn cpu_lists_mix_ranges_and_numbers() {
        assert_eq!(parse_cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_cpu_list(""), [] as [u32; 0]);
    }
}
