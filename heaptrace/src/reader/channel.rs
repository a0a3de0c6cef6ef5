//! The stream between tracer and reader: messages with a header, and descriptors that travel with them.
//!
//! No stage of the flow. Must know neither what messages mean nor how processes are started.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors with one message.
pub const MAX_FILES: usize = 16;

/// Bytes of a header: the kind of message (4) and the length of its body (8).
const HEADER: usize = 4 + 8;

/// The longest wait for the other side before `watch` is called.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A received message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u32,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<File>,
}

/// One end of the stream.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
}

impl From<UnixStream> for Channel {
    fn from(stream: UnixStream) -> Self {
        Self { stream }
    }
}

impl Channel {
    /// Waits for a message with at most `max_bytes` in its body, and receives its descriptors. `None` if the other side
    /// closed the stream.
    pub(super) fn receive(&mut self, max_bytes: usize) -> io::Result<Option<Message>> {
        let mut header = [0; HEADER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut header)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if got.bytes == 0 {
            return Ok(None);
        }
        let files = ancillary
            .drain()
            .filter_map(|it| match it {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .map(File::from)
            .collect();
        self.stream
            .read_exact(header.get_mut(got.bytes..).unwrap_or_default())?;
        let (kind, length) = parse_header(&header, max_bytes)?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Some(Message { kind, body, files }))
    }

    /// Sends a message without descriptors.
    pub(super) fn send(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(&header_of(kind, body))?;
        self.stream.write_all(body)
    }

    /// Sends a message with descriptors. While the other side does not read, calls `watch` after each tick; an error from
    /// `watch` ends the wait.
    pub(super) fn send_watched<E: From<io::Error>>(
        &mut self,
        kind: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
        mut watch: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many descriptors").into());
        }
        let header = header_of(kind, body);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut rest: &[u8] = body;
        let mut left = loop {
            match sendmsg(
                &self.stream,
                &[IoSlice::new(&header)],
                &mut ancillary,
                flags,
            ) {
                Ok(sent) => break header.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT, &mut watch)?,
                Err(error) => return Err(io::Error::from(error).into()),
            }
        };
        while !(left.is_empty() && rest.is_empty()) {
            let part = if left.is_empty() {
                &mut rest
            } else {
                &mut left
            };
            match rustix::net::send(&self.stream, part, flags) {
                Ok(sent) => *part = part.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT, &mut watch)?,
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Waits for a message with at most `max_bytes` in its body, without descriptors. Calls `watch` after each tick without
    /// data; an error from `watch` ends the wait.
    pub(super) fn receive_watched<E: From<io::Error>>(
        &mut self,
        max_bytes: usize,
        mut watch: impl FnMut() -> Result<(), E>,
    ) -> Result<Message, E> {
        let mut header = [0; HEADER];
        self.fill(&mut header, &mut watch)?;
        let (kind, length) = parse_header(&header, max_bytes)?;
        let mut body = vec![0; length];
        self.fill(&mut body, &mut watch)?;
        Ok(Message {
            kind,
            body,
            files: Vec::new(),
        })
    }

    fn fill<E: From<io::Error>>(
        &mut self,
        mut bytes: &mut [u8],
        watch: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            match rustix::net::recv(&self.stream, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok((got, _)) => bytes = bytes.get_mut(got..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN, watch)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    fn wait<E: From<io::Error>>(
        &self,
        readiness: PollFlags,
        watch: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), readiness)];
        match poll(&mut polled, Some(&TICK)) {
            Ok(0) => watch(),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// The time that [`Channel::receive_watched`] waits between two calls of `watch`.
pub(super) const fn tick() -> Duration {
    Duration::from_nanos(TICK.tv_nsec as u64)
}

fn header_of(kind: u32, body: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (of_kind, of_length) = header.split_at_mut(4);
    of_kind.copy_from_slice(&kind.to_le_bytes());
    of_length.copy_from_slice(&(body.len() as u64).to_le_bytes());
    header
}

/// The kind of a message and the length of its body.
fn parse_header(header: &[u8; HEADER], max_bytes: usize) -> io::Result<(u32, usize)> {
    let mut kind = [0; 4];
    let mut length = [0; 8];
    kind.copy_from_slice(&header[..4]);
    length.copy_from_slice(&header[4..]);
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is longer than it may be",
        ));
    }
    Ok((u32::from_le_bytes(kind), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_watch() -> Result<(), io::Error> {
        Ok(())
    }

    /// Check that messages arrive as they were sent, with their descriptors, and that large messages arrive whole.
    #[test]
    fn messages_arrive() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::from(one), Channel::from(other));
        let body = vec![7; 1 << 20];
        let sent = body.clone();
        let receiving = std::thread::spawn(move || {
            let message = other.receive(1 << 20).unwrap().unwrap();
            other.send(9, &message.body).unwrap();
            message
        });
        let file = File::open("/proc/self/exe").unwrap();
        one.send_watched(3, &sent, &[file.as_fd()], no_watch)
            .unwrap();
        let back = one.receive_watched(1 << 20, no_watch).unwrap();
        assert_eq!((back.kind, back.body), (9, body));
        let message = receiving.join().unwrap();
        assert_eq!((message.kind, message.files.len()), (3, 1));
    }

    /// Check that a message whose length is over the limit is an error, and that an incomplete message is an error.
    #[test]
    fn lengths_are_bounded() {
        for bytes in [
            [0xff; HEADER].as_slice(),
            &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1],
        ] {
            let (one, mut other) = UnixStream::pair().unwrap();
            other.write_all(bytes).unwrap();
            drop(other);
            let got = Channel::from(one).receive_watched(16, no_watch);
            assert!(got.is_err());
        }
    }
}
