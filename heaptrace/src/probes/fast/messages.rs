//! What the agent and the installer send to each other.
//!
//! Stage: probes. One message is one packet. Must not know how a request is carried out.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::patch::Patch;
use crate::reader::{decode, encode};

/// Most bytes of a message.
pub const MOST_BYTES: usize = 64 << 10;

/// Most slots that fit into one request, whatever their addresses: a number takes at most 10 bytes.
pub const MOST_SLOTS: usize = 2048;

/// Most stubs that fit into one request, likewise.
pub const MOST_STUBS: usize = 256;

/// Lengths of the three parts of a mapping, in bytes, each a multiple of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Code: readable and executable. The first part.
    pub code: u64,
    /// Data: readable and writable.
    pub data: u64,
    /// What the kernel program writes: readable. The descriptor sent with the request is mapped here.
    pub hints: u64,
    /// What a forked child gets empty: readable.
    pub mark: u64,
}

impl Sizes {
    /// All parts together.
    pub const fn total(self) -> u64 {
        self.code + self.data + self.hints + self.mark
    }
}

/// A linkage slot of a target: a word with the address of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Where it is; a multiple of 8.
    pub address: u64,
    /// The value that it must have.
    pub old: u64,
    /// The value that it gets.
    pub new: u64,
}

/// A linkage stub of a target that is to jump by another word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// The change of its code.
    pub patch: Patch,
    /// The link: the word by which it jumps then, on a page of links of the process.
    pub link: u64,
    /// What is written into the link before, if that is still zero.
    pub target: u64,
}

/// Where a page of links is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkPlace {
    /// At the first of these addresses that is free.
    FirstFree(Vec<u64>),
    /// Where an earlier run has mapped it.
    Old(u64),
}

/// What the agent asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Attaches to a thread, and waits until it stops by a signal. The thread then maps code, data and hints. The descriptor
    /// of the hints is sent with this request.
    ///
    /// A kernel program sends the signal to the thread in user mode, while the thread is in a function of the allocator. It
    /// must not send before [`Answer::Seized`], and must end sending before the patience is over. The signal is not
    /// delivered. A signal that is sent without an attached process is delivered, so it must be one that is ignored by
    /// default, such as SIGURG.
    Map {
        /// The process.
        pid: u32,
        /// When the process started: field 22 of `/proc/PID/stat`. Another process with the same id is not mapped.
        start_time: u64,
        /// The thread.
        tid: u32,
        /// The signal by which the thread stops.
        signal: i32,
        /// Addresses for the mapping. The first one that is free is used.
        places: Vec<u64>,
        /// The address of an earlier run's mapping in the process. If set, that is used again: only its hints are replaced.
        old: Option<u64>,
        /// Lengths of the parts.
        sizes: Sizes,
        /// Pages of links.
        links: Vec<LinkPlace>,
        /// How long to wait for the signal, in milliseconds. The thread is not disturbed when this is over.
        patience_ms: u32,
    },
    /// Writes into the code or the data of a mapping. Code must be written before probes are put on it. Of the code of an
    /// earlier run's mapping only the cookie can be written, because threads may be executing it.
    Fill {
        /// The process.
        pid: u32,
        /// First address to write to.
        address: u64,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// Writes slots of a mapped process, at most [`MOST_SLOTS`]. A slot without its old value is not written.
    Write {
        /// The process.
        pid: u32,
        /// The slots.
        slots: Vec<Slot>,
    },
    /// Leads linkage stubs of a mapped process elsewhere, at most [`MOST_STUBS`]. A stub without its old bytes is not written.
    /// Answered by [`Answer::Written`].
    Redirect {
        /// The process.
        pid: u32,
        /// The stubs.
        stubs: Vec<Redirect>,
    },
    /// Writes slots and stubs of a process that is not mapped, and does not remember them: the process was left with them by an
    /// installer that was killed. Answered by [`Answer::Written`].
    PutBack {
        /// The process.
        pid: u32,
        /// When it started, as for [`Request::Map`].
        start_time: u64,
        /// The slots.
        slots: Vec<Slot>,
        /// The code of stubs.
        stubs: Vec<Patch>,
    },
    /// Takes over a process that was forked from a mapped one, and so has the same mapping and slots.
    Adopt {
        /// The process.
        pid: u32,
        /// When it started, as for [`Request::Map`].
        start_time: u64,
        /// The process that it was forked from.
        parent: u32,
    },
    /// Restores the slots and stubs of a process that still have the new value, and forgets the process. Its mapping stays, because
    /// threads may be in the code.
    Undo {
        /// The process.
        pid: u32,
    },
}

