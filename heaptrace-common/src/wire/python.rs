//! CPython: where the interpreter keeps its data, and what the kernel program sends about frames and code.

use crate::limits::{
    MAX_PYTHON_FRAMES, PYTHON_FILE_BYTES, PYTHON_LINES_BYTES, PYTHON_NAME_BYTES,
    PYTHON_SHORT_LINES_BYTES,
};

/// A file that holds a CPython interpreter. Addresses are relative to the address at which the beginning of the file would be
/// mapped by the mapping of its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonImage {
    /// Relative address of the interpreter's key for data of threads: a `u32` that is not 0 if the key exists, and then the
    /// key, a `u32`.
    pub key_at: u64,
    /// File offsets of the function that interprets bytecode: its code, and the code that its compiler has put elsewhere. Both
    /// are 0 in an unused range.
    pub loops: [[u32; 2]; 2],
    /// Its structures.
    pub layout: PythonLayout,
}

impl PythonImage {
    /// Whether the function that interprets bytecode has the code at an offset in the file.
    #[inline(always)]
    pub const fn is_loop(&self, at: u64) -> bool {
        is_in(self.loops[0], at) || is_in(self.loops[1], at)
    }
}

#[inline(always)]
const fn is_in(range: [u32; 2], at: u64) -> bool {
    at >= range[0] as u64 && at < range[1] as u64
}

/// Offsets in the structures of a version of CPython, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonLayout {
    /// The minor version: 8 to 13.
    pub minor: u16,
    /// How threads store data under a key: a constant of [`thread_data`].
    pub thread_data: u16,
    /// Of a thread: the innermost frame, or the pointer to what holds it.
    pub thread_frame: u16,
    /// Of what that pointer leads to: the innermost frame; [`NO_OFFSET`](Self::NO_OFFSET) if the thread has it itself.
    pub holder_frame: u16,
    /// Of a frame: the frame that called it.
    pub frame_back: u16,
    /// Of a frame: its code object.
    pub frame_code: u16,
    /// Of a frame: the instruction, or its index.
    pub frame_instruction: u16,
    /// Of a frame: the byte that tells where a run of the interpreter's function began. See [`entry`].
    pub frame_entry: u16,
    /// What that byte means: a constant of [`entry`].
    pub entry: u16,
    /// Of a code object: its instructions; 0 if a frame has the index of an instruction.
    pub code_instructions: u16,
    /// Of a code object: its qualified name, or its name where it has no qualified one.
    pub code_name: u16,
    /// Of a code object: its file.
    pub code_file: u16,
    /// Of a code object: its first line, an `i32`.
    pub code_line: u16,
    /// Of a code object: its table of lines.
    pub code_lines: u16,
    /// Of a string: its characters, if all of them are ASCII.
    pub text_ascii: u16,
    /// Of a string: its characters otherwise.
    pub text_wide: u16,
}

impl PythonLayout {
    /// A pointer that does not exist.
    pub const NO_OFFSET: u16 = u16::MAX;
}

/// How threads store data under a key.
pub mod thread_data {
    /// As glibc does: in the thread's own memory, for small keys.
    pub const GLIBC: u16 = 0;
    /// As musl does: in an array that the thread's own memory points to.
    pub const MUSL: u16 = 1;
}

/// Which frames share a run of the interpreter's function.
pub mod entry {
    /// Each frame has a run of its own.
    pub const EACH: u16 = 0;
    /// The byte is not 0 in the outermost frame of a run.
    pub const FLAG: u16 = 1;
    /// The byte is at least 3 in a frame that stands below the outermost frame of a run, and that is no frame of the program.
    pub const OWNER: u16 = 2;
}

/// A frame of Python code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonFrame {
    /// Address of its code object, with [`Self::LAST_OF_RUN`]. The address is 0 if the run has no frame yet.
    pub code: u64,
    /// The cookie of its code object in the upper half: another code object at the same address has another one. In the lower
    /// half, as an `i32`, the position of its instruction, in the version's own unit; negative if it has not begun.
    pub place: u64,
}

