//! The agent's part: requests to the installer, and the kernel program's signal.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use heaptrace::probes::fast::installer::{
    Answer, Installer, LinkPlace, Redirect, Request, Sizes, Slot,
};

use crate::target::{Process, SLOTS, Target, page, signal_thread};

pub(crate) const PAGE: u64 = 4096;

/// Lengths of the mapping in the tests.
pub(crate) const SIZES: Sizes = Sizes {
    code: 3 * PAGE,
    data: PAGE,
    hints: PAGE,
    mark: PAGE,
};

/// All lengths.
pub(crate) const TOTAL: u64 = 6 * PAGE;

/// The code that tests fill in: `mov $42, %eax; ret`.
pub(crate) const CODE: [u8; 6] = [0xb8, 42, 0, 0, 0, 0xc3];

/// Longer than any test waits.
pub(crate) const LONG_MS: u32 = 60_000;

/// An installer, and the hints that it maps.
pub(crate) struct Agent {
    pub(crate) installer: Installer,
    pub(crate) hints: File,
    /// Answers that have arrived and were not asked for yet.
    early: RefCell<VecDeque<Answer>>,
}

impl Agent {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self {
            installer: Installer::start()?,
            hints: page()?,
            early: RefCell::default(),
        })
    }

    pub(crate) fn send(&self, request: &Request) -> Result<()> {
        let hints = matches!(request, Request::Map { .. }).then(|| self.hints.as_fd());
        Ok(self.installer.send(request, hints)?)
    }

    /// The next answer.
    pub(crate) fn answer(&self) -> Result<Answer> {
        let begin = Instant::now();
        loop {
            let mut early = self.early.borrow_mut();
            if let Some(answer) = early.pop_front() {
                return Ok(answer);
            }
            early.extend(self.installer.answers()?);
            if !early.is_empty() {
                continue;
            }
            let mut fd = libc::pollfd {
                fd: self.installer.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid struct.
            unsafe { libc::poll(&raw mut fd, 1, 1000) };
            if begin.elapsed() > Duration::from_secs(60) {
                bail!("no answer");
            }
        }
    }

    pub(crate) fn ask(&self, request: &Request) -> Result<Answer> {
        self.send(request)?;
        self.answer()
    }

    /// Asks for a mapping, and sends the signal once the thread is attached. Repeats that if the thread was in a system call.
    pub(crate) fn map(&self, target: &Target, places: &[u64]) -> Result<Answer> {
        self.map_by(
            target,
            &map_request(&target.process, target.computing, places, LONG_MS),
        )
    }

    /// The same with the mapping of an earlier run.
    pub(crate) fn map_again(&self, target: &Target, base: u64) -> Result<Answer> {
        let mut request = map_request(&target.process, target.computing, &[], LONG_MS);
        if let Request::Map { old, .. } = &mut request {
            *old = Some(base);
        }
        self.map_by(target, &request)
    }

    pub(crate) fn map_by(&self, target: &Target, request: &Request) -> Result<Answer> {
        loop {
            match self.ask(request)? {
                Answer::Seized { .. } => {}
                other => return Ok(other),
            }
            target.signal(libc::SIGURG)?;
            match self.answer()? {
                Answer::NotMapped { why, .. } if why.contains("in a system call") => {}
                other => return Ok(other),
            }
        }
    }

    /// Maps at one of these places, or fails.
    pub(crate) fn mapped(&self, target: &Target, places: &[u64]) -> Result<u64> {
        match self.map(target, places)? {
            Answer::Mapped { pid, base, .. } if pid == target.process.pid => Ok(base),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn undo(&self, pid: u32) -> Result<u32> {
        match self.ask(&Request::Undo { pid })? {
            // None of the stubs, or both of them.
            Answer::Undone { slots, stubs, .. } if stubs % 2 == 0 => Ok(slots),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn fill(&self, pid: u32, address: u64, bytes: &[u8]) -> Result<bool> {
        let bytes = bytes.to_vec();
        match self.ask(&Request::Fill {
            pid,
            address,
            bytes,
        })? {
            Answer::Filled { ok, .. } => Ok(ok),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn write(&self, pid: u32, slots: Vec<Slot>) -> Result<Vec<u64>> {
        match self.ask(&Request::Write { pid, slots })? {
            Answer::Written { written, .. } => Ok(written),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn redirect(&self, pid: u32, stubs: Vec<Redirect>) -> Result<Vec<u64>> {
        match self.ask(&Request::Redirect { pid, stubs })? {
            Answer::Written { written, .. } => Ok(written),
            other => bail!("{other:?}"),
        }
    }

    /// Maps, fills in code, writes all slots, and redirects the stubs to the code. Calls `step` before each step and behind the last one.
    pub(crate) fn install(
        &self,
        target: &Target,
        places: &[u64],
        links: u64,
        mut step: impl FnMut(),
    ) -> Result<u64> {
        step();
        let mut request = map_request(&target.process, target.computing, places, LONG_MS);
        if let Request::Map { links: all, .. } = &mut request {
            all.push(LinkPlace::FirstFree(vec![links]));
        }
        self.send(&request)?;
        step();
        let seized = self.answer()?;
        ensure!(matches!(seized, Answer::Seized { .. }), "{seized:?}");
        step();
        target.signal(libc::SIGURG)?;
        step();
        let Answer::Mapped {
            pid,
            base,
            links: mapped,
        } = self.answer()?
        else {
            bail!("not mapped");
        };
        ensure!(mapped == [links], "{mapped:x?}");
        step();
        ensure!(self.fill(pid, base, &CODE)?, "not filled");
        step();
        self.send(&Request::Write {
            pid,
            slots: all_slots(&target.process),
        })?;
        step();
        self.answer()?;
        step();
        let stubs = target.process.redirects(links, base)?;
        self.send(&Request::Redirect { pid, stubs })?;
        step();
        self.answer()?;
        step();
        Ok(base)
    }
}

pub(crate) fn map_request(
    process: &Process,
    tid: u32,
    places: &[u64],
    patience_ms: u32,
) -> Request {
    Request::Map {
        pid: process.pid,
        start_time: process.start_time,
        tid,
        signal: libc::SIGURG,
        places: places.to_vec(),
        old: None,
        sizes: SIZES,
        links: Vec::new(),
        patience_ms,
    }
}

/// Every slot of the fixture, with a new value.
pub(crate) fn all_slots(process: &Process) -> Vec<Slot> {
    let slot = |number| Slot {
        address: process.slot(number),
        old: Process::slot_value(number),
        new: 0x9000 + number,
    };
    (0..SLOTS).map(slot).collect()
}

/// A place that is free in the fixture.
pub(crate) fn place(number: u64) -> u64 {
    0x1000_0000_0000 + number * (TOTAL + PAGE)
}

/// Attaches to a thread, as a debugger does.
pub(crate) fn attach(tid: u32) -> Result<()> {
    const SEIZE: u32 = 0x4206;
    // SAFETY: no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, SEIZE, tid, 0, 0) };
    ensure!(result == 0, "can't attach");
    Ok(())
}

/// Runs a function in a forked process. Returns its id.
pub(crate) fn fork(run: impl FnOnce() -> Result<()>) -> Result<u32> {
    // SAFETY: the child uses no lock that another thread of this process may hold, except for the allocator's, which the C
    // library releases.
    match unsafe { libc::fork() } {
        -1 => bail!("can't fork"),
        0 => {
            let code = i32::from(run().is_err());
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(code) }
        }
        pid => u32::try_from(pid).context("a negative id"),
    }
}

/// Kills this process as the kernel would, at once.
pub(crate) fn die() {
    // SAFETY: plain numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Kills this process some microseconds later, wherever it is then. Nothing handles the signal.
pub(crate) fn die_later(microseconds: usize) {
    let mut time = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds as i64 + 1,
        },
    };
    // SAFETY: a valid struct.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw mut time, std::ptr::null_mut()) };
}

/// Waits for a forked process. Returns its status.
pub(crate) fn reap(pid: u32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
    status
}

/// Sends a signal to a thread again and again, without a pause.
pub(crate) fn flood(pid: u32, tid: u32, signal: i32, count: u64) -> Result<()> {
    for _ in 0..count {
        // The queue of signals may be full.
        let begin = Instant::now();
        while let Err(error) = signal_thread(pid, tid, signal) {
            ensure!(begin.elapsed() < Duration::from_secs(60), "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
