//! The messages of a symbol table.
//!
//! Stage: profile.

use prost::Message;

use super::parts::{Part, Parts};
use super::types::{BlockType, LiveClass, StacksOfType};
use crate::profile::symbols::{Frame, StringId, Symbols};

/// [`Symbols`], or a part of them, as a message.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct SymbolsMessage {
    /// Whether the next chunk continues these symbols.
    #[prost(bool, tag = "1")]
    pub(in crate::profile) more: bool,
    #[prost(string, repeated, tag = "2")]
    strings: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    locations: Vec<Frames>,
    #[prost(message, repeated, tag = "4")]
    types: Vec<BlockType>,
    #[prost(message, repeated, tag = "5")]
    stacks: Vec<StacksOfType>,
    #[prost(message, repeated, tag = "6")]
    classes: Vec<LiveClass>,
}

/// The frames of one location.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Frames {
    #[prost(message, repeated, tag = "1")]
    frames: Vec<FrameMessage>,
}

impl Frames {
    pub(super) fn into_plain(self) -> Vec<Frame> {
        self.frames.into_iter().map(Frame::from).collect()
    }
}

#[derive(Clone, PartialEq, Message)]
struct FrameMessage {
    #[prost(uint32, optional, tag = "1")]
    function: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    file: Option<u32>,
    #[prost(uint32, tag = "3")]
    line: u32,
    #[prost(bool, tag = "4")]
    inlined: bool,
}

impl SymbolsMessage {
    /// Symbols in parts of at most about `max_size` bytes.
    pub(in crate::profile) fn parts(symbols: &Symbols, max_size: usize) -> Vec<Self> {
        let mut parts = Parts::<Self>::new(max_size);
        for string in &symbols.strings {
            parts.add_text(string, |part| &mut part.strings);
        }
        for frames in &symbols.frames {
            let frames = Frames {
                frames: frames.iter().map(FrameMessage::from).collect(),
            };
            parts.add(frames, |part| &mut part.locations);
        }
        for it in &symbols.types.types {
            parts.add(BlockType::from(it), |part| &mut part.types);
        }
        for stacks in StacksOfType::all(&symbols.types) {
            parts.add(stacks, |part| &mut part.stacks);
        }
        for class in &symbols.types.classes {
            parts.add(LiveClass::from(class), |part| &mut part.classes);
        }
        parts.all()
    }
}

impl Part for SymbolsMessage {
    fn set_more(&mut self) {
        self.more = true;
    }
}

impl From<&Frame> for FrameMessage {
    fn from(frame: &Frame) -> Self {
        Self {
            function: frame.function.map(|id| id.0),
            file: frame.file.map(|id| id.0),
            line: frame.line,
            inlined: frame.inlined,
        }
    }
}

impl From<FrameMessage> for Frame {
    fn from(frame: FrameMessage) -> Self {
        Self {
            function: frame.function.map(StringId),
            file: frame.file.map(StringId),
            line: frame.line,
            inlined: frame.inlined,
        }
    }
}
