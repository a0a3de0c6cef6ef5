//! The program that the tests inject into, and what of it can be seen.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace::probes::fast::installer::Redirect;
use heaptrace::probes::fast::patch::{CODE_BYTES, Jump};
use heaptrace_tests::{Child, MINUTE, NOBODY, c, open_to_nobody, until};

/// Words of the fixture's state, in its order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Rounds,
    Wrong,
    Signals,
    Waits,
    Interrupted,
    LongestRound,
    Function,
    Results,
    Hint,
    HintSeen,
    FirstStub,
    SecondStub,
    Shared,
    OldCalls,
    NewCalls,
    Slots,
}

/// Slots of the fixture.
pub(crate) const SLOTS: u64 = 16;

/// A process of the fixture `computes`.
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    state: u64,
    memory: File,
}

/// The running fixture.
pub(crate) struct Target {
    pub(crate) child: Child,
    pub(crate) process: Process,
    pub(crate) computing: u32,
    pub(crate) waiting: u32,
    pub(crate) sleeping: u32,
}

/// What must be the same before and after: open files, and what the threads do with signals.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    files: BTreeMap<String, PathBuf>,
    signals: Vec<String>,
}

impl Target {
    pub(crate) fn start() -> Result<Self> {
        Self::run(&mut c("computes")?.command())
    }

    /// Starts it as a user without rights.
    pub(crate) fn start_as_nobody(folder: &std::path::Path) -> Result<Self> {
        let program = open_to_nobody(folder, &c("computes")?.path)?;
        Self::run(Command::new(program).uid(NOBODY).gid(NOBODY))
    }

    fn run(command: &mut Command) -> Result<Self> {
        let mut child = Child::spawn(command)?;
        let line = child.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [_, state, _, computing, _, waiting, _, sleeping] = words[..] else {
            anyhow::bail!("unexpected line {line}");
        };
        let state = u64::from_str_radix(state.trim_start_matches("0x"), 16)?;
        Ok(Self {
            process: Process::of(child.pid(), state)?,
            child,
            computing: computing.parse()?,
            waiting: waiting.parse()?,
            sleeping: sleeping.parse()?,
        })
    }

    /// Forks a child of it that computes, too.
    pub(crate) fn fork(&mut self) -> Result<Process> {
        self.child.go()?;
        let line = self.child.line()?;
        let pid = line.strip_prefix("child ").context("no child")?;
        Process::of(pid.parse()?, self.process.state)
    }

    /// Sends a signal to its computing thread.
    pub(crate) fn signal(&self, signal: i32) -> Result<()> {
        signal_thread(self.process.pid, self.computing, signal)
    }

    pub(crate) fn shape(&self) -> Result<Shape> {
        let pid = self.process.pid;
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            let name = entry.file_name().display().to_string();
            files.insert(name, fs::read_link(entry.path())?);
        }
        let status = fs::read_to_string(format!("/proc/{pid}/task/{}/status", self.computing))?;
        let of_signals = |line: &&str| line.starts_with("SigBlk") || line.starts_with("SigCgt");
        let signals = status.lines().filter(of_signals);
        let signals = signals.map(str::to_owned).collect();
        Ok(Shape { files, signals })
    }

    /// Fails unless it runs on, untraced, and has never computed anything wrong.
    pub(crate) fn is_well(&mut self) -> Result<()> {
        ensure!(self.child.running()?, "the target has ended");
        self.process.is_well()
    }
}

