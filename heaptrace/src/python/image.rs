//! Finds the CPython interpreter in a file.
//!
//! Part of `python`. The file is untrusted: an image that is found is sound, but its addresses may lead anywhere. The kernel
//! program reads there as it reads all memory of a process, so a forged file only gives itself wrong names.

use std::collections::HashMap;
use std::ops::Range;

use gimli::BaseAddresses;
use heaptrace_common::wire::{PythonImage, PythonLayout, thread_data};
use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use object::read::ReadRef;

use super::cold;
use super::layouts::{key_offset, layout};
use crate::elf::{CodeSegment, Elf, Symbol};

/// The state of the interpreter.
const RUNTIME: &str = "_PyRuntime";

/// The function that interprets bytecode.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// The function that returns the state of the calling thread, by the key.
const THREAD_STATE: &str = "PyGILState_GetThisThreadState";

/// The version of the interpreter, from 3.11.
const VERSION: &str = "Py_Version";

/// The oldest version with each of these functions, newest first. They belong to the interface for extension modules, so each
/// build of a version has them, and no older version does.
const FIRST_WITH: [(&str, u16); 4] = [
    ("PyFrame_GetLocals", 11),
    ("PyModule_AddObjectRef", 10),
    ("PyFrame_GetCode", 9),
    ("PyConfig_Read", 8),
];

/// What only a debug build has: its total of references, and the function that reports a negative one.
const DEBUG_ONLY: [&str; 2] = ["_Py_RefTotal", "_Py_NegativeRefcount"];

/// All of these names.
const NAMES: [&str; 10] = [
    RUNTIME,
    LOOP,
    THREAD_STATE,
    VERSION,
    FIRST_WITH[0].0,
    FIRST_WITH[1].0,
    FIRST_WITH[2].0,
    FIRST_WITH[3].0,
    DEBUG_ONLY[0],
    DEBUG_ONLY[1],
];

/// The beginning of those names, after a `_` that some have.
const PREFIX: &str = "Py";

/// The rarely executed code of the function that interprets bytecode: the name that compilers give it, and the one that
/// optimizers of linked code do.
const COLD: [&str; 2] = [
    "_PyEval_EvalFrameDefault.cold",
    "_PyEval_EvalFrameDefault.cold.0",
];

/// The section of `_PyRuntime`, from 3.10.
const RUNTIME_SECTION: &str = ".PyRuntime";

/// Longest code of a function. The longest real one has 56 KB.
const MAX_CODE: u64 = 1 << 20;

/// Numbers in the short form of an image.
pub const IMAGE_WORDS: usize = 7;

type Symbols = HashMap<&'static str, Symbol>;

/// The unwind information of a file, which shows where its functions are.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// The content of its `.eh_frame`.
    pub eh_frame: &'a [u8],
    /// The addresses that pointers in it are relative to.
    pub bases: &'a BaseAddresses,
}

/// Finds the interpreter in an ELF file for x86-64. `None` if the file has none, or one whose layout is not known: of another
/// version, a debug build, or a build without the global lock. A program that uses the interpreter in a library has none.
pub fn find<'data, R: ReadRef<'data>>(data: R, frames: Option<Frames<'_>>) -> Option<PythonImage> {
    let elf = Elf::parse(data)?;
    let symbols = symbols_of(&elf);
    let (runtime, main) = (symbols.get(RUNTIME)?, symbols.get(LOOP)?);
    if DEBUG_ONLY.iter().any(|name| symbols.contains_key(name)) {
        return None;
    }
    let minor = minor(&elf, &symbols)?;
    let layout = layout(minor)?;
    let key = runtime.address.checked_add(key_offset(minor)?.into())?;
    if !is_used_as_key(&elf, *symbols.get(THREAD_STATE)?, runtime.address, key) {
        return None;
    }
    let segment = elf.code_segment(*main)?;
    let main_range = file_range(segment, *main)?;
    let cold = cold_part(&elf, *main, frames);
    // The rarely executed code may lie in another segment. No linker does that, so it is left out then.
    let cold = cold.filter(|cold| elf.code_segment(*cold) == Some(segment));
    let cold = cold.and_then(|cold| file_range(segment, cold));
    let image = PythonImage {
        key_at: segment.relative(key),
        loops: [main_range, cold.unwrap_or_default()],
        layout: PythonLayout {
            thread_data: match elf.names_musl() {
                true => thread_data::MUSL,
                false => thread_data::GLIBC,
            },
            ..layout
        },
    };
    is_sound(&image).then_some(image)
}

/// Whether a file has an interpreter, of whatever version.
pub fn is_in<'data, R: ReadRef<'data>>(data: R) -> bool {
    let symbols = Elf::parse(data).map(|elf| symbols_of(&elf));
    symbols.is_some_and(|it| it.contains_key(RUNTIME) && it.contains_key(LOOP))
}

fn symbols_of<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Symbols {
    let symbols = elf.symbols(SHT_DYNSYM, PREFIX, &NAMES);
    // A program that exports nothing has the names in its other table. Large files have millions of symbols there, so only
    // files with the interpreter's section are searched. No program before 3.10 has that section.
    if !symbols.contains_key(RUNTIME) && elf.has_section(RUNTIME_SECTION) {
        return elf.symbols(SHT_SYMTAB, PREFIX, &NAMES);
    }
    symbols
}

