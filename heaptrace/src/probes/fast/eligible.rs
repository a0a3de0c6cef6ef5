//! Decides whether a process can have a fast path.
//!
//! Stage: probes. A process is refused if adding a page of code to it could end it or change what it does, or if the page could
//! not keep its data there. Each decision is a function of a text that the kernel provides; [`check`] reads these. Must not know
//! how the page gets into a process.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;

use libc::{AT_BASE, AT_NULL, AT_SECURE};
use thiserror::Error;

use super::slots::Slots;
use crate::proc::{maps, processes};
use crate::sys;

/// The versions of glibc whose threads have the place that the page keeps its data in, unused.
pub const GLIBC: RangeInclusive<(u32, u32)> = (2, 31)..=(2, 41);

/// The system setting that limits executable memory files.
const MEMFD_NOEXEC: &str = "/proc/sys/vm/memfd_noexec";

/// Most threads of a process that are examined.
const MAX_THREADS: usize = 1 << 16;

/// Why a process can't have a fast path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A file below `/proc/PID` can't be read.
    #[error("its {0} in /proc can't be read: {1}")]
    Unreadable(&'static str, String),
    /// It has ended, or is a thread of the kernel.
    #[error("it has ended, or is a thread of the kernel")]
    NoMemory,
    /// It belongs to heaptrace.
    #[error("it is a process of heaptrace")]
    Own,
    /// Its code is of another kind.
    #[error("it is no 64-bit x86 process")]
    OtherCode,
    /// It runs in seccomp's strict mode, or with a filter.
    #[error(
        "it limits its own system calls (seccomp), and might be ended for those of the fast path"
    )]
    Seccomp,
    /// Another process traces it.
    #[error("process {0} traces it, as a debugger does")]
    Traced(u32),
    /// It has other rights than the process that started it.
    #[error("its program gave it rights when it started (setuid, setgid or file capabilities)")]
    Privileged,
    /// The processor checks its return addresses.
    #[error("it has a shadow stack, which the fast path does not support")]
    ShadowStack,
    /// It runs in its parent's memory.
    #[error("it runs in the memory of its parent {0} until it starts a program (vfork)")]
    ParentsMemory(u32),
    /// The system allows no executable memory files.
    #[error("the system setting vm.memfd_noexec=2 forbids executable memory files")]
    NoExecutableFiles,
    /// Its C library is musl.
    #[error("its C library is musl; the fast path needs glibc")]
    Musl,
    /// Its C library is another version of glibc.
    #[error(
        "its C library is glibc {0}.{1}; the fast path knows glibc {from}.{since} to {to}.{last}",
        from = GLIBC.start().0,
        since = GLIBC.start().1,
        to = GLIBC.end().0,
        last = GLIBC.end().1
    )]
    OtherGlibc(u32, u32),
    /// It has no dynamic linker, and so no slots.
    #[error("it is statically linked: its calls of the allocator can't be led elsewhere")]
    Static,
    /// No call of an allocator can be led elsewhere.
    #[error("no slot that may be changed leads to its allocator, or it has not called it yet")]
    NoSlots,
    /// It has no C library that is known.
    #[error("it has mapped no glibc")]
    NoGlibc,
}

/// Checks everything about a process that does not depend on the content of its files.
pub fn check(pid: u32) -> Result<(), Refusal> {
    if is_own(pid) {
        return Err(Refusal::Own);
    }
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).map_err(|error| unreadable("maps", &error))?;
    check_mappings(&text)?;
    let mut parent = 0;
    let threads = processes::threads(pid).map_err(|error| unreadable("task", &error))?;
    for thread in threads.into_iter().take(MAX_THREADS) {
        match fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")) {
            Ok(status) => {
                check_status(&status)?;
                parent = number(&status, "PPid:").unwrap_or(parent);
            }
            // The thread has just ended.
            Err(error) if sys::is_gone(&error) => {}
            Err(error) => return Err(unreadable("status", &error)),
        }
    }
    let start = auxiliary(thread)?;
    if start.is_privileged {
        return Err(Refusal::Privileged);
    }
    if parent > 0 && sys::share_memory(pid, parent) {
        return Err(Refusal::ParentsMemory(parent));
    }
    check_memory_files(&fs::read_to_string(MEMFD_NOEXEC).unwrap_or_default())
}

/// Checks the C library of a process, by the answers about the slots of all files that it has mapped.
pub fn check_library<'a>(
    pid: u32,
    files: impl IntoIterator<Item = &'a Slots>,
) -> Result<(), Refusal> {
    library(files).or_else(|refusal| {
        let start = auxiliary(maps::living_thread(pid))?;
        // Without a dynamic linker, there is a better reason.
        Err(if refusal == Refusal::NoGlibc && !start.has_linker {
            Refusal::Static
        } else {
            refusal
        })
    })
}

/// Whether the page can keep its data in the threads of a glibc of this version.
pub fn check_glibc(version: (u32, u32)) -> Result<(), Refusal> {
    if GLIBC.contains(&version) {
        Ok(())
    } else {
        Err(Refusal::OtherGlibc(version.0, version.1))
    }
}

