//! A stack in JSON, from the innermost frame to the outermost.
//!
//! Stage: output. Field names and their order are stable.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::join::{LocationId, StackId};
use crate::output::frame::StackFrame;
use crate::output::json_escaping::to_text;
use crate::output::report_input::ReportInput;
use crate::output::shown::language_name;

/// Most locations whose frames are kept as text.
const MAX_KNOWN: usize = 1 << 15;

#[derive(Serialize)]
struct Frame<'a> {
    function: &'a str,
    module: &'a str,
    file: &'a str,
    line: u32,
    inlined: bool,
    language: &'static str,
    /// Offset in the module's file, or the bare address; 0 for a function that an interpreter runs. It is hexadecimal text, because many JSON readers
    /// can't represent 64-bit numbers.
    address: String,
    /// The name by which the module was started as a program; absent if it is the file's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    module_name: Option<&'a str>,
}

impl<'a> From<StackFrame<'a>> for Frame<'a> {
    fn from(frame: StackFrame<'a>) -> Self {
        Self {
            function: frame.function.unwrap_or_default(),
            module: frame.module.map_or("", |module| module.path.as_str()),
            file: frame.file.unwrap_or_default(),
            line: frame.line,
            inlined: frame.inlined,
            language: language_name(frame.language),
            address: format!("{:#x}", frame.address),
            module_name: frame
                .module
                .map(|module| module.started_as.as_str())
                .filter(|name| !name.is_empty()),
        }
    }
}

/// A stack that is built while it is written. All stacks together would use far more memory than the profile.
pub(in crate::output) struct Stack<'a>(
    pub(in crate::output) &'a ReportInput<'a>,
    pub(in crate::output) StackId,
);

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(input, id) = self;
        serializer.collect_seq(input.stack(*id).into_iter().map(Frame::from))
    }
}

/// The frames of locations as text. Thousands of stacks share most of theirs.
#[derive(Default)]
pub(super) struct KnownFrames(RefCell<HashMap<LocationId, Rc<[Box<RawValue>]>>>);

impl KnownFrames {
    fn of(
        &self,
        input: &ReportInput<'_>,
        location: LocationId,
    ) -> serde_json::Result<Rc<[Box<RawValue>]>> {
        if let Some(known) = self.0.borrow().get(&location) {
            return Ok(Rc::clone(known));
        }
        let frames = input.frames(location).into_iter();
        let texts = frames.map(|frame| RawValue::from_string(to_text(&Frame::from(frame))?));
        let texts: Rc<[_]> = texts.collect::<Result<_, _>>()?;
        let mut known = self.0.borrow_mut();
        if known.len() < MAX_KNOWN {
            known.insert(location, Rc::clone(&texts));
        }
        Ok(texts)
    }
}

/// A stack of many that are written.
pub(super) struct OneOfMany<'a> {
    pub(super) input: &'a ReportInput<'a>,
    pub(super) stack: StackId,
    pub(super) known: &'a KnownFrames,
}

impl Serialize for OneOfMany<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut frames = serializer.serialize_seq(None)?;
        for location in self.input.locations(self.stack).iter() {
            let texts = self.known.of(self.input, *location);
            for text in texts.map_err(S::Error::custom)?.iter() {
                frames.serialize_element(text)?;
            }
        }
        frames.end()
    }
}
