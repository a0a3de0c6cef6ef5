//! The join of frames of Java.

use super::Joiner;
use crate::events::java::NamedJavaFrames;

impl Joiner {
    /// Whether stacks of a process name frames of Java by an id.
    pub fn has_java(&self, process: u64, id: u64) -> bool {
        self.stacks.has_java(process, id)
    }

    pub(super) fn java_frames(&mut self, event: &NamedJavaFrames) {
        if self.ledger.processes().id(event.process).is_some() {
            let Self {
                stacks, addresses, ..
            } = self;
            stacks.add_java(event, |location| addresses.intern(&location));
        }
    }
}
