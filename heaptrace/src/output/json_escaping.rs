//! Writes JSON that is safe to print on a terminal.
//!
//! Stage: output. Knows nothing of the reports that are written.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter};

use crate::text;

/// Writes a value on one line, and ends the line.
pub(super) fn write_line(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_value(value, out)?;
    out.write_all(b"\n")
}

/// Writes a value.
pub(super) fn write_value(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, Escaping))?)
}

/// A value as text.
pub(super) fn to_text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Escaping))?;
    // What is not ASCII is escaped, or was text before.
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// Escapes also characters that JSON allows but a terminal acts on. JSON readers get the same text, and it is
/// harmless to print.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Most texts.
        if fragment.bytes().all(|it| matches!(it, b' '..=b'~')) {
            return CompactFormatter.write_string_fragment(writer, fragment);
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(text::is_unsafe) {
            let (safe, tail) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, safe)?;
            let Some(c) = tail.chars().next() else { break };
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &tail[c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}
