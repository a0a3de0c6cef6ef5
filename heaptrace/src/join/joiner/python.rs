//! The join of Python frames and code objects.

use super::Joiner;
use crate::events::python::{PythonCode, PythonFrames};

impl Joiner {
    pub(super) fn python_code(&mut self, event: PythonCode) {
        if self.ledger.processes().id(event.process).is_some() {
            self.stacks.add_python_code(event);
        }
    }

    pub(super) fn python_frames(&mut self, event: &PythonFrames) {
        if self.ledger.processes().id(event.process).is_some() {
            let Self {
                stacks, addresses, ..
            } = self;
            stacks.add_python_frames(event, |location| addresses.intern(&location));
        }
    }
}