fn library<'a>(files: impl IntoIterator<Item = &'a Slots>) -> Result<(), Refusal> {
    let mut found = Err(Refusal::NoGlibc);
    for file in files {
        if file.is_musl {
            return Err(Refusal::Musl);
        }
        if let Some(version) = file.glibc {
            check_glibc(version)?;
            found = Ok(());
        }
    }
    found
}

fn unreadable(what: &'static str, error: &io::Error) -> Refusal {
    if sys::is_gone(error) {
        Refusal::NoMemory
    } else {
        Refusal::Unreadable(what, error.to_string())
    }
}

/// Whether a process runs this program: it is a tracer, a guardian or a reader.
fn is_own(pid: u32) -> bool {
    let file = |path: &str| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let own = file("/proc/self/exe");
    pid == std::process::id() || own.is_some() && own == file(&format!("/proc/{pid}/exe"))
}

/// Checks the text of `/proc/PID/maps`.
fn check_mappings(text: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(Refusal::NoMemory);
    }
    // Only a 64-bit process has mappings above 4 GiB, as its stack. The kernel lists its own page for other processes too.
    let mut mappings = maps::parse(text).filter(|it| it.path != "[vsyscall]");
    let is_long = mappings.any(|it| it.start > u64::from(u32::MAX));
    if cfg!(target_arch = "x86_64") && is_long {
        Ok(())
    } else {
        Err(Refusal::OtherCode)
    }
}

/// Checks the text of `/proc/PID/task/TID/status`.
fn check_status(text: &str) -> Result<(), Refusal> {
    if number(text, "Seccomp:").is_some_and(|mode| mode != 0) {
        return Err(Refusal::Seccomp);
    }
    if let Some(tracer) = number(text, "TracerPid:").filter(|tracer| *tracer != 0) {
        return Err(Refusal::Traced(tracer));
    }
    let features = value(text, "x86_Thread_features:").unwrap_or_default();
    if features.split_whitespace().any(|it| it == "shstk") {
        return Err(Refusal::ShadowStack);
    }
    Ok(())
}

/// Checks the text of the system setting `vm.memfd_noexec`; empty on a kernel that does not have it.
fn check_memory_files(text: &str) -> Result<(), Refusal> {
    if text.trim() == "2" {
        Err(Refusal::NoExecutableFiles)
    } else {
        Ok(())
    }
}

fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

fn number(text: &str, name: &str) -> Option<u32> {
    value(text, name)?.parse().ok()
}

/// What the kernel passed to a program at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Start {
    /// Whether the program gave the process other rights.
    is_privileged: bool,
    /// Whether a dynamic linker was started for the program.
    has_linker: bool,
}

fn auxiliary(thread: u32) -> Result<Start, Refusal> {
    let bytes = fs::read(format!("/proc/{thread}/auxv"));
    let bytes = bytes.map_err(|error| unreadable("auxv", &error))?;
    parse_auxiliary(&bytes).ok_or_else(|| Refusal::Unreadable("auxv", "it has no end".to_owned()))
}

