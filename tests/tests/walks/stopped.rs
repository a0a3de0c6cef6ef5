//! A program under ptrace, stopped at traps or at each instruction, to read its registers, memory and mappings.

use std::fs::{self, File};
use std::io::Error;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use heaptrace_common::unwind::{Memory, Registers};

/// A program under ptrace. Only the thread that started it can use it.
pub(crate) struct Stopped {
    child: Child,
    memory: File,
}

/// How the program continues after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It runs to its next trap.
    Trap,
    /// It runs one instruction.
    Instruction,
    /// It is killed.
    Kill,
}

/// A stop at a trap, or after a single instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// The thread's registers.
    pub(crate) registers: Registers,
    /// The register of the first argument, in which the fixture's traps have the requested size.
    pub(crate) argument: u64,
}

/// A part of the program's memory that holds code.
#[derive(Clone, Debug)]
pub(crate) struct CodeMapping {
    /// The first address, and the address after the last one.
    pub(crate) range: (u64, u64),
    /// The offset in the file at which it begins.
    pub(crate) offset: u64,
    /// The file's path, or a name in brackets.
    pub(crate) path: String,
}

impl Memory for &Stopped {
    fn read(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

impl Stopped {
    /// Starts a program, stopped before its first instruction.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        // SAFETY: the closure makes a system call, and neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(|| match ptrace(libc::PTRACE_TRACEME, 0, 0) {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            });
        }
        let child = command.stdin(Stdio::null()).spawn()?;
        let pid = child.id() as i32;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let mut stopped = Self { child, memory };
        stopped.wait()?;
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SETOPTIONS, pid, options as usize)?;
        // The file that was opened before the `exec` shows the memory of this program's copy.
        stopped.memory = File::open(format!("/proc/{pid}/mem"))?;
        Ok(stopped)
    }

    /// Runs the program to its end. `visit` is called at each trap of a thread and after each single instruction of the
    /// first thread, and returns how that thread continues.
    pub(crate) fn run(mut self, mut visit: impl FnMut(&Self, Stop) -> Result<Next>) -> Result<()> {
        let first = self.child.id() as i32;
        let mut mode = libc::PTRACE_CONT;
        request(mode, first, 0)?;
        loop {
            let (thread, status) = self.wait()?;
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if thread == first {
                    ensure!(status == 0, "the program ended with {status:#x}");
                    return Ok(());
                }
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            let mut pass_on = 0;
            if signal == libc::SIGTRAP && status >> 16 == 0 {
                let next = visit(&self, stop(thread)?)?;
                match next {
                    Next::Kill => return Ok(()),
                    Next::Trap if thread == first => mode = libc::PTRACE_CONT,
                    Next::Instruction if thread == first => mode = libc::PTRACE_SINGLESTEP,
                    _ => {}
                }
            } else if signal != libc::SIGSTOP && signal != libc::SIGTRAP {
                pass_on = signal as usize;
            }
            let how = if thread == first {
                mode
            } else {
                libc::PTRACE_CONT
            };
            request(how, thread, pass_on)?;
        }
    }

    /// The executable mappings of the program.
    pub(crate) fn code(&self) -> Result<Vec<CodeMapping>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.child.id()))?;
        let mappings = maps.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let executable = fields.next()?.contains('x');
            let number = |text| u64::from_str_radix(text, 16).ok();
            let mapping = CodeMapping {
                range: (number(start)?, number(end)?),
                offset: number(fields.next()?)?,
                path: fields.nth(2)?.to_owned(),
            };
            // The kernel's other pages can't be read.
            let readable = mapping.path.starts_with('/') || mapping.path == "[vdso]";
            (executable && readable).then_some(mapping)
        });
        Ok(mappings.collect())
    }

    /// The bytes of a mapping's file, or of the mapping itself if it has no file.
    pub(crate) fn image(&self, mapping: &CodeMapping) -> Result<Vec<u8>> {
        if mapping.path.starts_with('/') {
            return fs::read(&mapping.path).with_context(|| mapping.path.clone());
        }
        let mut image = vec![0; (mapping.range.1 - mapping.range.0) as usize];
        self.memory
            .read_exact_at(&mut image, mapping.range.0)
            .with_context(|| mapping.path.clone())?;
        Ok(image)
    }

    /// Waits for any thread of the program.
    fn wait(&mut self) -> Result<(i32, i32)> {
        let mut status = 0;
        // Other tests have children, too, but in threads of their own.
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the status is a local variable.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        ensure!(thread > 0, "waitpid: {}", Error::last_os_error());
        Ok((thread, status))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The program may have ended and been reaped. Its first thread ends last, after all others are reaped.
        let _ = self.child.kill();
        while self.wait().is_ok() {}
    }
}

/// The system call, with arguments of the width that it expects.
///
/// # Safety
///
/// `data` must be valid for the request.
unsafe fn ptrace(request: libc::c_uint, thread: i32, data: usize) -> libc::c_long {
    // SAFETY: the caller promises it.
    unsafe { libc::ptrace(request, thread, 0usize, data) }
}

fn request(what: libc::c_uint, thread: i32, data: usize) -> Result<()> {
    // SAFETY: these requests take a number, and write nothing.
    let result = unsafe { ptrace(what, thread, data) };
    ensure!(result == 0, "ptrace {what}: {}", Error::last_os_error());
    Ok(())
}

fn stop(thread: i32) -> Result<Stop> {
    // SAFETY: the structure has only numbers, for which 0 is valid.
    let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes the structure that is passed.
    let result = unsafe { ptrace(libc::PTRACE_GETREGS, thread, (&raw mut all).addr()) };
    ensure!(result == 0, "ptrace: {}", Error::last_os_error());
    Ok(Stop {
        registers: Registers {
            ip: all.rip,
            sp: all.rsp,
            bp: all.rbp,
        },
        argument: all.rdi,
    })
}
