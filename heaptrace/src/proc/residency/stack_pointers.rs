//! The stack pointers of threads, by which their stacks are found.
//!
//! Part of `proc`. A thread that runs just now has none here, so its stack is taken for other memory.

use std::fs;

use crate::proc::processes;

/// Most threads that are asked.
const MAX_THREADS: usize = 4096;

/// The stack pointers of the threads of a process that wait.
pub(super) fn of(pid: u32) -> Vec<u64> {
    let threads = processes::threads(pid).unwrap_or_default();
    let of_thread = |tid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        parse(&text)
    };
    let threads = threads.into_iter().take(MAX_THREADS);
    threads.filter_map(of_thread).collect()
}

/// The stack pointer is the word before the last.
fn parse(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().rev();
    let pointer = words.nth(1)?.strip_prefix("0x")?;
    u64::from_str_radix(pointer, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread in a system call, one that waits otherwise, and one that runs are told apart.
    #[test]
    fn stack_pointers_are_parsed() {
        let call = "232 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffe12 0x7f34\n";
        assert_eq!(parse(call), Some(0x7f_fe12));
        assert_eq!(parse("-1 0x7ffe12 0x7f34\n"), Some(0x7f_fe12));
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse(""), None);
    }
}
