//! Recognizes an allocator that is linked into a program without symbols, by texts among the program's constants.
//!
//! Stage: probes. The file may contain anything, so this runs in a reader. Must not know functions.

use std::hint::black_box;

use memchr::memmem;
use object::{Object as _, ObjectSection as _, ReadRef};

/// Most bytes of constants that are searched.
const MAX_CONSTANTS: u64 = 64 << 20;

/// Texts that an allocator has among its constants, each byte inverted. They must be long: a compiler puts constants next
/// to each other, where short ones can form another text.
///
/// The texts themselves must not be in this program, or it would look like a program with these allocators.
const MARKERS: [(&str, &[u8]); 4] = [
    ("jemalloc", &inverted(*b"<jemalloc>")),
    ("mimalloc", &inverted(*b"mimalloc: warning: ")),
    ("tcmalloc", &inverted(*b"tcmalloc: large alloc")),
    ("glibc", &inverted(*b"malloc(): corrupted top size")),
];

/// Inverts a text while this program is compiled.
const fn inverted<const LENGTH: usize>(mut text: [u8; LENGTH]) -> [u8; LENGTH] {
    let mut index = 0;
    while index < LENGTH {
        text[index] = !text[index];
        index += 1;
    }
    text
}

/// The allocator that is linked into a program, if its constants show one.
pub(super) fn linked_allocator<'a, R: ReadRef<'a>>(
    image: &object::File<'a, R>,
) -> Option<&'static str> {
    let section = image.section_by_name(".rodata")?;
    if section.size() > MAX_CONSTANTS {
        return None;
    }
    allocator_of(section.data().ok()?)
}

fn allocator_of(constants: &[u8]) -> Option<&'static str> {
    let has = |marker: &[u8]| {
        // The compiler must not know the bytes, or it could compute the text in advance.
        let text: Vec<u8> = black_box(marker).iter().map(|byte| !byte).collect();
        memmem::find(constants, &text).is_some()
    };
    MARKERS
        .into_iter()
        .find_map(|(kind, marker)| has(marker).then_some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no allocator seems to be linked into this program, although it searches for such texts.
    #[test]
    fn this_program_has_no_markers() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = object::File::parse(&*program).unwrap();
        assert!(image.section_by_name(".rodata").is_some());
        assert_eq!(linked_allocator(&image), None);
    }

    /// Check that each allocator is recognized by its text between other constants.
    #[test]
    fn allocators_are_recognized_by_their_texts() {
        // With a `~` inside, because the first test inspects this same program.
        for (kind, split) in [
            ("jemalloc", "<jemal~loc>"),
            ("mimalloc", "mimalloc: warn~ing: "),
            ("tcmalloc", "tcmalloc: large~ alloc"),
            ("glibc", "malloc(): corrupted~ top size"),
        ] {
            let constants = format!("\0other\0{}\0", split.replace('~', ""));
            assert_eq!(allocator_of(constants.as_bytes()), Some(kind));
            assert_eq!(allocator_of(split.as_bytes()), None);
        }
        assert_eq!(allocator_of(b""), None);
    }
}