/// What the installer answers. Each request has exactly one answer; a mapping has [`Answer::Seized`] before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The thread is attached, so the signal may be sent.
    Seized {
        /// The process.
        pid: u32,
    },
    /// The process has the mapping.
    Mapped {
        /// The process.
        pid: u32,
        /// The first address of the mapping.
        base: u64,
        /// The addresses of the pages of links, in the order of the request; 0 for one that could not be mapped.
        links: Vec<u64>,
    },
    /// The process has no mapping, and nothing of it was changed.
    NotMapped {
        /// The process.
        pid: u32,
        /// The reason, for a report.
        why: String,
    },
    /// Slots or stubs were written.
    Written {
        /// The process.
        pid: u32,
        /// The addresses of the slots, or of the bytes of stubs, that now have the new value.
        written: Vec<u64>,
    },
    /// Bytes were written.
    Filled {
        /// The process.
        pid: u32,
        /// Whether the process has them.
        ok: bool,
    },
    /// A forked process was taken over.
    Adopted {
        /// The process.
        pid: u32,
        /// Whether it was; if not, its parent is not mapped or it has ended.
        ok: bool,
    },
    /// Slots and stubs were restored.
    Undone {
        /// The process.
        pid: u32,
        /// How many slots were restored.
        slots: u32,
        /// How many stubs were restored.
        stubs: u32,
    },
}

/// What to do if the other side has not read what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Wait until it has, or is gone.
    Wait,
    /// Fail.
    Fail,
}

/// Sends a message and descriptors.
pub(super) fn send<T: Serialize>(
    to: &OwnedFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
    room: Room,
) -> io::Result<()> {
    let bytes = encode(message);
    if bytes.is_empty() || bytes.len() > MOST_BYTES {
        let text = format!("a message of {} bytes is too long", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let wait = match room {
        Room::Wait => SendFlags::empty(),
        Room::Fail => SendFlags::DONTWAIT,
    };
    let parts = [IoSlice::new(&bytes)];
    sendmsg(to, &parts, &mut control, wait | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A message that has arrived.
pub(super) enum Received<T> {
    /// A message and its descriptor, if it has one.
    Message(T, Option<OwnedFd>),
    /// Bytes that are no message.
    Invalid,
    /// No message has arrived yet.
    Nothing,
    /// The other side is gone.
    End,
}

/// Receives a message with at most one descriptor. Never waits for one.
pub(super) fn receive<T: DeserializeOwned>(from: &OwnedFd) -> Received<T> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MOST_BYTES];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match recvmsg(
        from.as_fd(),
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    ) {
        Ok(got) if got.bytes > 0 => got,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Received::Nothing,
        _ => return Received::End,
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sent) = message {
            descriptor = sent.next();
        }
    }
    match decode(bytes.get(..got.bytes).unwrap_or_default()) {
        Some(message) => Received::Message(message, descriptor),
        None => Received::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a request with the most slots or stubs fits into a message, whatever their addresses.
    #[test]
    fn the_most_slots_fit() {
        let slot = Slot {
            address: u64::MAX,
            old: u64::MAX,
            new: u64::MAX,
        };
        let (pid, slots) = (u32::MAX, vec![slot; MOST_SLOTS]);
        let put_back = Request::PutBack {
            pid,
            start_time: u64::MAX,
            slots: slots.clone(),
            stubs: Vec::new(),
        };
        let patch = Patch {
            address: u64::MAX,
            old: u32::MAX,
            new: u32::MAX,
        };
        let redirect = Redirect {
            patch,
            link: u64::MAX,
            target: u64::MAX,
        };
        let stubs = vec![redirect; MOST_STUBS];
        let stubs_back = Request::PutBack {
            pid,
            start_time: u64::MAX,
            slots: Vec::new(),
            stubs: vec![patch; MOST_STUBS],
        };
        let redirect = Request::Redirect { pid, stubs };
        for request in [
            Request::Write { pid, slots },
            put_back,
            redirect,
            stubs_back,
        ] {
            assert!(encode(&request).len() <= MOST_BYTES);
        }
    }
}
