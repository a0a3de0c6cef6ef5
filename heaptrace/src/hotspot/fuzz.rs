//! Properties that must hold for any file and for any memory of a process.
//!
//! Part of `hotspot`.

use heaptrace_common::wire::JavaFrame;

use super::image::{Image, find};
use super::layout::Layout;
use super::machine::{Machine, NotDescribed, describe};
use super::memory::Memory;
use super::names::{Named, Names};
use crate::reader::{decode, encode};

/// Asserts that the description in a file, if it has one, survives a message.
pub(crate) fn file(data: &[u8]) -> u64 {
    let Some(image) = find(data) else {
        return u64::from(data.starts_with(b"\x7fELF"));
    };
    let sent = encode(&Some(image));
    assert_eq!(decode::<Option<Image>>(&sent), Some(Some(image)));
    2 + image.structs.wrapping_add(image.types) % 64
}

/// Decodes an answer of the reader; 0 if it is refused.
pub(crate) fn answer(answer: &[u8]) -> u64 {
    match decode::<Option<Image>>(answer) {
        Some(Some(_)) => 2,
        Some(None) => 1,
        None => 0,
    }
}

/// Memory with an input's bytes. Every address stands for one of them; reading ends where the input does, as at the end of a mapping,
/// so that lists without an end take no longer than the input is long.
struct Wrapped<'a>(&'a [u8]);

impl Memory for Wrapped<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let start = address as usize % self.0.len().max(1);
        let from = self.0.get(start..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        for (to, byte) in buffer.iter_mut().zip(from) {
            *to = *byte;
        }
        count
    }
}

/// Asserts that names are bounded, and that a second look finds the same. The input: the frame, and memory.
pub(crate) fn memory(data: &[u8]) -> u64 {
    let Some((frame, rest)) = data.split_first_chunk::<16>() else {
        return 0;
    };
    let ([code, place], _) = frame.as_chunks::<8>() else {
        return 0;
    };
    let memory = Wrapped(rest);
    let frame = JavaFrame {
        code: u64::from_le_bytes(*code),
        place: u64::from_le_bytes(*place),
    };
    let anywhere = Image {
        structs: 0,
        types: 8,
    };
    let described = describe(&memory, anywhere, 0);
    let reached = match described {
        Err(NotDescribed::Unknown) => 0,
        Err(NotDescribed::Yet) => 1,
        Ok(_) => 2,
    };
    let machine = described.unwrap_or(Machine {
        jvm: Default::default(),
        layout: Layout::JAVA_17,
    });
    let mut names = Names::default();
    let named = names.named(&memory, &machine, frame);
    assert_eq!(names.named(&memory, &machine, frame), named);
    let seen = match named {
        Named::Unknown => 1,
        Named::Own => 2,
        Named::Java(frames) => {
            assert!(!frames.is_empty() && frames.len() <= 64);
            // A byte that is no UTF-8 becomes a character of three bytes.
            let is_short = |text: &str| text.len() <= 3 * 2050;
            assert!(
                frames
                    .iter()
                    .all(|it| is_short(it.name()) && is_short(it.file()))
            );
            let lines = frames.iter().filter(|it| it.line != 0).count();
            let files = frames.iter().filter(|it| !it.file().is_empty()).count();
            4 + frames.len() as u64 + 128 * lines as u64 + (16384 * files.min(3)) as u64
        }
    };
    seen | reached << 32
}
