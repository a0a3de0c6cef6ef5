//! Changes a terminal's state, so that each change is undone, whatever happens to this process.
//!
//! No stage of the flow. The live view changes the terminal; the guardian, which outlives a killed agent, undoes what was
//! not undone. Both share a [`Restorer`]. Must not know what is drawn.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};

/// Disables a special character of a terminal.
const NO_CHARACTER: u8 = 0;

/// The state of a terminal before it was changed.
#[derive(Debug)]
pub struct Restorer {
    /// Where text is written.
    screen: OwnedFd,
    /// Where keys are read, if they are, and its state before.
    keys: Option<(OwnedFd, Termios)>,
    /// The escape sequence that undoes every change of the screen.
    undo: &'static str,
    /// Readable while the terminal is changed. The guardian has a copy of the descriptor, so it knows this when the agent
    /// is gone.
    changed: OwnedFd,
}

impl Restorer {
    /// The present state of a terminal, which nothing has changed yet. `keys`: the terminal that keys are read from.
    pub fn new(
        screen: impl AsFd,
        keys: Option<BorrowedFd<'_>>,
        undo: &'static str,
    ) -> io::Result<Self> {
        let keys = match keys {
            Some(keys) => Some((keys.try_clone_to_owned()?, tcgetattr(keys)?)),
            None => None,
        };
        Ok(Self {
            screen: screen.as_fd().try_clone_to_owned()?,
            keys,
            undo,
            changed: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Prepares for changes: from here on, the terminal is restored. Each key is passed on at once and not echoed, if keys
    /// are read.
    pub fn enter(&self) -> io::Result<()> {
        if !self.is_changed() {
            rustix::io::write(&self.changed, &1_u64.to_ne_bytes())?;
        }
        let Some((keys, before)) = &self.keys else {
            return Ok(());
        };
        let mut now = before.clone();
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        // A read returns what there is, and never waits.
        now.special_codes[SpecialCodeIndex::VMIN] = 0;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Ctrl-Z is a key: the terminal must be restored before the process stops.
        now.special_codes[SpecialCodeIndex::VSUSP] = NO_CHARACTER;
        Ok(tcsetattr(keys, OptionalActions::Now, &now)?)
    }

    /// The end of all changes of the screen: restores the keys. Nothing is left to undo.
    pub fn leave(&self) -> io::Result<()> {
        let restored = match &self.keys {
            Some((keys, before)) => tcsetattr(keys, OptionalActions::Now, before),
            None => Ok(()),
        };
        // Makes it unreadable. An error means that it was.
        let _ = rustix::io::read(&self.changed, &mut [0; 8]);
        Ok(restored?)
    }

    /// Whether the terminal is changed.
    pub fn is_changed(&self) -> bool {
        let mut fds = [PollFd::new(&self.changed, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
    }

    /// Undoes all changes, if there are any. Does nothing if the terminal is gone.
    pub fn restore(&self) {
        if self.is_changed() {
            let _ = rustix::io::write(&self.screen, self.undo.as_bytes());
            let _ = self.leave();
        }
    }

    /// Whether this process may read and draw on the terminal: it is not in the background of a shell.
    pub fn is_in_foreground(&self) -> bool {
        let terminal = self.keys.as_ref().map_or(&self.screen, |(keys, _)| keys);
        // An error means that it is not the terminal that controls this process, which knows no background.
        tcgetpgrp(terminal).map_or(true, |group| group == rustix::process::getpgrp())
    }

    /// The descriptor that keys are read from, if they are.
    pub fn keys(&self) -> Option<BorrowedFd<'_>> {
        self.keys.as_ref().map(|(keys, _)| keys.as_fd())
    }

    /// All descriptors, which a process must keep to restore the terminal.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let keys = self.keys.iter().map(|(keys, _)| keys.as_raw_fd());
        keys.chain([self.screen.as_raw_fd(), self.changed.as_raw_fd()])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Check that changes are undone once, and only if there are any.
    #[test]
    fn changes_are_undone_once() {
        let (mut read, write) = io::pipe().unwrap();
        let restorer = Restorer::new(&write, None, "undone").unwrap();
        drop(write);
        restorer.restore();
        restorer.enter().unwrap();
        restorer.enter().unwrap();
        assert!(restorer.is_changed());
        restorer.restore();
        assert!(!restorer.is_changed());
        restorer.restore();
        restorer.enter().unwrap();
        restorer.leave().unwrap();
        restorer.restore();
        drop(restorer);
        let mut written = String::new();
        read.read_to_string(&mut written).unwrap();
        assert_eq!(written, "undone");
    }
}
