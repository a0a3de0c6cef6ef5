//! A uprobe of another tracer, as perf or bpftrace sets it: it only counts.
//!
//! Part of the harness. It knows nothing of heaptrace.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::child::run;

/// The type of perf's events for uprobes on this kernel.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// The flag of `perf_event_open` by which programs that are started do not inherit the event.
const PERF_FLAG_FD_CLOEXEC: u64 = 1 << 3;

/// A uprobe in a process.
pub struct ForeignProbe {
    events: Vec<File>,
}

impl ForeignProbe {
    /// Sets one at the entry of a function of a file, for the threads that a process has. (It can't be inherited: the kernel
    /// would read the path in the process itself.)
    pub fn set(pid: u32, library: &Path, function: &str) -> Result<Self> {
        let offset = function_offset(&fs::read(library)?, function)?;
        let path = CString::new(library.as_os_str().as_bytes())?;
        let kind: u32 = fs::read_to_string(TYPE)?.trim().parse()?;
        let mut attributes = [0_u64; 16];
        let size = size_of_val(&attributes) as u64;
        attributes[0] = u64::from(kind) | size << 32;
        // `config1` and `config2`.
        attributes[7] = path.as_ptr() as u64;
        attributes[8] = offset;
        let mut events = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread: i32 = thread?.file_name().to_string_lossy().parse()?;
            // SAFETY: the kernel copies the attributes, of which the second word has the size, and the path, which outlives
            // the call. The call returns a new descriptor or an error.
            let event = unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    attributes.as_ptr(),
                    thread,
                    -1,
                    -1,
                    PERF_FLAG_FD_CLOEXEC,
                )
            };
            if event < 0 {
                return Err(std::io::Error::last_os_error())
                    .with_context(|| format!("cannot set a uprobe on {function}"));
            }
            // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
            let event = unsafe { OwnedFd::from_raw_fd(i32::try_from(event)?) };
            events.push(File::from(event));
        }
        Ok(Self { events })
    }

    /// The calls that it has seen.
    pub fn hits(&self) -> Result<u64> {
        let mut sum = 0;
        for mut event in &self.events {
            let mut count = [0; 8];
            event.read_exact(&mut count)?;
            sum += u64::from_ne_bytes(count);
        }
        Ok(sum)
    }
}

/// The offset of a function in a file.
pub fn function_offset(bytes: &[u8], name: &str) -> Result<u64> {
    let file = object::File::parse(bytes)?;
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
        .with_context(|| format!("no {name}"))?;
    let offset = file.segments().find_map(|segment| {
        let at = symbol.address().checked_sub(segment.address())?;
        (at < segment.file_range().1).then_some(at + segment.file_range().0)
    });
    offset.context("no such address")
}

/// The C library of this machine's programs.
pub fn c_library_of_machine() -> Result<PathBuf> {
    let printed = run(Command::new("cc").arg("-print-file-name=libc.so.6"))?.success()?;
    Path::new(printed.stdout.trim())
        .canonicalize()
        .context("the C library")
}
