//! Knows when a tracer has attached, without asking it: by the breakpoints in the target's libc.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::child::Child;
use crate::record::Heaptrace;

const HOOKS: [&str; 5] = ["malloc", "calloc", "realloc", "free", "posix_memalign"];

/// How far behind a function's start a probe may stand.
const WINDOW: u64 = 64;

/// A data file is there as soon as the tracer has attached; then it may have a little left to do.
const SETTLE: Duration = Duration::from_millis(300);

impl Heaptrace {
    /// Waits until a tracer that [`Heaptrace::start_record`] has started records: its file is there.
    pub fn wait_recording(&self, tracer: &mut Child) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(180);
        while !self.data().exists() {
            if !tracer.running()? || Instant::now() > deadline {
                bail!("the tracer does not record:\n{}", tracer.stderr());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until a tracer that [`Heaptrace::start_record`] has started traces a process.
    pub fn wait_attached(&self, tracer: &mut Child, pid: u32) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        // Two tracers may share a target: the breakpoints may be either's, the file is its own.
        while !(self.data().exists() && probed(pid)?) {
            if !tracer.running()? {
                bail!("the tracer ended while attaching:\n{}", tracer.stderr());
            }
            if Instant::now() > deadline {
                bail!(
                    "no breakpoints in process {pid} after a minute; the tracer says:\n{}",
                    tracer.stderr()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(SETTLE);
        Ok(())
    }
}

/// Whether every one of the hooked functions differs from what libc's file has there.
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

/// A thread that still has the process's memory, and its mappings: the first thread may have ended
/// before the others, and has none then.
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
