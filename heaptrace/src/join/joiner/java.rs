//! The join of frames of Java.

use super::Joiner;
use crate::events::java::NamedJavaFrames;

impl Joiner {
    pub(super) fn java_frames(&mut self, event: &NamedJavaFrames) {
        if self.ledger.processes().id(event.process).is_some() {
            let Self {
                stacks, addresses, ..
            } = self;
            stacks.add_java(event, |location| addresses.intern(&location));
        }
    }
}
