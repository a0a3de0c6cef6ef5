//! The message of the name by which a module was started.
//!
//! Stage: profile.

use prost::Message;

use crate::join::ModuleId;

/// An entry of `started` in [`Update`](crate::join::Update), as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Started {
    #[prost(uint32, tag = "1")]
    module: u32,
    #[prost(string, tag = "2")]
    name: String,
}

impl Started {
    pub(super) fn new((module, name): &(ModuleId, String)) -> Self {
        Self {
            module: module.0,
            name: name.clone(),
        }
    }

    pub(super) fn into_plain(self) -> (ModuleId, String) {
        (ModuleId(self.module), self.name)
    }
}
