//! The join of frames of JavaScript.

use super::Joiner;
use crate::events::v8::V8Frames;
use crate::join::javascript::ReadFrames;

impl Joiner {
    /// Reads the functions of frames of JavaScript from their process, also if its beginning is not joined yet.
    pub fn read_javascript(&mut self, event: &V8Frames) -> ReadFrames {
        self.stacks.read_javascript(event)
    }

    /// Remembers the functions of frames that a stack may have: the process may end before that is known.
    pub fn read_javascript_ahead(&mut self, event: &V8Frames) {
        self.stacks.read_javascript_ahead(event);
    }

    /// Joins frames of JavaScript that were read.
    pub fn javascript_frames(&mut self, read: &ReadFrames) {
        let is_known = |process| self.ledger.processes().id(process).is_some();
        if is_known(read.process()) {
            let Self {
                stacks, addresses, ..
            } = self;
            stacks.add_javascript(read, |location| addresses.intern(&location));
        }
    }
}
