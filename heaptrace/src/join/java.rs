//! Frames of Java: each stands in place of the generated code, or of the interpreter's frame, that runs it.
//!
//! Stage: join. Knows nothing of how the virtual machine keeps its data.

use super::language_frames::{LanguageFrames, Place};
use super::update::{Function, Language, Location, LocationId};
use crate::events::java::NamedJavaFrames;
use crate::hotspot::Named;

/// What the frames of Java lack.
#[derive(Debug, Default)]
pub(super) struct Java {
    /// Stacks that were not kept.
    not_kept: u64,
}

impl Java {
    /// Adds the frames of stacks. `intern` adds a location.
    pub(super) fn add(
        &mut self,
        event: &NamedJavaFrames,
        frames: &mut LanguageFrames,
        mut intern: impl FnMut(Location) -> LocationId,
    ) {
        if !frames.has_room(event.frames.len()) {
            self.not_kept += 1;
            return;
        }
        let before = event
            .after
            .and_then(|id| frames.in_place(event.process, id));
        let mut places = before.unwrap_or_default().to_vec();
        let mut place = |name: &str, file: &str, line: u32, is_last| {
            let function = frames.function(&Function {
                language: Language::Java,
                name: name.to_owned(),
                file: file.to_owned(),
            });
            let location = Location {
                module: None,
                address: line.into(),
                function: Some(function),
            };
            Place::new(Some(intern(location)), is_last)
        };
        for named in &event.frames {
            match named {
                Named::Own => places.push(Place::new(None, true)),
                Named::Unknown => places.push(place("", "", 0, true)),
                Named::Java(frames) => {
                    for (index, frame) in frames.iter().enumerate() {
                        let is_last = index + 1 == frames.len();
                        places.push(place(frame.name(), frame.file(), frame.line, is_last));
                    }
                }
            }
        }
        frames.add_in_place(event.process, event.id, places.into());
    }

    /// Stacks whose frames of Java were not kept, for want of room.
    pub(super) fn not_kept(&self) -> u64 {
        self.not_kept
    }
}

#[cfg(test)]
mod tests {
    use super::super::language_frames::LanguagePart;
    use super::*;

    /// Check that frames take the place of the code that runs them, that the virtual machine's own code leaves none, and that frames
    /// beyond the limit are counted.
    #[test]
    fn frames_take_the_place_of_their_code() {
        let (mut java, mut kept) = (Java::default(), LanguageFrames::default());
        let event = NamedJavaFrames {
            process: 4,
            id: 9,
            after: None,
            frames: vec![Named::Own, Named::Unknown],
        };
        java.add(&event, &mut kept, |location| {
            assert!(location.function.is_some() && location.module.is_none());
            LocationId(7)
        });
        let part = LanguagePart {
            id: 9,
            frames: [0b1010, 0],
        };
        let mut stack: Vec<_> = (100..105).map(LocationId).collect();
        kept.merge(4, part, &mut stack);
        assert_eq!(stack, [100, 102, 7, 104].map(LocationId));
        let further = NamedJavaFrames {
            id: 10,
            after: Some(9),
            frames: vec![Named::Unknown],
            ..event.clone()
        };
        java.add(&further, &mut kept, |_| LocationId(8));
        let part = LanguagePart {
            id: 10,
            frames: [0b1_1010, 0],
        };
        let mut stack: Vec<_> = (100..105).map(LocationId).collect();
        kept.merge(4, part, &mut stack);
        assert_eq!(stack, [100, 102, 7, 8].map(LocationId));
        kept.forget(4);
        assert_eq!(kept.kept(), 0);
        java.add(&event, &mut LanguageFrames::full(), |_| LocationId(0));
        assert_eq!(java.not_kept(), 1);
    }
}
