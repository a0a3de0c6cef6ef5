//! The names that were found, each text once.
//!
//! Stage: symbolize. Must not know where names come from.

use std::collections::HashMap;

use super::protocol::FoundFrame;
use crate::join::LocationId;
use crate::profile::{Frame, StringId, Symbols, Types};

/// Names of locations, to which more are added.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    symbols: Symbols,
    strings: HashMap<String, StringId>,
}

impl NameTable {
    /// A table of these names.
    pub(super) fn of(symbols: Symbols) -> Self {
        let ids = (0..).map(StringId);
        let strings = symbols.strings.iter().cloned().zip(ids).collect();
        Self { symbols, strings }
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    pub(super) fn into_symbols(self) -> Symbols {
        self.symbols
    }

    /// Adds the types of stacks that have none.
    pub(super) fn add_types(&mut self, types: &Types) {
        self.symbols.types.complete(types);
    }

    /// Stores the frames of a location. An empty list means that its name is not known.
    pub(super) fn set(&mut self, location: LocationId, found: Vec<FoundFrame>) {
        let mut frames: Vec<Frame> = found
            .into_iter()
            .map(|found| Frame {
                function: Some(self.intern(&found.function)),
                file: found.file.map(|file| self.intern(&file)),
                line: found.line,
                inlined: found.inlined,
            })
            .collect();
        if frames.is_empty() {
            frames.push(Frame {
                function: None,
                file: None,
                line: 0,
                inlined: false,
            });
        }
        self.put(location, frames);
    }

    /// Stores the frames that a location has in other symbols.
    pub(super) fn copy(&mut self, location: LocationId, from: &Symbols) {
        let frames = from.frames(location).iter();
        let frames = frames
            .map(|frame| Frame {
                function: frame.function.map(|id| self.intern(from.text(id))),
                file: frame.file.map(|id| self.intern(from.text(id))),
                ..*frame
            })
            .collect();
        self.put(location, frames);
    }

    /// Forgets the frames of locations.
    pub(super) fn forget(&mut self, locations: &[LocationId]) {
        for location in locations {
            if let Some(frames) = self.symbols.frames.get_mut(location.0 as usize) {
                frames.clear();
            }
        }
    }

    fn put(&mut self, location: LocationId, frames: Vec<Frame>) {
        let index = location.0 as usize;
        if self.symbols.frames.len() <= index {
            self.symbols.frames.resize(index + 1, Vec::new());
        }
        if let Some(place) = self.symbols.frames.get_mut(index) {
            *place = frames;
        }
    }

    fn intern(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        // Ids of locations have 32 bits, and each location has few strings.
        let id = StringId(u32::try_from(self.symbols.strings.len()).unwrap_or(u32::MAX));
        self.symbols.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }
}
