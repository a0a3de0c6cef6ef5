//! The decoder as a whole: from frames to text, for memory that was recorded and memory that is recorded now.
//!
//! Part of `hotspot`. Only in tests, and with the feature `images`.

use heaptrace_common::wire::JavaFrame;

use super::{Image, Memory, Named, Names, describe};
#[cfg(feature = "images")]
use crate::recorded::{Recorded, Recorder};

/// The methods of frames, innermost first, each with its file and line.
pub(super) fn shown<M: Memory>(
    memory: &M,
    image: Image,
    base: u64,
    frames: &[JavaFrame],
) -> Vec<String> {
    let Ok(machine) = describe(memory, image, base) else {
        return Vec::new();
    };
    let mut names = Names::default();
    let mut shown = Vec::new();
    for frame in frames {
        match names.named(memory, &machine, *frame) {
            Named::Own => shown.push("own".to_owned()),
            Named::Unknown => shown.push("unknown".to_owned()),
            Named::Java(frames) => shown.extend(
                frames
                    .iter()
                    .map(|it| format!("{} {}:{}", it.name(), it.file(), it.line)),
            ),
        }
    }
    shown
}

#[cfg(feature = "images")]
impl<M: Memory> Memory for Recorder<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let read = self.memory.read(address, buffer);
        self.note(address, buffer.get(..read).unwrap_or_default());
        read
    }
}

/// Records the memory that frames of a process are named by.
#[cfg(feature = "images")]
pub fn record<M: Memory>(memory: &M, (image, base): (Image, u64), frames: &[JavaFrame]) {
    let recorder = Recorder::new(memory);
    let found = shown(&recorder, image, base, frames);
    let given = vec![image.structs, image.types, base];
    let frames = frames.iter().flat_map(|it| [it.code, it.place]);
    Recorded::write("hotspot", given, frames.collect(), found, recorder);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;
    use crate::recorded::{Pieces, Recorded};

    impl Memory for Pieces {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            Self::read(self, address, buffer)
        }
    }

    /// Stacks of `images/Image.java`, by the version of Java.
    const STACKS: [(&str, &[u8]); 4] = [
        ("8.252", include_bytes!("../../images/hotspot-8.252")),
        ("17.0.15", include_bytes!("../../images/hotspot-17.0.15")),
        ("21.0.8", include_bytes!("../../images/hotspot-21.0.8")),
        ("25.0.3", include_bytes!("../../images/hotspot-25.0.3")),
    ];

    /// What the methods of a recorded stack are in some memory.
    fn shown_in(memory: &Pieces, recorded: &Recorded) -> Vec<String> {
        let [structs, types, base] = recorded.given[..] else {
            panic!("{:?}", recorded.given);
        };
        let frames = recorded.frames.as_chunks::<2>().0.iter();
        let frames = frames.map(|[code, place]| JavaFrame {
            code: *code,
            place: *place,
        });
        let frames: Vec<_> = frames.collect();
        shown(memory, Image { structs, types }, base, &frames)
    }

    /// Check that stacks that were recorded from each version of Java have the methods and lines that the program has.
    #[test]
    fn recorded_stacks_are_read() {
        for (version, file) in STACKS {
            let (recorded, memory) = Recorded::read(file);
            let shown = shown_in(&memory, &recorded);
            assert_eq!(shown, recorded.found, "{version}");
            let own = shown.iter().filter(|it| it.starts_with("Image"));
            let own: Vec<_> = own.map(String::as_str).collect();
            let expected = [
                "Image.inner Image.java:9",
                "Image.keep Image.java:13",
                "Image.lambda$outer$0 Image.java:17",
                "Image$$Lambda.run :0",
                "Image.outer Image.java:18",
                "Image.main Image.java:31",
            ];
            assert_eq!(own, expected, "{version}");
        }
    }

    /// Check that damaged memory does no harm: names are bounded, and no frame is added.
    #[test]
    fn damaged_stacks_do_no_harm() {
        let mut random = numbers(12);
        for (version, file) in STACKS {
            let (recorded, memory) = Recorded::read(file);
            for _ in 0..5 {
                let shown = shown_in(&memory.damaged(&mut random), &recorded);
                assert!(shown.len() <= 64 * recorded.frames.len(), "{version}");
                assert!(
                    shown.iter().all(|it| it.len() <= 6 * 2050 + 16),
                    "{version}"
                );
            }
        }
    }
}
