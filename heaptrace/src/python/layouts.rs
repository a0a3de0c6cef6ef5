//! Where each version of CPython keeps its data.
//!
//! Part of `python`. The offsets are those of release builds for x86-64. They are the same in all releases of a minor version:
//! extension modules are compiled against these structures. A test walks the frames of each interpreter on the machine with
//! them.

use heaptrace_common::wire::{PythonLayout, entry, thread_data};

/// 3.8 and 3.9.
const WITH_FRAME_OBJECTS: PythonLayout = PythonLayout {
    minor: 9,
    thread_data: thread_data::GLIBC,
    thread_frame: 24,
    holder_frame: PythonLayout::NO_OFFSET,
    frame_back: 24,
    frame_code: 32,
    frame_instruction: 104,
    frame_entry: 0,
    entry: entry::EACH,
    code_instructions: 0,
    code_name: 112,
    code_file: 104,
    code_line: 40,
    code_lines: 120,
    text_ascii: 48,
    text_wide: 72,
};

/// 3.11, the first version in which a Python function that calls another one does not need a call in C.
const WITH_INLINED_CALLS: PythonLayout = PythonLayout {
    minor: 11,
    thread_data: thread_data::GLIBC,
    thread_frame: 56,
    holder_frame: 8,
    frame_back: 48,
    frame_code: 32,
    frame_instruction: 56,
    frame_entry: 68,
    entry: entry::FLAG,
    code_instructions: 184,
    code_name: 128,
    code_file: 112,
    code_line: 72,
    code_lines: 136,
    text_ascii: 48,
    text_wide: 72,
};

/// 3.12, the first version with a frame of its own below the outermost frame of a run of the interpreter.
const WITH_ENTRY_FRAMES: PythonLayout = PythonLayout {
    minor: 12,
    thread_data: thread_data::GLIBC,
    thread_frame: 56,
    holder_frame: 0,
    frame_back: 8,
    frame_code: 0,
    frame_instruction: 56,
    frame_entry: 70,
    entry: entry::OWNER,
    code_instructions: 192,
    code_name: 128,
    code_file: 112,
    code_line: 68,
    code_lines: 136,
    text_ascii: 40,
    text_wide: 56,
};

/// The layout of a minor version of Python 3, for threads of glibc.
pub fn layout(minor: u16) -> Option<PythonLayout> {
    let layout = match minor {
        8 | 9 => WITH_FRAME_OBJECTS,
        10 => PythonLayout {
            frame_instruction: 96,
            ..WITH_FRAME_OBJECTS
        },
        11 => WITH_INLINED_CALLS,
        12 => WITH_ENTRY_FRAMES,
        13 => PythonLayout {
            thread_frame: 72,
            holder_frame: PythonLayout::NO_OFFSET,
            code_instructions: 200,
            ..WITH_ENTRY_FRAMES
        },
        _ => return None,
    };
    Some(PythonLayout { minor, ..layout })
}

/// The offset, in `_PyRuntime`, of the key under which each thread stores its state: `autoTSSkey`, a `Py_tss_t`.
///
/// `_PyRuntime` is no interface, so a release could move the key. The finder compares this with the code that uses the key.
pub(super) fn key_offset(minor: u16) -> Option<u32> {
    match minor {
        8 => Some(1392),
        9 | 10 => Some(584),
        11 => Some(592),
        12 => Some(1544),
        13 => Some(2160),
        _ => None,
    }
}
