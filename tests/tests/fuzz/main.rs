//! The builder of unwind tables on files that were made to harm it, for a few seconds, or for as long as
//! `cargo xtask fuzz` says: no panic, no table that the kernel program could stumble over, no endless
//! work and no endless memory.

#[path = "../../../fuzz/check.rs"]
mod check;
mod frames;
#[path = "../walks/peer.rs"]
mod peer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::fs;
use std::io::Read as _;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use heaptrace::unwind::{Limits, build, lookup, vdso};
use heaptrace_common::unwind::{LOST_BP, Memory, Registers, Rule, cfa, outcome, step};
use heaptrace_tests::target;
use object::{Object as _, ObjectSection as _};

use frames::{Harm, Random};
use peer::{Opinion, Peer};

/// What a thread has allocated, and the most that it had at a time.
struct Counting;

thread_local! {
    static USED: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(change: isize) {
    // Where the thread is ending, nobody asks any more.
    let _ = USED.try_with(|used| {
        let (now, most) = used.get();
        used.set((now + change, most.max(now + change)));
    });
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Limits at which the tables of these small files would be found to grow.
const LIMITS: Limits = Limits {
    rows: 20_000,
    functions: 2_000,
    section_bytes: 1 << 16,
    time: MOST_TIME,
};

/// Most memory for a file: some for each of its bytes, and some in any case.
fn most_bytes(file: usize) -> isize {
    (16 * file + (1 << 20)) as isize
}

/// Most time of the processor's for a file, of a build without optimization.
const MOST_TIME: Duration = Duration::from_secs(3);

/// The thread's own time, which others on the machine don't prolong.
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What the worst file took.
#[derive(Debug, Default)]
struct Worst {
    bytes: isize,
    time: Duration,
}

/// Builds the table of a file within bounds; gives its rows, if there is one.
fn try_build(data: &[u8], worst: &mut Worst) -> Result<Option<usize>> {
    USED.set((0, 0));
    let before = own_time();
    let Ok(rows) = catch_unwind(|| check::table(data, &LIMITS)) else {
        bail!("a panic");
    };
    let (time, bytes) = (own_time() - before, USED.get().1);
    worst.bytes = worst.bytes.max(bytes);
    worst.time = worst.time.max(time);
    ensure!(bytes <= most_bytes(data.len()), "{bytes} bytes");
    ensure!(time <= MOST_TIME, "{time:?}");
    Ok(rows)
}

/// A real file, and where its unwind information is.
struct Seed {
    data: Vec<u8>,
    frames: (usize, usize),
}

impl Seed {
    fn new(data: Vec<u8>) -> Result<Self> {
        let file = object::File::parse(data.as_slice())?;
        let section = file.section_by_name(".eh_frame").context("no .eh_frame")?;
        let (at, size) = section.file_range().context("no .eh_frame")?;
        let frames = (at as usize, size as usize);
        Ok(Self { data, frames })
    }

    /// A copy with some bytes changed: of the unwind information, of the headers, or at the end, where
    /// the sections' headers are.
    fn changed(&self, random: &mut Random) -> Vec<u8> {
        let mut data = self.data.clone();
        let end = data.len() - data.len().min(0x800);
        let (at, size) = match random.below(8) {
            0 => (0, 0x400),
            1 => (end, data.len() - end),
            _ => self.frames,
        };
        for _ in 0..=random.below(8) {
            let place = at + random.below(size);
            data[place] = match random.below(3) {
                0 => random.next() as u8,
                1 => data[place] ^ (1 << random.below(8)),
                _ => [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            };
        }
        if random.below(40) == 0 {
            data.truncate(random.below(self.data.len()));
        }
        data
    }
}

/// The vDSO, the C library's loader and the compiler's own library: small, and all written by others.
fn seeds() -> Result<Vec<Seed>> {
    let mut image = Vec::new();
    let mut file = vdso().context("no vDSO")?.file;
    std::io::Seek::rewind(&mut file)?;
    file.read_to_end(&mut image)?;
    let mut seeds = vec![Seed::new(image)?];
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut paths: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .filter(|path| path.contains("/ld-") || path.contains("/libgcc_s"))
        .collect();
    paths.dedup();
    for path in paths {
        seeds.push(Seed::new(fs::read(path)?)?);
    }
    Ok(seeds)
}

fn number(name: &str, default: u64) -> Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

/// Check that no file makes the builder panic, write a table that is not sound, or take more time or
/// memory than its size allows. The seed and the file that does are told.
#[test]
fn no_file_harms_the_builder() -> Result<()> {
    let seconds = number("HEAPTRACE_FUZZ_SECONDS", 5)?;
    let seed = number("HEAPTRACE_FUZZ_SEED", 1)?;
    println!("HEAPTRACE_FUZZ_SEED={seed} HEAPTRACE_FUZZ_SECONDS={seconds}");
    let seeds = seeds()?;
    let (mut random, mut worst) = (Random(seed), Worst::default());
    let (mut files, mut tables, mut rows) = (0_u64, 0_u64, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while files < 200 || Instant::now() < end {
        let data = match random.below(2) {
            0 => frames::file(&mut random, Harm::Much),
            _ => seeds[random.below(seeds.len())].changed(&mut random),
        };
        let built = try_build(&data, &mut worst).with_context(|| {
            let path = target().join(format!("fuzz-{seed}-{files}"));
            match fs::write(&path, &data) {
                Ok(()) => format!("file {files} of seed {seed}: {}", path.display()),
                Err(error) => format!("file {files} of seed {seed}: {error}"),
            }
        })?;
        files += 1;
        tables += u64::from(built.is_some());
        rows += built.unwrap_or(0);
    }
    println!("{files} files, {tables} tables of {rows} rows; the worst took {worst:?}");
    // Or it would all be refused at the door, and the test would test little.
    assert!(tables * 4 > files, "{tables} of {files}");
    Ok(())
}

/// Memory in which every word differs, and all are addresses far up.
struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(Random(address).next() & 0xffff_fff8 | 0x7ff0_0000_0000)
    }
}

/// Check that made-up unwind information leads where framehop says that it leads, wherever ours says
/// that it leads somewhere.
#[test]
fn what_is_made_up_means_the_same_to_framehop() -> Result<()> {
    let seed = number("HEAPTRACE_FUZZ_SEED", 1)?;
    let mut random = Random(seed);
    let mut compared = 0;
    for number in 0..400 {
        let data = frames::file(&mut random, Harm::Little);
        let Ok(table) = build(data.as_slice(), &LIMITS) else {
            continue;
        };
        let file = object::File::parse(data.as_slice())?;
        let code = file
            .section_by_name(".eh_frame")
            .context("no section")?
            .address();
        let code = code as usize - frames::CODE;
        let mut peer = Peer::new();
        peer.add(&file, 0, (0, data.len() as u64));
        for _ in 0..100 {
            let start = Registers {
                ip: (frames::CODE + random.below(code)) as u64,
                sp: 0x7fe0_0000_0000 + random.next() % 4096 * 8,
                bp: 0x7fe0_0010_0000 + random.next() % 4096 * 8,
            };
            let rule = lookup(&table, start.ip).unwrap_or(Rule::NONE);
            // framehop counts in words, and doesn't follow what is given by memory.
            if rule.cfa_offset % 8 != 0 || !matches!(rule.cfa, cfa::SP | cfa::BP) {
                continue;
            }
            let mut ours = start;
            if step(rule, &mut ours, &mut Noise) != outcome::CALLER {
                continue;
            }
            let theirs = peer.step(start, true, &mut Noise);
            let agree = matches!(theirs, Opinion::Caller(it) if (it.ip, it.sp) == (ours.ip, ours.sp)
                && (it.bp == ours.bp || ours.bp == LOST_BP));
            ensure!(
                agree,
                "file {number} of seed {seed}: at {:#x} {rule:?} gives {ours:x?}, framehop {theirs:x?}",
                start.ip
            );
            compared += 1;
        }
    }
    println!("{compared} places mean the same");
    assert!(compared > 1000, "{compared}");
    Ok(())
}
