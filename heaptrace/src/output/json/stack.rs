//! A stack in JSON, from the innermost frame to the outermost.
//!
//! Stage: output. Field names and their order are stable.

use serde::{Serialize, Serializer};

use crate::join::StackId;
use crate::output::report_input::ReportInput;
use crate::output::shown::language_name;

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

/// A stack that is built while it is written. All stacks together would use far more memory than the profile.
pub(in crate::output) struct Stack<'a>(
    pub(in crate::output) &'a ReportInput<'a>,
    pub(in crate::output) StackId,
);

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(input, id) = self;
        serializer.collect_seq(input.stack(*id).into_iter().map(|frame| {
            Frame {
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
        }))
    }
}
