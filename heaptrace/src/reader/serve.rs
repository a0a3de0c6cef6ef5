//! The reader's side: questions in, answers out, one after the other.
//!
//! No stage of the flow. What a question means is its handler's business.

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

/// A question's head: how much processor time it may take, in milliseconds.
pub(super) const LIMIT_BYTES: usize = 8;

/// Confines this process and answers what comes on standard input, until that is closed.
pub fn serve_standard_input(handler: &mut Handler<'_>) -> io::Result<()> {
    let memory = process::asked_memory();
    // SAFETY: whoever started this process as a reader put the stream there; nobody else uses it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    confine::confine(memory)?;
    serve(Channel::from(stream), Clock::Own, handler)
}

/// Who sees to it that a question does not take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// This process, by ending.
    Own,
    /// Nobody: it is a thread of a test.
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
            allow(Duration::from_millis(u64::from_le_bytes(*limit)))?;
        }
        let answer = match Job::numbered(message.kind) {
            Some(job) => handler(job, question, message.files),
            None => Vec::new(),
        };
        if clock == Clock::Own {
            allow(Duration::ZERO)?;
        }
        channel.send(message.kind, &answer)?;
    }
    Ok(())
}

/// Ends this process by SIGPROF once it has taken so much processor time; zero takes that back.
fn allow(time: Duration) -> io::Result<()> {
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
    // SAFETY: the struct is valid; nothing is written back. By its number: the C library may know another way.
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