impl PythonFrame {
    /// The bit of `code` that tells that the frame is the outermost one of a run of the interpreter's function.
    pub const LAST_OF_RUN: u64 = 1 << 63;
}

/// The Python frames of a thread, sent once for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonStack {
    /// [`kind::PYTHON_STACK`](super::kind::PYTHON_STACK).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Number of frames.
    pub depth: u32,
    /// Serial number of the process record.
    pub process: u64,
    /// Its hash, which stacks refer to; never 0.
    pub id: u64,
    /// Innermost first; `depth` of them are sent.
    pub frames: [PythonFrame; MAX_PYTHON_FRAMES],
}

/// A code object, sent once for each process, with room for so many bytes of its table of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonCode<const LINES: usize> {
    /// [`kind::PYTHON_CODE`](super::kind::PYTHON_CODE).
    pub kind: u16,
    /// The minor version of the interpreter.
    pub minor: u16,
    /// Its cookie.
    pub cookie: u32,
    /// Serial number of the process record.
    pub process: u64,
    /// Its address.
    pub code: u64,
    /// Its first line.
    pub first_line: i32,
    /// Bytes of its table of lines that are set.
    pub lines_bytes: u32,
    /// Its name.
    pub name: PythonText<PYTHON_NAME_BYTES>,
    /// The path of its file.
    pub file: PythonText<PYTHON_FILE_BYTES>,
    /// Its table of lines, of which `lines_bytes` are set.
    pub lines: [u8; LINES],
}

/// The beginning of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonText<const BYTES: usize> {
    /// Bytes of a character: 1, 2 or 4; 0 if the string could not be read.
    pub width: u32,
    /// Its length in characters, which may be more than there is room for.
    pub characters: u32,
    /// As many of its characters as there is room for.
    pub bytes: [u8; BYTES],
}

/// Words that are read of a frame or a code object at once; a power of two.
pub const PYTHON_WORDS: usize = 16;

/// The offset in a code object from which on it is read.
pub const PYTHON_CODE_FROM: u16 = 40;

/// The state of a thread's walks over its Python frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonWalk {
    /// The stack that is read.
    pub stack: PythonStack,
    /// Address of the frame that is read next; 0 after the outermost one.
    pub frame: u64,
    /// 1 if a code object found no room in the ring.
    pub is_lost: u64,
    /// A piece of the frame or the code object that is read.
    pub words: [u64; PYTHON_WORDS],
}

/// Key of the map of code objects that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonCodeKey {
    /// Serial number of the process record.
    pub process: u64,
    /// Address of the code object.
    pub code: u64,
    /// Its cookie.
    pub cookie: u64,
}

/// Key of the map of stacks of language frames that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LanguageStackKey {
    /// Serial number of the process record.
    pub process: u64,
    /// The id of the stack.
    pub id: u64,
}

const _: () = {
    assert!(size_of::<PythonImage>() == 56);
    assert!(size_of::<PythonFrame>() == 16);
    assert!(size_of::<PythonStack>() == 24 + 16 * MAX_PYTHON_FRAMES);
    let texts = PYTHON_NAME_BYTES + PYTHON_FILE_BYTES;
    let short = size_of::<PythonCode<PYTHON_SHORT_LINES_BYTES>>();
    assert!(short == 48 + texts + PYTHON_SHORT_LINES_BYTES);
    assert!(size_of::<PythonCode<PYTHON_LINES_BYTES>>() == 48 + texts + PYTHON_LINES_BYTES);
    assert!(size_of::<PythonWalk>() == size_of::<PythonStack>() + 16 + 8 * PYTHON_WORDS);
    assert!(size_of::<PythonCodeKey>() == 24);
    assert!(size_of::<LanguageStackKey>() == 16);
};
