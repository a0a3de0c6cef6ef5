//! Names of code addresses, as the data file stores them and the outputs read them.
//!
//! Stage: profile. This is only the table: the next stage finds the names.

use std::collections::HashMap;

use super::types::Types;
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
    /// The types of what stacks allocate.
    pub types: Types,
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

/// How much is known about a location.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Nothing,
    Function,
    Line,
}

/// What names for locations were worth, compared with those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Improvement {
    /// Locations that had no function and have one now.
    pub functions: usize,
    /// Locations that had no source line and have one now.
    pub lines: usize,
    /// Locations that had a source line, and have more inlined functions now.
    pub inlined: usize,
    /// Stacks whose blocks had no type and have one now.
    pub types: usize,
}

impl Symbols {
    /// Takes names over where more is known than before: a function where there was none, a line where there was only a function, and more
    /// inlined functions where there was a line. Types are taken over where there were none.
    pub fn improve(&mut self, other: &Self) -> Improvement {
        let mut strings: HashMap<String, StringId> = self
            .strings
            .iter()
            .cloned()
            .zip((0..).map(StringId))
            .collect();
        let mut improvement = Improvement::default();
        for (index, found) in other.frames.iter().enumerate() {
            let before = self
                .frames
                .get(index)
                .map_or(Known::Nothing, |it| known(it));
            let now = known(found);
            // The functions inlined there can be in a file that was not at hand.
            let is_deeper =
                before == Known::Line && found.len() > self.frames.get(index).map_or(0, Vec::len);
            if now < before || now == before && !is_deeper {
                continue;
            }
            improvement.functions += usize::from(before == Known::Nothing);
            improvement.lines += usize::from(before < now && now == Known::Line);
            improvement.inlined += usize::from(now == before);
            let mut own = |id: StringId| {
                let text = other.text(id);
                *strings.entry(text.to_owned()).or_insert_with(|| {
                    self.strings.push(text.to_owned());
                    StringId(self.strings.len() as u32 - 1)
                })
            };
            let frames = found.iter().map(|frame| Frame {
                function: frame.function.map(&mut own),
                file: frame.file.map(&mut own),
                ..*frame
            });
            let frames = frames.collect();
            if self.frames.len() <= index {
                self.frames.resize(index + 1, Vec::new());
            }
            if let Some(slot) = self.frames.get_mut(index) {
                *slot = frames;
            }
        }
        let before = self.types.of_stacks.len();
        self.types.complete(&other.types);
        improvement.types = self.types.of_stacks.len() - before;
        improvement
    }
}

fn known(frames: &[Frame]) -> Known {
    let has_function = frames.iter().any(|it| it.function.is_some());
    let has_line = frames.iter().any(|it| it.file.is_some() && it.line != 0);
    match (has_function, has_line) {
        (false, _) => Known::Nothing,
        (true, false) => Known::Function,
        (true, true) => Known::Line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of one location each; an empty function is none.
    fn symbols(all: &[(&str, u32)]) -> Symbols {
        let mut symbols = Symbols {
            strings: vec!["a.c".to_owned()],
            ..Symbols::default()
        };
        for (function, line) in all {
            let id = StringId(symbols.strings.len() as u32);
            symbols.strings.push((*function).to_owned());
            symbols.frames.push(vec![Frame {
                function: Some(id).filter(|_| !function.is_empty()),
                file: Some(StringId(0)).filter(|_| *line != 0),
                line: *line,
                inlined: false,
            }]);
        }
        symbols
    }

    /// Check that names are taken over only where more is known, and never replace what is as good.
    #[test]
    fn only_better_names_are_taken_over() {
        let mut names = symbols(&[("", 0), ("f", 0), ("g", 7), ("h", 0)]);
        let found = symbols(&[("new", 0), ("f", 3), ("other", 9), ("", 0), ("late", 5)]);
        let improvement = names.improve(&found);
        assert_eq!((improvement.functions, improvement.lines), (2, 2));
        let shown = |index: u32| {
            let frame = names.frames(LocationId(index))[0];
            let file = frame.file.map_or("", |id| names.text(id));
            (names.text(frame.function.unwrap()), file, frame.line)
        };
        let all: Vec<_> = (0..5).map(shown).collect();
        let right = [
            ("new", "", 0),
            ("f", "a.c", 3),
            ("g", "a.c", 7),
            ("h", "", 0),
            ("late", "a.c", 5),
        ];
        assert_eq!(all, right);
        assert_eq!(names.improve(&found), Improvement::default());
    }

    /// Check that a location with a line gets the functions that are inlined there, once, and never loses them.
    #[test]
    fn inlined_functions_are_taken_over() {
        let mut names = symbols(&[("outer", 3), ("g", 0)]);
        let before = names.clone();
        let mut found = symbols(&[("inner", 5), ("g", 0)]);
        let outer = found.frames[0][0];
        found.frames[0].push(outer);
        found.frames[1].push(outer);
        found.frames[1][1].line = 0;
        let improvement = names.improve(&found);
        assert_eq!((improvement.lines, improvement.inlined), (0, 1));
        let frames = [0, 1].map(|index| names.frames(LocationId(index)).len());
        assert_eq!(frames, [2, 1]);
        assert_eq!(names.improve(&found), Improvement::default());
        assert_eq!(names.improve(&before), Improvement::default());
    }
}
