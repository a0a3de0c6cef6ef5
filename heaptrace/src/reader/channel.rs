//! The stream between tracer and reader: messages with a head, and descriptors beside them.
//!
//! No stage of the flow. Knows nothing of what messages mean, nor of processes.

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

/// Most descriptors beside a message.
pub(super) const MAX_FILES: usize = 16;

/// A number that says what it is, and a length.
const HEAD: usize = 4 + 8;

/// How long the other side is waited for before somebody looks at it.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What came.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u32,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<File>,
}

/// One end.
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
    /// Waits for a message, and takes its descriptors. `None` where the other side is gone.
    pub(super) fn receive(&mut self, most: usize) -> io::Result<Option<Message>> {
        let mut head = [0; HEAD];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut head)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if got.bytes == 0 {
            return Ok(None);
        }
        let files = beside
            .drain()
            .filter_map(|it| match it {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .map(File::from)
            .collect();
        self.stream
            .read_exact(head.get_mut(got.bytes..).unwrap_or_default())?;
        let (kind, length) = parsed(&head, most)?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Some(Message { kind, body, files }))
    }

    /// Sends a message without descriptors.
    pub(super) fn send(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(&head(kind, body))?;
        self.stream.write_all(body)
    }

    /// Sends a message with descriptors. Where the other side does not take it at once, `watch` is asked now and then
    /// whether to go on.
    pub(super) fn send_watched<E: From<io::Error>>(
        &mut self,
        kind: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
        mut watch: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many descriptors").into());
        }
        let head = head(kind, body);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut rest: &[u8] = body;
        let mut left = loop {
            match sendmsg(&self.stream, &[IoSlice::new(&head)], &mut beside, flags) {
                Ok(sent) => break head.get(sent..).unwrap_or_default(),
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

    /// Waits for a message of at most so many bytes, and takes no descriptors. `watch` is asked now and then whether to
    /// go on.
    pub(super) fn receive_watched<E: From<io::Error>>(
        &mut self,
        most: usize,
        mut watch: impl FnMut() -> Result<(), E>,
    ) -> Result<Message, E> {
        let mut head = [0; HEAD];
        self.fill(&mut head, &mut watch)?;
        let (kind, length) = parsed(&head, most)?;
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
        what: PollFlags,
        watch: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), what)];
        match poll(&mut polled, Some(&TICK)) {
            Ok(0) => watch(),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// How long [`Channel::receive_watched`] waits between two looks.
pub(super) const fn tick() -> Duration {
    Duration::from_nanos(TICK.tv_nsec as u64)
}

fn head(kind: u32, body: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let (of_kind, of_length) = head.split_at_mut(4);
    of_kind.copy_from_slice(&kind.to_le_bytes());
    of_length.copy_from_slice(&(body.len() as u64).to_le_bytes());
    head
}

fn parsed(head: &[u8; HEAD], most: usize) -> io::Result<(u32, usize)> {
    let mut kind = [0; 4];
    let mut length = [0; 8];
    kind.copy_from_slice(&head[..4]);
    length.copy_from_slice(&head[4..]);
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > most {
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

    fn patient() -> Result<(), io::Error> {
        Ok(())
    }

    /// Check that messages come as they were sent, with the files beside them, and large ones in parts.
    #[test]
    fn messages_come() {
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
        one.send_watched(3, &sent, &[file.as_fd()], patient)
            .unwrap();
        let back = one.receive_watched(1 << 20, patient).unwrap();
        assert_eq!((back.kind, back.body), (9, body));
        let message = receiving.join().unwrap();
        assert_eq!((message.kind, message.files.len()), (3, 1));
    }

    /// Check that a message that says it is longer than it may be takes no memory, and that a cut one is an error.
    #[test]
    fn lengths_are_bounded() {
        for bytes in [
            [0xff; HEAD].as_slice(),
            &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1],
        ] {
            let (one, mut other) = UnixStream::pair().unwrap();
            other.write_all(bytes).unwrap();
            drop(other);
            let got = Channel::from(one).receive_watched(16, patient);
            assert!(got.is_err());
        }
    }
}
