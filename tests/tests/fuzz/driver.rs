//! Runs one boundary on a number of inputs, or for a time. It fails on a panic, and on too much memory or time.
//!
//! The current input is always in a file, which remains if the process is killed.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use heaptrace::fuzz::Boundary;

use crate::inputs::Inputs;
use crate::memory;

/// The bound of processor time for an input, in a build without optimization.
const MOST_TIME: Duration = Duration::from_secs(3);

/// When the run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Inputs(u64),
    Time(Duration),
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) inputs: u64,
    /// The inputs that were not refused at once.
    pub(crate) taken: u64,
    pub(crate) variety: usize,
    pub(crate) most_bytes: usize,
    pub(crate) slowest: Duration,
}

/// The current input, in a file that outlives the process: a length, and the bytes.
struct Current {
    memory: NonNull<u8>,
    room: usize,
    path: PathBuf,
}

impl Current {
    fn new(path: PathBuf, longest: usize) -> Result<Self> {
        let room = 8 + longest;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.set_len(room as u64)?;
        // SAFETY: this is a new mapping at an address that the kernel selects, and the file has its length.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                room,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let memory = NonNull::new(memory.cast()).context("no memory")?;
        Ok(Self { memory, room, path })
    }

    fn put(&mut self, input: &[u8]) {
        let length = input.len().min(self.room - 8);
        // SAFETY: the mapping has the length `room`, and nothing else writes to it.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.room) };
        memory[..8].copy_from_slice(&(length as u64).to_le_bytes());
        memory[8..8 + length].copy_from_slice(&input[..length]);
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference to it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.room) };
        let _ = fs::remove_file(&self.path);
    }
}

/// The processor time of this thread, which doesn't depend on the machine's load.
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes the structure that is passed.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs an input. Returns the boundary's result, the memory and the time.
pub(crate) fn attempt(boundary: &Boundary, input: &[u8]) -> Result<(u64, usize, Duration)> {
    let before = own_time();
    memory::begin();
    let seen = catch_unwind(AssertUnwindSafe(|| (boundary.check)(input)));
    let (bytes, time) = (memory::most(), own_time() - before);
    let Ok(seen) = seen else {
        bail!("{}: a panic", boundary.name);
    };
    let most = boundary.most_bytes(input.len());
    if bytes > most {
        bail!(
            "{}: {} bytes took {bytes} bytes of memory, and may take {most}",
            boundary.name,
            input.len()
        );
    }
    if time > MOST_TIME {
        bail!("{}: {} bytes took {time:?}", boundary.name, input.len());
    }
    Ok((seen, bytes, time))
}

/// Runs a boundary on inputs. The first input on which it fails is saved in `folder`.
pub(crate) fn run(
    boundary: &'static Boundary,
    seed: u64,
    until: Until,
    folder: &Path,
) -> Result<Done> {
    fs::create_dir_all(folder)?;
    let mut inputs = Inputs::new(boundary, seed)?;
    // Inputs of a corpus may be longer than generated ones.
    let room = 4 * boundary.longest;
    let mut current = Current::new(folder.join(format!("{}.at-hand", boundary.name)), room)?;
    let mut done = Done::default();
    let begin = Instant::now();
    loop {
        let continues = match until {
            Until::Inputs(most) => done.inputs < most,
            Until::Time(time) => done.inputs < 1000 || begin.elapsed() < time,
        };
        if !continues {
            break;
        }
        let input = inputs.next(done.inputs);
        current.put(&input);
        let (seen, bytes, time) = attempt(boundary, &input).with_context(|| {
            let path = folder.join(format!("{}-{seed}-{}", boundary.name, done.inputs));
            let saved = File::create(&path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, &input));
            match saved {
                Ok(()) => format!(
                    "input {} of seed {seed}, in {}",
                    done.inputs,
                    path.display()
                ),
                Err(error) => format!("input {} of seed {seed}, not saved: {error}", done.inputs),
            }
        })?;
        done.inputs += 1;
        done.taken += u64::from(seen != 0);
        done.most_bytes = done.most_bytes.max(bytes);
        done.slowest = done.slowest.max(time);
        inputs.saw(input, seen);
    }
    done.variety = inputs.variety();
    Ok(done)
}
