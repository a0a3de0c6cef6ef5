//! Files with and without an interpreter.
//!
//! Part of `python`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gimli::BaseAddresses;
use heaptrace_common::wire::{PythonImage, thread_data};
use object::elf::SHT_SYMTAB;
use object::{Object as _, ObjectSection as _};

use super::interpreters::interpreters;
use crate::elf::Elf;
use crate::python::{Frames, find, from_words, is_sound, to_words};

/// Finds the interpreter in a file. Without `sections`, the file seems to have no `.symtab`.
pub(super) fn found(data: &[u8], has_symbols: bool) -> Option<PythonImage> {
    let file = object::File::parse(data).unwrap();
    let section = |name| file.section_by_name(name);
    let address = |name| section(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(address(".eh_frame"))
        .set_text(address(".text"));
    let eh_frame = section(".eh_frame").map_or(&[][..], |section| section.data().unwrap());
    let frames = Frames {
        eh_frame,
        bases: &bases,
    };
    if has_symbols {
        return find(data, Some(frames));
    }
    find(without_symbols(data).as_slice(), Some(frames))
}

/// The file with another type of section in the place of `.symtab`.
fn without_symbols(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    let headers = usize::try_from(u64::from_le_bytes(data[40..48].try_into().unwrap())).unwrap();
    let count = usize::from(u16::from_le_bytes([data[60], data[61]]));
    for header in data[headers..].chunks_mut(64).take(count) {
        let kind = &mut header[4..8];
        if *kind == SHT_SYMTAB.0.to_le_bytes() {
            kind.copy_from_slice(&1_u32.to_le_bytes());
        }
    }
    data
}

/// The files that the interpreters consist of: their programs, and the libraries that these name.
fn files() -> BTreeSet<(u16, PathBuf)> {
    let mut files = BTreeSet::new();
    for interpreter in interpreters() {
        let script = "print(open('/proc/self/maps').read())";
        let maps = interpreter.run(script);
        let code = maps.lines().filter(|line| line.contains(" r-xp "));
        let paths = code.filter_map(|line| Some(&line[line.find('/')?..]));
        files.extend(paths.map(|path| (interpreter.minor, PathBuf::from(path))));
    }
    files
}

/// Check that the interpreter is found in exactly one of the files of a Python process, with its version; and that without
/// symbols the same is found, also the code that was put elsewhere, provided that any of that code returns.
#[test]
fn each_interpreter_is_in_one_file() {
    let mut minors = BTreeSet::new();
    for (minor, path) in files() {
        let data = std::fs::read(&path).unwrap();
        let Some(image) = found(&data, true) else {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.contains("libpython3."), "{path:?}");
            continue;
        };
        println!("{}: {image:x?}", path.display());
        assert_eq!(image.layout.minor, minor);
        assert_eq!(image.layout.thread_data, thread_data::GLIBC);
        assert!(is_sound(&image));
        assert_eq!(from_words(to_words(&image)), Some(image));
        minors.insert(minor);
        let stripped = found(&data, false).unwrap();
        assert_eq!(
            PythonImage {
                loops: [image.loops[0]; 2],
                ..stripped
            },
            PythonImage {
                loops: [image.loops[0]; 2],
                ..image
            }
        );
        let [_, cold] = image.loops;
        if cold[1] - cold[0] > 16 {
            assert_eq!(stripped.loops, image.loops);
        }
    }
    let expected: BTreeSet<u16> = interpreters().iter().map(|it| it.minor).collect();
    assert_eq!(minors, expected);
}

/// Check that cut and changed files give a sound image or none.
#[test]
fn damaged_files_do_no_harm() {
    let (_, path) = files()
        .into_iter()
        .find(|(_, path)| found(&std::fs::read(path).unwrap(), true).is_some())
        .unwrap();
    let data = std::fs::read(path).unwrap();
    for cut in (0..200).map(|part| data.len() / 200 * part) {
        assert!(find(&data[..cut], None).is_none_or(|image| is_sound(&image)));
    }
    let elf = Elf::parse(data.as_slice()).unwrap();
    assert!(elf.bytes(u64::MAX, 8).is_none());
    assert!(elf.bytes(0, u64::MAX).is_none());
    for at in 0..64 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut data = data.clone();
            data[at] = value;
            assert!(find(data.as_slice(), None).is_none_or(|image| is_sound(&image)));
        }
    }
}
