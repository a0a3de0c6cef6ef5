//! Restriction of system calls (seccomp).
//!
//! No stage of the flow. The filter is an allow-list. A call that is not on the list fails with EPERM: a C library that
//! tries a newer call first then falls back to an allowed one. The call is raw: rustix does not have it.

use std::io;

/// The result of the filter for a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel executes it.
    Allow,
    /// It fails with this error number.
    Fail(i32),
    /// The kernel does not execute it, and sends the thread a SIGSYS.
    Trap,
}

impl Verdict {
    fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Fail(errno) => libc::SECCOMP_RET_ERRNO | errno as u32 & 0xffff,
            Self::Trap => libc::SECCOMP_RET_TRAP,
        }
    }
}

/// Offsets in the kernel's `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const THIRD_ARGUMENT: u32 = 32;

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;

/// The bit that marks system calls of the x32 interface.
const X32: u32 = 1 << 30;

/// Calls whose third argument can request executable memory.
const MEMORY_PROTECTION_CALLS: [i64; 2] = [libc::SYS_mmap, libc::SYS_mprotect];

/// The calls that every program needs: for memory, time, waiting and exit, and to read and write open files.
pub const BASIC: [i64; 31] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fcntl,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Restricts all threads of this process to the calls that a rule allows. Requests for executable memory fail, whatever
/// the rules say. The process must have given up new privileges before.
pub fn restrict(rules: impl IntoIterator<Item = (i64, Verdict)>) -> io::Result<()> {
    let mut program = program(rules);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is valid and has the length that is passed; the kernel copies it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            std::ptr::from_ref(&filter),
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "can't restrict system calls: thread {thread} has a filter of its own"
        ))),
    }
}

/// The filter program (classic BPF) for the rules. The first rule for a call applies.
fn program(rules: impl IntoIterator<Item = (i64, Verdict)>) -> Vec<libc::sock_filter> {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let give = |code| statement(libc::BPF_RET | libc::BPF_K, code);
    let mut program = vec![
        load(ARCHITECTURE),
        jump(libc::BPF_JEQ, X86_64, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
        jump(libc::BPF_JGE, X32, 0, 1),
        give(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let denied = Verdict::Fail(libc::EPERM).code();
    for call in MEMORY_PROTECTION_CALLS {
        program.extend([
            jump(libc::BPF_JEQ, call as u32, 0, 4),
            load(THIRD_ARGUMENT),
            jump(libc::BPF_JSET, libc::PROT_EXEC as u32, 0, 1),
            give(denied),
            load(NUMBER),
        ]);
    }
    for (call, verdict) in rules {
        program.extend([jump(libc::BPF_JEQ, call as u32, 0, 1), give(verdict.code())]);
    }
    program.push(give(denied));
    program
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// A conditional jump: over `holds` instructions if the condition holds, else over `fails` instructions.
fn jump(condition: u32, k: u32, holds: u8, fails: u8) -> libc::sock_filter {
    libc::sock_filter {
        jt: holds,
        jf: fails,
        ..statement(libc::BPF_JMP | condition | libc::BPF_K, k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The return value of a filter program for a call, as the kernel computes it.
    fn evaluate(program: &[libc::sock_filter], arch: u32, call: u32, third: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let it = program[at];
            let code = u32::from(it.code);
            at += 1;
            if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                value = match it.k {
                    NUMBER => call,
                    ARCHITECTURE => arch,
                    THIRD_ARGUMENT => third,
                    _ => panic!("unknown offset {}", it.k),
                };
            } else if code == libc::BPF_RET | libc::BPF_K {
                return it.k;
            } else {
                let holds = match code & 0xf0 {
                    libc::BPF_JEQ => value == it.k,
                    libc::BPF_JGE => value >= it.k,
                    libc::BPF_JSET => value & it.k != 0,
                    _ => panic!("unknown jump {code:x}"),
                };
                at += usize::from(if holds { it.jt } else { it.jf });
            }
        }
    }

    /// Check the verdicts for listed and unlisted calls, for other interfaces, and for requests for executable memory.
    #[test]
    fn filter_gives_expected_verdicts() {
        let listed = [
            (libc::SYS_read, Verdict::Allow),
            (libc::SYS_mmap, Verdict::Allow),
            (libc::SYS_openat, Verdict::Trap),
        ];
        let program = program(listed);
        let native = |call: i64, third| evaluate(&program, X86_64, call as u32, third);
        assert_eq!(native(libc::SYS_read, 4), Verdict::Allow.code());
        assert_eq!(native(libc::SYS_openat, 0), Verdict::Trap.code());
        assert_eq!(
            native(libc::SYS_execve, 0),
            Verdict::Fail(libc::EPERM).code()
        );
        assert_eq!(native(libc::SYS_mmap, 3), Verdict::Allow.code());
        let denied = Verdict::Fail(libc::EPERM).code();
        assert_eq!(native(libc::SYS_mmap, 5), denied);
        assert_eq!(native(libc::SYS_mprotect, 4), denied);
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(evaluate(&program, 0x4000_0003, 0, 0), kill);
        assert_eq!(evaluate(&program, X86_64, X32, 0), kill);
    }
}
