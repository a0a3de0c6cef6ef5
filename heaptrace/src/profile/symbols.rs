//! Names of code addresses, as the data file stores them and the outputs read them.
//!
//! Stage: profile. This is only the table: the next stage finds the names.

use crate::join::LocationId;

/// Index of a string in [`Symbols::strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

/// One function at one code address. An address has several if functions were inlined there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function name, demangled; `None` if the address has no known name.
    pub function: Option<StringId>,
    /// Source file, `None` if unknown.
    pub file: Option<StringId>,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Whether this function was inlined into the next one.
    pub inlined: bool,
}

/// Names for the locations of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Interned strings.
    pub strings: Vec<String>,
    /// The functions of each location, innermost (most inlined) first. A location that was not looked up
    /// is beyond the end or has an empty list.
    pub frames: Vec<Vec<Frame>>,
}

impl Symbols {
    /// The functions at a location, innermost first; empty if it was not looked up.
    pub fn frames(&self, location: LocationId) -> &[Frame] {
        self.frames
            .get(location.0 as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// The text of a string id; empty if there is none.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", String::as_str)
    }
}