/// The minor version of the interpreter, if it is a release or a candidate for one.
fn minor<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, symbols: &Symbols) -> Option<u16> {
    let Some(version) = symbols.get(VERSION) else {
        // The functions are in all builds, unlike a name of the file or a string with the version: other software has these.
        let mut known = FIRST_WITH.iter();
        let (_, minor) = known.find(|(name, _)| symbols.contains_key(name))?;
        return (*minor < 11).then_some(*minor);
    };
    let version = elf.bytes(version.address, 4)?.first_chunk::<4>()?;
    // Serial number and level; micro, minor and major version.
    let [level, _, minor, major] = *version;
    if major != 3 || minor < 11 || level < 0xc0 {
        return None;
    }
    if minor >= 13 && !has_global_lock(elf, symbols, *version) {
        return None;
    }
    Some(minor.into())
}

/// Whether a build of 3.13 has the global lock: `_Py_DebugOffsets`, at the beginning of its state, tells.
fn has_global_lock<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    symbols: &Symbols,
    version: [u8; 4],
) -> bool {
    let runtime = symbols.get(RUNTIME);
    let offsets = runtime.and_then(|runtime| elf.bytes(runtime.address, 24));
    let words = offsets.map(|offsets| offsets.as_chunks::<8>().0);
    let Some([cookie, own_version, is_free_threaded]) = words else {
        return false;
    };
    cookie == b"xdebugpy"
        && u64::from_le_bytes(*own_version) == u64::from(u32::from_le_bytes(version))
        && *is_free_threaded == [0; 8]
}

/// Whether the code of a function has the address of the key: as a difference to the code, as an offset in the interpreter's
/// state, or as a whole address. The word after the key's first one counts, too: short code reads it directly.
fn is_used_as_key<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    function: Symbol,
    runtime: u64,
    key: u64,
) -> bool {
    let size = function.size.min(MAX_CODE);
    let code = elf.bytes(function.address, size).unwrap_or_default();
    let mut operands = code.windows(4).zip(function.address..);
    operands.any(|(operand, at)| {
        let Some(operand) = operand.first_chunk::<4>() else {
            return false;
        };
        let number = i64::from(i32::from_le_bytes(*operand));
        let whole = number as u64;
        let offset = runtime.wrapping_add_signed(number);
        // A comparison has its other operand behind this one.
        let after = |more: u64| at.wrapping_add(more).wrapping_add_signed(number);
        let leads_to = |word| [whole, offset, after(4), after(5)].contains(&word);
        leads_to(key) || leads_to(key.wrapping_add(4))
    })
}

/// The rarely executed code of the function that interprets bytecode.
fn cold_part<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    main: Symbol,
    frames: Option<Frames<'_>>,
) -> Option<Symbol> {
    let range = |symbol: Symbol| symbol.address..symbol.address.saturating_add(symbol.size);
    let names = [&[LOOP][..], &COLD].concat();
    let symbols = elf.symbols(SHT_SYMTAB, PREFIX, &names);
    if symbols.contains_key(LOOP) {
        let found = COLD.iter().find_map(|name| symbols.get(name));
        return found.copied();
    }
    let frames = frames?;
    let code = |range: &Range<u64>| {
        let size = range.end.checked_sub(range.start)?;
        let is_short = (1..=MAX_CODE).contains(&size);
        is_short.then(|| elf.bytes(range.start, size))?
    };
    let found = cold::find(&range(main), frames.eh_frame, frames.bases, code)?;
    Some(Symbol {
        address: found.start,
        size: found.end.checked_sub(found.start)?,
    })
}

/// The file offsets of a function's first byte and of its end.
fn file_range(segment: CodeSegment, function: Symbol) -> Option<[u32; 2]> {
    let start = segment.relative(function.address);
    let end = start.checked_add(function.size)?;
    Some([start.try_into().ok()?, end.try_into().ok()?])
}

/// Whether an image has the form that the kernel program relies on. An image from a cache or a reader may have any content.
pub fn is_sound(image: &PythonImage) -> bool {
    // All offsets in structures are ours.
    let expected = layout(image.layout.minor).map(|layout| PythonLayout {
        thread_data: image.layout.thread_data,
        ..layout
    });
    let is_function = |[start, end]: [u32; 2]| start < end && u64::from(end - start) <= MAX_CODE;
    let [main, cold] = image.loops;
    expected == Some(image.layout)
        && image.layout.thread_data <= thread_data::MUSL
        && image.key_at != 0
        && is_function(main)
        && (cold == [0, 0] || is_function(cold))
}

/// The short form of an image. It has the version instead of the layout.
pub fn to_words(image: &PythonImage) -> [u32; IMAGE_WORDS] {
    let version = u32::from(image.layout.minor) | u32::from(image.layout.thread_data) << 16;
    let key_at = [image.key_at as u32, (image.key_at >> 32) as u32];
    let [main, cold] = image.loops;
    [
        version, key_at[0], key_at[1], main[0], main[1], cold[0], cold[1],
    ]
}

/// The image with this short form, if it is sound.
pub fn from_words(words: [u32; IMAGE_WORDS]) -> Option<PythonImage> {
    let [version, key_low, key_high, main @ .., cold_start, cold_end] = words;
    let image = PythonImage {
        key_at: u64::from(key_low) | u64::from(key_high) << 32,
        loops: [main, [cold_start, cold_end]],
        layout: PythonLayout {
            thread_data: (version >> 16) as u16,
            ..layout(version as u16)?
        },
    };
    is_sound(&image).then_some(image)
}
