//! The frames of languages: they take their places between frames of machine code, in the stacks that name them.
//!
//! Stage: join. Knows no language.

use std::mem;

use super::interner::Interner;
use super::keyed_hash::HashMap;
use super::update::{Function, FunctionId, Language, LocationId};

/// Most frames that are kept, of four bytes each. Stacks beyond have none.
const MAX_PLACES: usize = 16 << 20;

/// The language frames of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanguagePart {
    /// The id of the frames in their process.
    pub(super) id: u64,
    /// One bit for each frame of machine code: whether it ran language frames.
    pub(super) frames: [u64; 2],
}

/// The language frames of all processes.
#[derive(Debug)]
pub(super) struct LanguageFrames {
    functions: Interner<Function>,
    /// By process, and by their id.
    stacks: HashMap<u64, HashMap<u64, Frames>>,
    /// Frames that are kept.
    places: usize,
}

/// The frames that stacks name by an id.
#[derive(Debug)]
struct Frames {
    places: Box<[Place]>,
    /// Whether they stand in place of the frames of machine code that run them, and not before these.
    are_in_place: bool,
}

/// A frame as a part of stacks, packed: there can be millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl Place {
    /// The location is `None` for a frame that is not shown. The last frame of a run is the outermost one that the same frame of machine
    /// code runs.
    pub(super) fn new(location: Option<LocationId>, is_last_of_run: bool) -> Self {
        let location = location.map_or(0, |id| id.0 + 1);
        Self(location << 1 | u32::from(is_last_of_run))
    }

    fn location(self) -> Option<LocationId> {
        (self.0 >> 1).checked_sub(1).map(LocationId)
    }

    fn is_last_of_run(self) -> bool {
        self.0 & 1 != 0
    }
}

impl Default for LanguageFrames {
    fn default() -> Self {
        Self {
            functions: Interner::new(),
            stacks: HashMap::default(),
            places: 0,
        }
    }
}

impl LanguageFrames {
    /// The id of a function.
    pub(super) fn function(&mut self, function: &Function) -> FunctionId {
        FunctionId(self.functions.intern(function))
    }

    /// A function of which only the language is known.
    pub(super) fn unknown(&mut self, language: Language) -> FunctionId {
        self.function(&Function {
            language,
            name: String::new(),
            file: String::new(),
        })
    }

    /// Whether there is room for so many more frames.
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.places.saturating_add(count) <= MAX_PLACES
    }

    /// Adds the frames that stacks of a process name by an id.
    pub(super) fn add(&mut self, process: u64, id: u64, places: Box<[Place]>) {
        let frames = Frames {
            places,
            are_in_place: false,
        };
        self.add_frames(process, id, frames);
    }

    /// The same for frames that stand in place of the frames of machine code that run them.
    pub(super) fn add_in_place(&mut self, process: u64, id: u64, places: Box<[Place]>) {
        let frames = Frames {
            places,
            are_in_place: true,
        };
        self.add_frames(process, id, frames);
    }

    /// The frames that stacks of a process name by an id, if they stand in place of the frames of machine code that run them.
    pub(super) fn in_place(&self, process: u64, id: u64) -> Option<&[Place]> {
        let frames = self.stacks.get(&process)?.get(&id)?;
        frames.are_in_place.then_some(&*frames.places)
    }

    fn add_frames(&mut self, process: u64, id: u64, frames: Frames) {
        self.places += frames.places.len();
        let stacks = self.stacks.entry(process).or_default();
        let before = stacks.insert(id, frames);
        self.places -= before.map_or(0, |before| before.places.len());
    }

    /// Puts language frames into a stack of machine code: each run of them before the frame that ran them, or in its place. Frames that
    /// have no such place, because the walk ended before, come last.
    pub(super) fn merge(&self, process: u64, part: LanguagePart, locations: &mut Vec<LocationId>) {
        let stacks = self.stacks.get(&process);
        let Some(frames) = stacks.and_then(|stacks| stacks.get(&part.id)) else {
            return;
        };
        let native = mem::take(locations);
        locations.reserve(native.len() + frames.places.len());
        let mut places = frames.places.iter();
        for (index, location) in native.into_iter().enumerate() {
            let bits = part.frames.get(index / 64).copied().unwrap_or(0);
            if bits >> (index % 64) & 1 != 0 {
                for place in places.by_ref() {
                    locations.extend(place.location());
                    if place.is_last_of_run() {
                        break;
                    }
                }
                if frames.are_in_place {
                    continue;
                }
            }
            locations.push(location);
        }
        locations.extend(places.filter_map(|place| place.location()));
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        let gone = self.stacks.remove(&process).unwrap_or_default();
        let places = gone.values().map(|frames| frames.places.len());
        self.places -= places.sum::<usize>();
    }

    /// The number of frames that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.places
    }

    /// The functions that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Function> {
        self.functions.take_new()
    }
}

#[cfg(test)]
impl LanguageFrames {
    /// Without room for any frame.
    pub(super) fn full() -> Self {
        Self {
            places: MAX_PLACES,
            ..Self::default()
        }
    }
}