impl Process {
    pub(crate) fn of(pid: u32, state: u64) -> Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path)?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, rest) = stat.rsplit_once(") ").context("no name")?;
        let start_time = rest.split(' ').nth(19).context("no start time")?.parse()?;
        Ok(Self {
            pid,
            start_time,
            state,
            memory,
        })
    }

    pub(crate) fn address(&self, word: Word) -> u64 {
        self.state + word as u64 * 8
    }

    /// The address of a slot.
    pub(crate) fn slot(&self, number: u64) -> u64 {
        self.address(Word::Slots) + number * 8
    }

    /// The value of a slot at the start.
    pub(crate) fn slot_value(number: u64) -> u64 {
        0x1000 + number
    }

    pub(crate) fn get(&self, word: Word) -> Result<u64> {
        self.read(self.address(word))
    }

    pub(crate) fn set(&self, word: Word, value: u64) -> Result<()> {
        self.write(self.address(word), value)
    }

    pub(crate) fn read(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    pub(crate) fn write(&self, address: u64, value: u64) -> Result<()> {
        Ok(self.memory.write_all_at(&value.to_ne_bytes(), address)?)
    }

    /// The jumps of the fixture's linkage stubs, as they are now.
    pub(crate) fn jumps(&self) -> Result<[Jump; 2]> {
        let jump = |word| {
            let address = self.get(word)?;
            let mut code = [0; CODE_BYTES];
            self.memory.read_exact_at(&mut code, address)?;
            Ok::<_, anyhow::Error>(Jump { address, code })
        };
        Ok([jump(Word::FirstStub)?, jump(Word::SecondStub)?])
    }

    /// A place for the links of the stubs, below the program.
    pub(crate) fn link_page(&self, number: u64) -> Result<u64> {
        let slot = self.get(Word::Shared)?;
        Ok(slot - slot % 4096 - ((3 + number) << 24))
    }

    /// What leads the stubs to a function, by links on a page.
    pub(crate) fn redirects(&self, page: u64, target: u64) -> Result<Vec<Redirect>> {
        let link = page + self.get(Word::Shared)? % 4096;
        let redirect = |jump: Jump| {
            let patch = jump.by(link).context("the stub can't be changed")?;
            Ok(Redirect {
                patch,
                link,
                target,
            })
        };
        self.jumps()?.into_iter().map(redirect).collect()
    }

    /// Whether the stubs jump by their slot.
    pub(crate) fn stubs_are_old(&self) -> Result<bool> {
        let slot = self.get(Word::Shared)?;
        Ok(self.jumps()?.iter().all(|it| it.word() == Some(slot)))
    }

    /// Waits until the stubs have reached one of the functions some more.
    pub(crate) fn stubs_reach(&self, calls: Word) -> Result<()> {
        let before = self.get(calls)?;
        until("calls by the stubs", MINUTE, || {
            Ok(self.get(calls)? > before + 5000)
        })
    }

    /// Whether all slots have the values of the start.
    pub(crate) fn slots_are_old(&self) -> Result<bool> {
        for number in 0..SLOTS {
            if self.read(self.slot(number))? != Self::slot_value(number) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until it has computed some more.
    pub(crate) fn compute_on(&self) -> Result<()> {
        let before = self.get(Word::Rounds)?;
        until("more rounds", MINUTE, || {
            Ok(self.get(Word::Rounds)? > before + 3)
        })
    }

    pub(crate) fn is_well(&self) -> Result<()> {
        self.compute_on()?;
        ensure!(self.get(Word::Wrong)? == 0, "a result is wrong");
        until("the end of tracing", MINUTE, || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
            Ok(status.contains("TracerPid:\t0\n"))
        })
    }

    /// The permissions, lengths and paths of its mappings from an address on.
    pub(crate) fn mappings(&self, from: u64, end: u64) -> Result<Vec<(String, u64, String)>> {
        let mut found = Vec::new();
        for line in fs::read_to_string(format!("/proc/{}/maps", self.pid))?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (first, last) = words[0].split_once('-').context("no range")?;
            let first = u64::from_str_radix(first, 16)?;
            let last = u64::from_str_radix(last, 16)?;
            if first >= from && last <= end {
                let path = words.get(5).copied().unwrap_or_default();
                found.push((words[1].to_owned(), last - first, path.to_owned()));
            }
        }
        Ok(found)
    }

    /// Limits its open files.
    pub(crate) fn limit_files(&self, most: u64) -> Result<u64> {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let (pid, kind) = (self.pid as i32, libc::RLIMIT_NOFILE);
        // SAFETY: both structs are valid.
        let result = unsafe {
            libc::prlimit(pid, kind, std::ptr::null(), &raw mut before);
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: before.rlim_max,
            };
            libc::prlimit(pid, kind, &raw const limit, std::ptr::null_mut())
        };
        ensure!(result == 0, "can't limit the files");
        Ok(before.rlim_cur)
    }
}

/// Sends a signal to a thread.
pub(crate) fn signal_thread(pid: u32, tid: u32, signal: i32) -> Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
    ensure!(
        result == 0,
        "can't send: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// A file in memory, of one page.
pub(crate) fn page() -> Result<File> {
    let file = heaptrace::sys::file_in_memory("hints", &[0; 4096])?;
    ensure!(file.as_raw_fd() >= 0, "no file");
    Ok(file)
}
