//! The reader's side: receives questions and sends answers, one after the other.
//!
//! No stage of the flow. Must not know what a question means: the handler does.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::channel::Channel;
use super::message::Job;
use super::{confine, process};

/// Answers questions about files.
pub type Handler<'h> = dyn FnMut(Job, &[u8], Vec<File>) -> Vec<u8> + 'h;

/// Longest question.
const MAX_QUESTION: usize = 16 << 20;

/// Bytes at the beginning of a question: its limit of processor time, in milliseconds.
pub(super) const LIMIT_BYTES: usize = 8;

/// Confines this process and answers the questions on standard input, until that is closed.
pub fn serve_standard_input(handler: &mut Handler<'_>) -> io::Result<()> {
    let memory = process::asked_memory();
    // SAFETY: the process that started this reader passed the stream as standard input, and nothing else uses it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    confine::confine(memory)?;
    let mut channel = Channel::from(stream);
    channel.send(process::RUNS, &[])?;
    serve(channel, Clock::Own, handler)
}

/// How the time limit of a question is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// This process ends at the limit.
    Own,
    /// Not at all: the server is a thread of a test.
    #[cfg(test)]
    None,
}

pub(super) fn serve(
    mut channel: Channel,
    clock: Clock,
    handler: &mut Handler<'_>,
) -> io::Result<()> {
    while let Some(message) = channel.receive(MAX_QUESTION)? {
        let (limit, question) = message
            .body
            .split_first_chunk::<LIMIT_BYTES>()
            .ok_or(io::ErrorKind::InvalidData)?;
        if clock == Clock::Own {
            set_time_limit(Duration::from_millis(u64::from_le_bytes(*limit)))?;
        }
        let answer = match Job::numbered(message.kind) {
            Some(job) => handler(job, question, message.files),
            None => Vec::new(),
        };
        if clock == Clock::Own {
            set_time_limit(Duration::ZERO)?;
        }
        channel.send(message.kind, &answer)?;
    }
    Ok(())
}

/// Ends this process by SIGPROF once it has used this much processor time from now on. Zero removes the limit.
fn set_time_limit(time: Duration) -> io::Result<()> {
    let once = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: time.as_secs() as i64,
            tv_usec: i64::from(time.subsec_micros()),
        },
    };
    // By its number, because the C library may make another call, which is not allowed here. rustix does not have it.
    // SAFETY: the struct is valid; nothing is written back.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setitimer,
            libc::ITIMER_PROF,
            std::ptr::from_ref(&once),
            std::ptr::null_mut::<libc::itimerval>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
