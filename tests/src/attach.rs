//! Waits until a tracer has attached: by its data file, and by the breakpoints in the target's C library.
//!
//! Part of the harness. It doesn't ask the tracer, which may be what fails.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::child::Child;
use crate::record::Heaptrace;
use crate::until::{MINUTE, until};

/// Functions of the C library that heaptrace probes.
const HOOKS: [&str; 5] = ["malloc", "calloc", "realloc", "free", "posix_memalign"];

/// A probe is at most so many bytes behind the start of its function.
const WINDOW: u64 = 64;

/// The tracer creates its data file when it begins to record, just before it begins to watch for the target's end. Nothing
/// outside shows the second, so this is a time and no condition.
const WATCHING: Duration = Duration::from_millis(300);

impl Heaptrace {
    /// Waits until a tracer that [`Heaptrace::start_record`] has started records: its data file exists.
    pub fn wait_recording(&self, tracer: &mut Child) -> Result<()> {
        let waited = until("the tracer's data file", 3 * MINUTE, || {
            ensure!(tracer.running()?, "the tracer ended before it recorded");
            Ok(self.data().exists())
        });
        waited.with_context(|| format!("the tracer says:\n{}", tracer.stderr()))
    }

    /// Waits until a tracer that [`Heaptrace::start_record`] has started traces a process, and watches for its end.
    pub fn wait_attached(&self, tracer: &mut Child, pid: u32) -> Result<()> {
        // Two tracers may share a target: the breakpoints may be of either, but the file is this tracer's own.
        let waited = until("breakpoints in the target", 3 * MINUTE, || {
            ensure!(tracer.running()?, "the tracer ended while attaching");
            Ok(self.data().exists() && probed(pid)?)
        });
        waited.with_context(|| format!("process {pid}; the tracer says:\n{}", tracer.stderr()))?;
        thread::sleep(WATCHING);
        Ok(())
    }

    /// The same for a target without the shared C library: the data file must be enough.
    pub fn wait_watching(&self, tracer: &mut Child) -> Result<()> {
        self.wait_recording(tracer)?;
        thread::sleep(WATCHING);
        Ok(())
    }

    /// Waits until the data file has at least so many allocations of a process, by functions of the truth.
    pub fn wait_recorded(&self, pid: u32, allocations: u64) -> Result<()> {
        until("the process's allocations in the data file", MINUTE, || {
            let report = self.report();
            Ok(report.is_ok_and(|report| report.truth(Some(pid)).allocations >= allocations))
        })
    }
}

/// Whether the process's memory differs from the C library's file in every hooked function.
fn probed(pid: u32) -> Result<bool> {
    let (task, maps) = memory_of(pid)?;
    let libc = maps
        .lines()
        .filter(|line| line.ends_with("/libc.so.6"))
        .filter_map(Mapping::parse)
        .find(|mapping| mapping.executable)
        .context("the target has no libc")?;
    let bytes = fs::read(Path::new(libc.path))?;
    let file = object::File::parse(&*bytes)?;
    let memory = File::open(task.join("mem"))?;
    for hook in HOOKS {
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.is_definition() && symbol.name() == Ok(hook))
            .with_context(|| format!("libc has no {hook}"))?;
        let segment = file
            .segments()
            .find(|segment| {
                (segment.address()..segment.address() + segment.size()).contains(&symbol.address())
            })
            .context("a symbol outside of every segment")?;
        let offset = symbol.address() - segment.address() + segment.file_range().0;
        let len = WINDOW.min(symbol.size());
        let start = usize::try_from(offset)?;
        let original = bytes
            .get(start..start + usize::try_from(len)?)
            .context("a symbol beyond the end of the file")?;
        let mut now = vec![0; original.len()];
        memory.read_exact_at(&mut now, libc.start + offset - libc.offset)?;
        if now == original {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The folder of a thread that still has the process's memory, and the mappings. If the first thread ended before
/// the others, it has none.
fn memory_of(pid: u32) -> Result<(PathBuf, String)> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if let Ok(maps) = fs::read_to_string(task.join("maps"))
            && !maps.is_empty()
        {
            return Ok((task, maps));
        }
    }
    bail!("process {pid} has no memory any more")
}

struct Mapping<'a> {
    start: u64,
    offset: u64,
    executable: bool,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let (start, _) = fields.next()?.split_once('-')?;
        let executable = fields.next()?.contains('x');
        let offset = fields.next()?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            offset: u64::from_str_radix(offset, 16).ok()?,
            executable,
            path: line.get(line.find('/')?..)?,
        })
    }
}
