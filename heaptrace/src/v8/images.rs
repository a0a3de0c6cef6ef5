//! The decoder as a whole: from frames to text, for memory that was recorded and memory that is recorded now.
//!
//! Part of `v8`. Only in tests, and with the feature `images`.

use heaptrace_common::wire::V8Frame;

use super::{Found, Memory, function, layout, lines_of, places, shared};
#[cfg(feature = "images")]
use crate::recorded::{Recorded, Recorder};

/// The functions of frames, innermost first, each with its script and line.
pub(super) fn shown<M: Memory>(memory: &M, version: u32, frames: &[V8Frame]) -> Vec<String> {
    let Some(layout) = layout(version) else {
        return Vec::new();
    };
    let mut shown = Vec::new();
    for frame in frames {
        for at in places(memory, &layout, frame) {
            let (object, cookie) = shared(at.shared);
            shown.push(match function(memory, &layout, object, cookie) {
                None => "unknown".to_owned(),
                Some(Found::BuiltIn) => "built-in".to_owned(),
                Some(Found::Named(named)) => {
                    let script = &named.script;
                    let position = at.position.or(named.start);
                    let lines = position.and_then(|_| lines_of(memory, script));
                    let line = lines.map_or(0, |it| it.line(position.unwrap_or(0)));
                    format!("{} {}:{line}", named.name, script.name)
                }
            });
        }
    }
    shown
}

#[cfg(feature = "images")]
impl<M: Memory> Memory for Recorder<'_, M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.memory.read(address, bytes)?;
        self.note(address, bytes);
        Some(())
    }
}

/// Records the memory that frames of a process are named by.
#[cfg(feature = "images")]
pub fn record<M: Memory>(memory: &M, version: u32, frames: &[V8Frame]) {
    let recorder = Recorder::new(memory);
    let found = shown(&recorder, version, frames);
    let frames = frames.iter().flat_map(|it| [it.shared, it.code, it.place]);
    Recorded::write(
        "v8",
        vec![version.into()],
        frames.collect(),
        found,
        recorder,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;
    use crate::recorded::{Pieces, Recorded};

    impl Memory for Pieces {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
            (Self::read(self, address, bytes) == bytes.len()).then_some(())
        }
    }

    /// Stacks of `images/image.js`, by the version of Node, and the lines at which its functions were.
    const STACKS: [(&str, &[u8], u32); 7] = [
        ("16.20.2", include_bytes!("../../images/v8-16.20.2"), 23),
        ("18.20.8", include_bytes!("../../images/v8-18.20.8"), 23),
        ("20.20.0", include_bytes!("../../images/v8-20.20.0"), 18),
        ("20.20.2", include_bytes!("../../images/v8-20.20.2"), 23),
        ("22.12.0", include_bytes!("../../images/v8-22.12.0"), 18),
        (
            "22.12.0",
            include_bytes!("../../images/v8-22.12.0-later"),
            23,
        ),
        ("24.1.0", include_bytes!("../../images/v8-24.1.0"), 18),
    ];

    fn recorded(file: &[u8]) -> (u32, Vec<V8Frame>, Recorded, Pieces) {
        let (recorded, memory) = Recorded::read(file);
        let frames = recorded.frames.as_chunks::<3>().0.iter();
        let frames = frames.map(|[shared, code, place]| V8Frame {
            shared: *shared,
            code: *code,
            place: *place,
        });
        (recorded.given[0] as u32, frames.collect(), recorded, memory)
    }

    /// Check that stacks that were recorded from each version of Node have the functions and lines that the script has.
    #[test]
    fn recorded_stacks_are_read() {
        for (version, file, called_at) in STACKS {
            let (v8, frames, recorded, memory) = recorded(file);
            let shown = shown(&memory, v8, &frames);
            assert_eq!(shown, recorded.found, "{version}");
            assert!(!shown.iter().any(|it| it == "unknown"), "{shown:?}");
            let own = shown.iter().filter_map(|it| {
                let (function, place) = it.split_once(' ')?;
                let (path, line) = place.rsplit_once(':')?;
                path.ends_with("/image.js").then_some((function, line))
            });
            let own: Vec<_> = own.collect();
            let called_at = called_at.to_string();
            let expected = [
                ("inner", "4"),
                ("keep", "9"),
                ("outer", "14"),
                ("(anonymous)", called_at.as_str()),
            ];
            assert_eq!(own, expected, "{version}");
        }
    }

    /// Check that damaged memory does no harm: names are bounded, and no frame is added.
    #[test]
    fn damaged_stacks_do_no_harm() {
        let mut random = numbers(11);
        for (version, file, _) in STACKS {
            let (v8, frames, _, memory) = recorded(file);
            for _ in 0..2 {
                let shown = shown(&memory.damaged(&mut random), v8, &frames);
                assert!(shown.len() <= 65 * frames.len(), "{version}");
                let is_short = |it: &String| it.chars().count() <= 2 * 1026 + 12;
                assert!(shown.iter().all(is_short), "{version}");
            }
        }
    }
}
