//! A terminal with a program in it, as a terminal emulator has one.
//!
//! Part of the harness. Keys are sent, and what the program writes is collected with its escape sequences. The program's
//! session is killed when the handle is dropped.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result};

use crate::child::{Collector, send};
use crate::until::{MINUTE, until};

/// A terminal, and the program that it controls.
pub struct Pty {
    child: std::process::Child,
    /// The emulator's end.
    own: File,
    /// The program's end, which is kept open so that its state can be read when the program is gone.
    programs: OwnedFd,
    output: Collector,
    /// The state before the program began.
    before: Modes,
    /// How much of the output has been waited for.
    seen: usize,
}

/// The part of a terminal's state that a program may change for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Whether lines are passed on as a whole.
    pub lines: bool,
    /// Whether keys are echoed.
    pub echo: bool,
    /// Whether Ctrl-Z stops the program.
    pub suspend: bool,
    all: (u32, u32, u32, u32, [u8; 32]),
}

impl Pty {
    /// Starts a program in a new terminal of this size, as the leader of a session.
    pub fn spawn(command: &mut Command, columns: u16, rows: u16) -> Result<Self> {
        let (own, programs) = open(columns, rows).context("can't open a terminal")?;
        let terminal: RawFd = programs.as_raw_fd();
        command
            .stdin(programs.try_clone()?)
            .stdout(programs.try_clone()?)
            .stderr(programs.try_clone()?)
            .env("TERM", "xterm-256color");
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let before = modes(&programs)?;
        let child = command.spawn().context("can't start the program")?;
        let own = File::from(own);
        Ok(Self {
            child,
            output: Collector::reading(own.try_clone()?),
            own,
            programs,
            before,
            seen: 0,
        })
    }

    /// The process id of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.own.write_all(keys.as_bytes())?)
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let size = size(columns, rows);
        // SAFETY: the pointer is to a size, which the call only reads.
        let result =
            unsafe { libc::ioctl(self.own.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        anyhow::ensure!(result == 0, "{}", io::Error::last_os_error());
        Ok(())
    }

    /// Waits until the program writes a text, behind those that were waited for before.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        let mut end = None;
        let waited = until(&format!("{text:?}"), MINUTE, || {
            let all = self.output();
            let at = all.get(self.seen..).and_then(|it| it.find(text));
            end = at.map(|at| self.seen + at + text.len());
            Ok(end.is_some())
        });
        waited.with_context(|| format!("the terminal got:\n{:?}", self.output()))?;
        self.seen = end.unwrap_or(self.seen);
        Ok(())
    }

    /// Everything that the program has written.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// The terminal's present state.
    pub fn modes(&self) -> Result<Modes> {
        modes(&self.programs)
    }

    /// Waits until the terminal has the state that it had before the program began.
    pub fn wait_restored(&self) -> Result<()> {
        until("the terminal's state", MINUTE, || {
            Ok(self.modes()? == self.before)
        })
        .with_context(|| format!("{:?}", self.modes()))
    }

    /// Waits for the end of the program.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        until("the program's end", 2 * MINUTE, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .with_context(|| format!("the terminal got:\n{:?}", self.output()))?;
        status.context("no status")
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // The program may have started others in the foreground. Errors mean that they are gone.
        // SAFETY: a plain system call.
        let front = unsafe { libc::tcgetpgrp(self.own.as_raw_fd()) };
        if front > 1 {
            let _ = send(-front, libc::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The two ends of a new terminal.
fn open(columns: u16, rows: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut own, mut programs) = (-1, -1);
    let size = size(columns, rows);
    // SAFETY: both descriptors and the size are valid for the call, and the others may be null.
    let result = unsafe {
        libc::openpty(
            &raw mut own,
            &raw mut programs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    for fd in [own, programs] {
        // SAFETY: a plain system call. Other children of the tests must not keep the terminal open.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: the call has just returned these descriptors, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(programs)) })
}

fn modes(terminal: &OwnedFd) -> Result<Modes> {
    // SAFETY: all zeros are a valid value, and the call fills it.
    let state = unsafe {
        let mut state: libc::termios = std::mem::zeroed();
        anyhow::ensure!(
            libc::tcgetattr(terminal.as_raw_fd(), &raw mut state) == 0,
            "{}",
            io::Error::last_os_error()
        );
        state
    };
    Ok(Modes {
        lines: state.c_lflag & libc::ICANON != 0,
        echo: state.c_lflag & libc::ECHO != 0,
        suspend: state.c_cc[libc::VSUSP] != 0,
        all: (
            state.c_iflag,
            state.c_oflag,
            state.c_cflag,
            state.c_lflag,
            state.c_cc,
        ),
    })
}