/// Parses `/proc/PID/auxv` of a 64-bit process. `None` if it is incomplete.
fn parse_auxiliary(bytes: &[u8]) -> Option<Start> {
    let (words, _) = bytes.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let mut is_secure = None;
    let mut linker = 0;
    for [kind, value] in pairs {
        let value = u64::from_le_bytes(*value);
        match u64::from_le_bytes(*kind) {
            AT_NULL => {
                return Some(Start {
                    is_privileged: is_secure? != 0,
                    has_linker: linker != 0,
                });
            }
            AT_SECURE => is_secure = Some(value),
            AT_BASE => linker = value,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that waits until it is dropped.
    struct Waiting(Child);

    impl Waiting {
        fn start(command: &mut Command) -> Self {
            Self(command.stdin(Stdio::piped()).spawn().unwrap())
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Check that an ordinary process passes, and that this process and one that does not exist are refused.
    #[test]
    fn ordinary_processes_pass() {
        let child = Waiting::start(&mut Command::new("cat"));
        // The kernel may still be starting its program.
        let checked = (0..100).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            check(child.0.id())
        });
        let is_starting =
            |it: &Result<(), Refusal>| matches!(it, Err(Refusal::Unreadable("auxv", _)));
        assert!(checked.take_while(is_starting).count() < 100);
        assert_eq!(check(child.0.id()), Ok(()));
        assert_eq!(check(std::process::id()), Err(Refusal::Own));
        assert_eq!(check(i32::MAX as u32 >> 3), Err(Refusal::NoMemory));
    }

    /// Check that a process with a filter of system calls is refused.
    #[test]
    fn filtered_processes_are_refused() {
        let mut command = Command::new("cat");
        // SAFETY: both calls are allowed between `fork` and `exec`.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                // Allows every call.
                let mut allow = libc::sock_filter {
                    code: (libc::BPF_RET | libc::BPF_K) as u16,
                    jt: 0,
                    jf: 0,
                    k: libc::SECCOMP_RET_ALLOW,
                };
                let program = libc::sock_fprog {
                    len: 1,
                    filter: &raw mut allow,
                };
                let mode = libc::SECCOMP_MODE_FILTER;
                match libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let child = Waiting::start(&mut command);
        assert_eq!(check(child.0.id()), Err(Refusal::Seccomp));
    }

    /// Check that each line of a status that matters is read, and no other.
    #[test]
    fn statuses_are_read() {
        let status = |change: (&str, &str)| {
            let text = "Name:\tSeccomp: 2\nPid:\t7\nPPid:\t3\nTracerPid:\t0\nSeccomp:\t0\n\
                        Seccomp_filters:\t3\nx86_Thread_features:\t\n\
                        x86_Thread_features_locked:\tshstk wrss \n";
            assert!(text.contains(change.0));
            check_status(&text.replace(change.0, change.1))
        };
        assert_eq!(status(("\tSeccomp: 2", "\tcat")), Ok(()));
        let found = |from, to| status((from, to)).unwrap_err();
        for mode in ["Seccomp:\t1", "Seccomp:\t2"] {
            assert_eq!(found("Seccomp:\t0", mode), Refusal::Seccomp);
        }
        assert_eq!(
            found("TracerPid:\t0", "TracerPid:\t12"),
            Refusal::Traced(12)
        );
        let features = "x86_Thread_features:\twrss shstk \n";
        assert_eq!(
            found("x86_Thread_features:\t\n", features),
            Refusal::ShadowStack
        );
        // Kernels without these lines have none of them.
        assert_eq!(check_status("Pid:\t7\n"), Ok(()));
    }

    /// Check that processes with addresses of 32 bits, and without memory, are refused.
    #[test]
    fn mappings_tell_the_kind_of_code() {
        let short = "08048000-08049000 r-xp 00000000 08:01 5 /bin/old\n\
                     ffc00000-ffd00000 rw-p 00000000 00:00 0 [stack]\n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        assert_eq!(check_mappings(short), Err(Refusal::OtherCode));
        let long = format!("{short}7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0 [stack]\n");
        assert_eq!(check_mappings(&long), Ok(()));
        assert_eq!(check_mappings(""), Err(Refusal::NoMemory));
    }

    /// Check that the values of a start are read, and that an incomplete list is refused.
    #[test]
    fn starts_are_read() {
        let bytes = |pairs: &[[u64; 2]]| -> Vec<u8> {
            let words = pairs.iter().flatten();
            words.flat_map(|word| word.to_le_bytes()).collect()
        };
        let ordinary = bytes(&[[33, 5], [AT_SECURE, 0], [AT_BASE, 4096], [0, 0]]);
        let start = parse_auxiliary(&ordinary).unwrap();
        assert!(!start.is_privileged && start.has_linker);
        let other = bytes(&[[AT_BASE, 0], [AT_SECURE, 1], [0, 0]]);
        let start = parse_auxiliary(&other).unwrap();
        assert!(start.is_privileged && !start.has_linker);
        for end in 0..ordinary.len() {
            assert_eq!(parse_auxiliary(&ordinary[..end]), None);
        }
        assert_eq!(parse_auxiliary(&bytes(&[[AT_BASE, 0], [0, 0]])), None);
    }

    /// Check that only a glibc of a known version is accepted, and musl not beside it.
    #[test]
    fn libraries_are_checked() {
        let glibc = |version| Slots {
            glibc: Some(version),
            ..Slots::default()
        };
        let other = Slots::default();
        for version in [(2, 31), (2, 36), (2, 41)] {
            assert_eq!(library([&other, &glibc(version)]), Ok(()));
        }
        for (major, minor) in [(2, 30), (2, 42), (1, 36), (3, 0)] {
            let refusal = Refusal::OtherGlibc(major, minor);
            assert_eq!(library([&glibc((major, minor))]), Err(refusal));
        }
        let musl = Slots {
            is_musl: true,
            ..Slots::default()
        };
        assert_eq!(library([&glibc((2, 36)), &musl]), Err(Refusal::Musl));
        assert_eq!(library([&other]), Err(Refusal::NoGlibc));
        let text = Refusal::OtherGlibc(2, 28).to_string();
        assert!(text.ends_with("knows glibc 2.31 to 2.41"), "{text}");
        // This process has a dynamic linker, so it only lacks the library.
        let own = std::process::id();
        assert_eq!(check_library(own, [&other]), Err(Refusal::NoGlibc));
    }

    /// Check that the strictest setting for memory files is refused, and no other.
    #[test]
    fn memory_files_are_checked() {
        assert_eq!(check_memory_files("2\n"), Err(Refusal::NoExecutableFiles));
        for text in ["", "0\n", "1\n"] {
            assert_eq!(check_memory_files(text), Ok(()));
        }
    }

    /// Check that a process in the memory of its parent is seen.
    #[test]
    fn shared_memory_is_seen() {
        let own = std::process::id();
        let child = Waiting::start(&mut Command::new("cat"));
        assert!(sys::share_memory(own, own));
        assert!(!sys::share_memory(own, child.0.id()));
    }
}
