//! System calls that no library at hand wraps.
//!
//! No stage of the flow; imports none.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, bpf_attach_type::BPF_PERF_EVENT, bpf_attr, bpf_cmd, perf_event_attr,
};
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Whose events a perf event counts.
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

/// Takes an entry out of a hash map and returns its value; `None` where there is none.
///
/// `V` must be the map's value type; the kernel checks neither.
pub fn map_take<K: aya::Pod, V: aya::Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    let mut value = std::mem::MaybeUninit::<V>::uninit();
    let mut attr = zeroed_attr();
    // SAFETY: the union member that this command reads.
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

/// Mounts a file system that nobody else sees: a descriptor of its root folder, no mount point.
pub fn mount_detached(kind: &CStr) -> io::Result<OwnedFd> {
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    // SAFETY: the name is a C string; flags as documented.
    let context = owned(unsafe {
        libc::syscall(
            libc::SYS_fsopen,
            kind.as_ptr(),
            1_u32, /* FSOPEN_CLOEXEC */
        )
    })?;
    let none = std::ptr::null::<u8>();
    // SAFETY: this command takes no key and no value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        )
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the context is a valid descriptor.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            1_u32, /* FSMOUNT_CLOEXEC */
            0_u32,
        )
    })
}

/// Opens a path below an open folder.
pub fn open_at(folder: BorrowedFd<'_>, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the path is a C string.
    owned(libc::c_long::from(unsafe {
        libc::openat(folder.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC)
    }))
}

/// A descriptor that is readable when one of several is.
pub fn any_readable<'a>(all: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let any = owned(libc::c_long::from(unsafe {
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    }))?;
    for one in all {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: both descriptors are open, and the struct is valid.
        let added = unsafe {
            libc::epoll_ctl(
                any.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                one.as_raw_fd(),
                &raw mut event,
            )
        };
        if added < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(any)
}

/// Lets the event loop wait until a descriptor is readable. Must be called inside the loop.
pub fn when_readable<T: AsFd + AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: by `AsFd`, the source keeps its one descriptor open as long as it lives.
    let registered = unsafe { AsyncFd::register_with_interest(source, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// Says which of the descriptors are readable or closed at their other end; if told to wait, only
/// once one is.
pub fn are_readable<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
    wait: bool,
) -> io::Result<Vec<bool>> {
    let mut fds: Vec<libc::pollfd> = fds
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let milliseconds = if wait { -1 } else { 0 };
    // SAFETY: the array is valid and as long as said.
    while unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(fds.iter().map(|fd| fd.revents != 0).collect())
}

/// Nanoseconds on the clock that events carry.
pub fn monotonic_now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How long this thread has run on a processor.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What this process has taken of the machine so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// Most memory that it had, bytes.
    pub peak_bytes: u64,
}

/// What this process has taken; zero where the kernel doesn't say.
pub fn own_usage() -> Usage {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    // Not what `getrusage` says: that has the memory of the program from which this one was started, too.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse::<u64>().ok());
    Usage {
        cpu_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        peak_bytes: peak.unwrap_or(0) << 10,
    }
}

/// Lets this thread run before all ordinary ones whenever it has something to do, or no longer. What it starts meanwhile
/// does not. Best effort.
pub fn go_first(is_first: bool) {
    let (policy, sched_priority) = if is_first {
        (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
    } else {
        (libc::SCHED_OTHER, 0)
    };
    let param = libc::sched_param { sched_priority };
    // SAFETY: the struct is valid; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if result < 0 {
        let error = io::Error::last_os_error();
        tracing::info!("no priority over other threads: {error}");
    }
}

/// How much of a busy processor a thread gets, and the more that it can have for a time. Best effort.
#[derive(Clone, Copy, Debug)]
pub struct Precedence {
    /// The thread's own niceness.
    own: libc::c_int,
}

impl Precedence {
    /// Of the calling thread, which has its own from now on until it takes more.
    pub fn of_this_thread() -> Self {
        // SAFETY: takes no pointers; 0 is the calling thread.
        let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        Self { own }
    }

    /// Takes as much as ordinary threads can have; whoever was started with less than the usual keeps to that.
    pub fn take(self) {
        if self.own <= 0 {
            set_nice(-20);
        }
    }

    /// Goes back to the own.
    pub fn give_back(self) {
        set_nice(self.own);
    }
}

fn set_nice(nice: libc::c_int) {
    // SAFETY: takes no pointers; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } < 0 {
        let error = io::Error::last_os_error();
        tracing::info!("no precedence over other threads: {error}");
    }
}

/// A number that nobody can foresee.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Raises the limit of open files to the hard one: each traced thread takes a descriptor a probe.
/// Best effort.
pub fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Whether SIGXFSZ had its default when this program began.
static ENDED_BY_LONG_FILES: AtomicBool = AtomicBool::new(false);

/// Lets a write beyond the limit of files' lengths fail, as one to a full disk does, instead of ending this process.
pub fn survive_long_files() {
    // SAFETY: no handler is installed.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    ENDED_BY_LONG_FILES.store(before == libc::SIG_DFL, Ordering::Relaxed);
}

/// Gives a program that is about to be started what this one was started with. Between fork and exec.
pub fn undo_survive_long_files() {
    if ENDED_BY_LONG_FILES.load(Ordering::Relaxed) {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}

/// How many files this process may have open.
pub fn most_open_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is valid.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Processor time that a process has used, of all its threads, those that have ended included.
pub fn process_time(pid: u32) -> Option<Duration> {
    /// The kernel's clock of a process's scheduled time, as `clock_getcpuclockid` makes it.
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

/// CPUs that the kernel may bring up, by `/sys/devices/system/cpu/online`-like lists.
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

/// A file with this content that stands nowhere but in memory.
pub fn file_in_memory(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// A pipe: the reading end and the writing end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((owned(ends[0].into())?, owned(ends[1].into())?))
}

/// Whether a folder is one of the unified control group hierarchy.
pub fn is_unified_cgroup(folder: BorrowedFd<'_>) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the buffer has room for the answer.
    let result = unsafe { libc::fstatfs(folder.as_raw_fd(), found.as_mut_ptr()) };
    // SAFETY: the call has filled it.
    result == 0 && unsafe { found.assume_init() }.f_type == libc::CGROUP2_SUPER_MAGIC
}

/// Opens a control group by its id, below any folder of its hierarchy. What is opened is good for
/// nothing but to tell its path.
pub fn open_cgroup(hierarchy: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    /// The kernel's `struct file_handle`, with what such a file system puts into it.
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
    // SAFETY: the handle says how long it is, and the call only reads it.
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
    // SAFETY: the attribute block is valid and zeroed but for what the command reads.
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
    // SAFETY: every member of this union is plain integers.
    unsafe { std::mem::zeroed() }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just given to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Id of a user of this machine, by name.
pub fn user_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; 1 << 16];
    // SAFETY: the struct is integers and pointers, for which zero is no value yet.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the buffer is as long as said, and outlives what the entry points to.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the time of a process is that of its threads, and that one that is not there has none.
    #[test]
    fn process_times() {
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

    /// Check that ranges and single numbers mix.
    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_cpu_list(""), [] as [u32; 0]);
    }
}
