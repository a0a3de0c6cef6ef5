//! The frames of Python code: read after the walk of a stack that goes through the function which interprets Python's
//! bytecode, and sent once for each process.
//!
//! The interpreter keeps its frames in a list of its own, and a call of Python code by Python code moves no register of the
//! processor. So stacks with the same machine code may have different Python frames: their hash is part of a stack's identity.
//! Code objects are sent with their names and their tables of lines, because the process may end before the agent could read them.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::{
    helpers::generated::{self, bpf_loop},
    maps::ring_buf::RingBufEntry,
};
use heaptrace_common::{
    counters::Counter,
    limits::{
        MAX_PYTHON_FRAMES, PYTHON_FILE_BYTES, PYTHON_LINES_BYTES, PYTHON_NAME_BYTES,
        PYTHON_SHORT_LINES_BYTES,
    },
    wire::{
        LanguageStackKey, PYTHON_CODE_FROM, PYTHON_WORDS, PythonCode, PythonCodeKey, PythonFrame,
        PythonImage, PythonLayout, PythonStack, PythonText, PythonWalk, ThreadState, WalkState,
        entry, kind, table, thread_data,
    },
};

use crate::{
    caller::Caller,
    counters::count,
    globals::HASH_SEED,
    kernel::thread_block,
    language,
    maps::{BLANK_PYTHON, EVENTS, PYTHON_CODES, PYTHON_IMAGES, PYTHON_WALKS},
    memory::{self, read_words, word_at},
    ring,
    walk::{CONTINUE, STOP, Walk},
};

/// Notes whether the frame that the walk has reached belongs to the function that interprets bytecode. If the table of its file is not
/// there yet, the walk ends here: the agent finds out whether this frame and those that follow do.
#[inline(always)]
pub fn note_frame(walk: &mut Walk<'_>, depth: usize, pc: u64) {
    if walk.state.table.python == 0 {
        return;
    }
    match walk.state.table.state {
        table::LOADED if is_loop(walk.state, pc) => language::mark(walk.stack, depth),
        table::REQUESTED => {}
        _ => return,
    }
    walk.state.python_image = walk.state.table.python as u16;
    walk.state.python_base = walk
        .state
        .mapping
        .start
        .wrapping_sub(walk.state.mapping.offset);
}

#[inline(always)]
fn is_loop(state: &WalkState, pc: u64) -> bool {
    let Some(image) = PYTHON_IMAGES.get(state.table.python.wrapping_sub(1)) else {
        return false;
    };
    let at = pc
        .wrapping_sub(state.mapping.start)
        .wrapping_add(state.mapping.offset);
    image.is_loop(at)
}

/// Reads the Python frames of the calling thread, and makes them part of its stack, which was walked just now.
#[inline(always)]
pub fn capture(caller: Caller, state: &mut ThreadState) {
    if state.walk.python_image == 0 {
        return;
    }
    let id = read(caller, state);
    language::set(state, id);
}

/// The id of the thread's Python frames, which are sent if they are new; 0 if there are none.
#[inline(never)]
fn read(caller: Caller, state: &mut ThreadState) -> u64 {
    let Some(image) = PYTHON_IMAGES.get(u32::from(state.walk.python_image).wrapping_sub(1)) else {
        return 0;
    };
    let Some(innermost) = innermost(image, state.walk.python_base) else {
        return 0;
    };
    let Some(walk) = language::of_thread(&PYTHON_WALKS, &BLANK_PYTHON, caller.key) else {
        return 0;
    };
    walk.frame = innermost;
    walk.stack.process = state.process;
    walk.stack.depth = 0;
    let mut pass = Pass { walk, image };
    // SAFETY: the callback gets the pass, which outlives the loop.
    unsafe {
        bpf_loop(
            // Besides its frames, a stack may have as many entries that are none.
            2 * MAX_PYTHON_FRAMES as u32,
            frame as *mut c_void,
            (&raw mut pass).cast::<c_void>(),
            0,
        );
    }
    if pass.walk.stack.depth == 0 {
        return 0;
    }
    pass.walk.stack.id = hash(&pass.walk.stack);
    if pass.walk.stack.id == state.stack.head.language || is_sent(&mut pass) {
        return pass.walk.stack.id;
    }
    count(Counter::PythonFramesLost);
    0
}

/// What the loops over frames share.
struct Pass<'a> {
    walk: &'a mut PythonWalk,
    image: &'static PythonImage,
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn end(key: u64) {
    let _ = PYTHON_WALKS.remove(key);
}

/// The address of the innermost Python frame of the thread.
///
/// The interpreter finds its data of a thread under a key. That holds also while the thread does not hold the interpreter's
/// lock, when other places have nothing.
#[inline(always)]
fn innermost(image: &PythonImage, base: u64) -> Option<u64> {
    let key = word_at(base.wrapping_add(image.key_at))?;
    let (is_set, key) = (key as u32, key >> 32);
    let slot = match image.layout.thread_data {
        // Keys from 32 on are kept elsewhere.
        thread_data::GLIBC if key < 32 => thread_block().wrapping_add(GLIBC_SLOTS + 16 * key),
        thread_data::MUSL if key < 128 => {
            word_at(thread_block().wrapping_add(MUSL_SLOTS))?.wrapping_add(8 * key)
        }
        _ => return None,
    };
    if is_set == 0 {
        return None;
    }
    let thread = word_at(slot)?;
    let mut frame = word_at(thread.wrapping_add(u64::from(image.layout.thread_frame)))?;
    if image.layout.holder_frame != PythonLayout::NO_OFFSET {
        frame = word_at(frame.wrapping_add(u64::from(image.layout.holder_frame)))?;
    }
    Some(frame)
}

/// Of glibc's own block of a thread: where the data of its first key is.
const GLIBC_SLOTS: u64 = 0x318;

/// Of musl's own block of a thread: the pointer to the data of its keys.
const MUSL_SLOTS: u64 = 0x80;

/// Records one frame, and goes on to the one that called it.
#[inline(never)]
extern "C" fn frame(_: u32, pass: *mut c_void) -> i64 {
    // SAFETY: `read` passes a pass.
    let Pass { walk, image } = unsafe { &mut *pass.cast::<Pass<'_>>() };
    let layout = &image.layout;
    let is_old = layout.minor <= 10;
    let bytes = if is_old { 112 } else { 80 };
    if walk.frame == 0 || !read_words(&mut walk.words, walk.frame, bytes) {
        return STOP;
    }
    let code = word(&walk.words, layout.frame_code);
    let instruction = word(&walk.words, layout.frame_instruction);
    let mark = word(&walk.words, layout.frame_entry) as u8;
    walk.frame = word(&walk.words, layout.frame_back);
    let depth = walk.stack.depth as usize;
    if layout.entry == entry::OWNER && mark >= 3 {
        return end_run(&mut walk.stack);
    }
    if depth >= MAX_PYTHON_FRAMES || !read_code(&mut walk.words, code) {
        return STOP;
    }
    let place = if is_old {
        instruction as u32
    } else {
        let first = code.wrapping_add(u64::from(layout.code_instructions));
        instruction.wrapping_sub(first) as u32
    };
    let is_last = match layout.entry {
        entry::EACH => true,
        entry::FLAG => mark != 0,
        _ => false,
    };
    let last = if is_last { PythonFrame::LAST_OF_RUN } else { 0 };
    walk.stack.frames[depth & (MAX_PYTHON_FRAMES - 1)] = PythonFrame {
        code: code & !PythonFrame::LAST_OF_RUN | last,
        place: u64::from(cookie(&walk.words, layout)) << 32 | u64::from(place),
    };
    walk.stack.depth = depth as u32 + 1;
    CONTINUE
}

/// Ends a run of the interpreter's function: at its last frame, or, if it has none yet, at an entry of its own.
#[inline(always)]
fn end_run(stack: &mut PythonStack) -> i64 {
    let depth = stack.depth as usize;
    let before = depth.wrapping_sub(1) & (MAX_PYTHON_FRAMES - 1);
    if depth > 0 && stack.frames[before].code & PythonFrame::LAST_OF_RUN == 0 {
        stack.frames[before].code |= PythonFrame::LAST_OF_RUN;
        return CONTINUE;
    }
    if depth >= MAX_PYTHON_FRAMES {
        return STOP;
    }
    stack.frames[depth & (MAX_PYTHON_FRAMES - 1)] = PythonFrame {
        code: PythonFrame::LAST_OF_RUN,
        place: 0,
    };
    stack.depth = depth as u32 + 1;
    CONTINUE
}

/// A value by which a code object is told apart from others that were at its address: from its strings, its table of lines,
/// and its first line.
#[inline(always)]
fn cookie(words: &[u64; PYTHON_WORDS], layout: &PythonLayout) -> u32 {
    let mut mixed = u64::from(word(words, from_code(layout.code_line)) as u32);
    for offset in [layout.code_name, layout.code_file, layout.code_lines] {
        mixed = (mixed ^ word(words, from_code(offset))).wrapping_mul(0x9fb2_1c65_1e98_df25);
        mixed ^= mixed >> 32;
    }
    mixed as u32
}

/// An offset in a code object as one in what is read of it.
#[inline(always)]
fn from_code(offset: u16) -> u16 {
    offset.wrapping_sub(PYTHON_CODE_FROM)
}

/// The id of a Python stack: its hash, never 0.
#[inline(always)]
fn hash(stack: &PythonStack) -> u64 {
    let depth = stack.depth as usize;
    let mut hash = HASH_SEED.load() ^ depth as u64;
    for index in 0..MAX_PYTHON_FRAMES {
        if index >= depth {
            break;
        }
        let frame = stack.frames[index];
        hash = (hash ^ frame.code).wrapping_mul(0x9fb2_1c65_1e98_df25);
        hash ^= hash >> 29;
        hash = (hash ^ frame.place).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash.max(1)
}

/// Sends a Python stack and its code objects, if they were not sent before. False if the ring is full.
#[inline(always)]
fn is_sent(pass: &mut Pass<'_>) -> bool {
    let key = LanguageStackKey {
        process: pass.walk.stack.process,
        id: pass.walk.stack.id,
    };
    if language::is_sent(key) {
        return true;
    }
    pass.walk.is_lost = 0;
    // SAFETY: the callback gets the pass, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_PYTHON_FRAMES as u32,
            send_code as *mut c_void,
            (&raw mut *pass).cast::<c_void>(),
            0,
        );
    }
    if pass.walk.is_lost != 0 {
        return false;
    }
    let stack = &mut pass.walk.stack;
    stack.kind = kind::PYTHON_STACK;
    stack.pad = 0;
    let depth = stack.depth.min(MAX_PYTHON_FRAMES as u32);
    let head = offset_of!(PythonStack, frames);
    // SAFETY: the record has at least that depth.
    unsafe { language::send(key, stack, head, depth, size_of::<PythonFrame>()) }
}

/// Sends the code object of one frame, if it was not sent before.
#[inline(never)]
extern "C" fn send_code(index: u32, pass: *mut c_void) -> i64 {
    // SAFETY: `is_sent` passes a pass.
    let Pass { walk, image } = unsafe { &mut *pass.cast::<Pass<'_>>() };
    if index >= walk.stack.depth || index as usize >= MAX_PYTHON_FRAMES {
        return STOP;
    }
    let frame = walk.stack.frames[index as usize & (MAX_PYTHON_FRAMES - 1)];
    let code = frame.code & !PythonFrame::LAST_OF_RUN;
    let key = PythonCodeKey {
        process: walk.stack.process,
        code,
        cookie: frame.place >> 32,
    };
    // SAFETY: the value is not used.
    if code == 0 || unsafe { PYTHON_CODES.get(key) }.is_some() {
        return CONTINUE;
    }
    if !read_code(&mut walk.words, code) {
        // The agent will not know it.
        return CONTINUE;
    }
    let lines = word(&walk.words, from_code(image.layout.code_lines));
    let lines_bytes = word_at(lines.wrapping_add(BYTES_LENGTH)).unwrap_or(0);
    let is_sent = if lines_bytes <= PYTHON_SHORT_LINES_BYTES as u64 {
        let entry = EVENTS.reserve::<PythonCode<PYTHON_SHORT_LINES_BYTES>>(0);
        entry.map(|entry| send(entry, &key, &walk.words, image, lines_bytes))
    } else {
        let entry = EVENTS.reserve::<PythonCode<PYTHON_LINES_BYTES>>(0);
        entry.map(|entry| send(entry, &key, &walk.words, image, lines_bytes))
    };
    if is_sent.is_none() {
        walk.is_lost = 1;
        return STOP;
    }
    let _ = PYTHON_CODES.insert(key, 1, 0);
    CONTINUE
}

/// Of a bytes object: its length.
const BYTES_LENGTH: u64 = 16;

/// Of a bytes object: its content.
const BYTES_CONTENT: u64 = 32;

/// Of a string: its length in characters.
const TEXT_LENGTH: u64 = 16;

/// Of a string: bits that describe it.
const TEXT_STATE: u64 = 32;

#[inline(always)]
fn send<const LINES: usize>(
    mut entry: RingBufEntry<PythonCode<LINES>>,
    key: &PythonCodeKey,
    words: &[u64; PYTHON_WORDS],
    image: &PythonImage,
    lines_bytes: u64,
) {
    let layout = &image.layout;
    let record = entry.as_mut_ptr();
    let object = |offset| word(words, from_code(offset));
    let bytes = if lines_bytes >= LINES as u64 {
        LINES as u64
    } else {
        lines_bytes & (LINES as u64 - 1)
    };
    // SAFETY: the record has room for all of this; the helper checks the addresses that it reads.
    unsafe {
        (&raw mut (*record).kind).write(kind::PYTHON_CODE);
        (&raw mut (*record).minor).write(layout.minor);
        (&raw mut (*record).cookie).write(key.cookie as u32);
        (&raw mut (*record).process).write(key.process);
        (&raw mut (*record).code).write(key.code);
        (&raw mut (*record).first_line).write(object(layout.code_line) as i32);
        let read = generated::bpf_probe_read_user(
            (&raw mut (*record).lines).cast::<c_void>(),
            bytes as u32,
            object(layout.code_lines).wrapping_add(BYTES_CONTENT) as *const c_void,
        );
        let bytes = if read == 0 { bytes as u32 } else { 0 };
        (&raw mut (*record).lines_bytes).write(bytes);
        read_text::<PYTHON_NAME_BYTES>(&raw mut (*record).name, object(layout.code_name), layout);
        read_text::<PYTHON_FILE_BYTES>(&raw mut (*record).file, object(layout.code_file), layout);
    }
    entry.submit(ring::QUIETLY);
}

/// Reads the beginning of a string.
///
/// # Safety
///
/// The text must be valid to write to.
#[inline(always)]
unsafe fn read_text<const BYTES: usize>(
    text: *mut PythonText<BYTES>,
    object: u64,
    layout: &PythonLayout,
) {
    let length = word_at(object.wrapping_add(TEXT_LENGTH)).unwrap_or(0);
    let state = word_at(object.wrapping_add(TEXT_STATE)).unwrap_or(0);
    let (width, is_ascii) = (state >> 2 & 7, state >> 6 & 1 != 0);
    let content = if is_ascii {
        layout.text_ascii
    } else {
        layout.text_wide
    };
    let all = length.wrapping_mul(width);
    let bytes = if all >= BYTES as u64 {
        BYTES as u64
    } else {
        all & (BYTES as u64 - 1)
    };
    // SAFETY: by this function's own condition; the helper checks the address that it reads.
    unsafe {
        let read = generated::bpf_probe_read_user(
            (&raw mut (*text).bytes).cast::<c_void>(),
            bytes as u32,
            object.wrapping_add(u64::from(content)) as *const c_void,
        );
        (&raw mut (*text).width).write(if read == 0 { width as u32 } else { 0 });
        (&raw mut (*text).characters).write(length as u32);
    }
}

/// Reads the part of a code object that matters.
#[inline(always)]
fn read_code(words: &mut [u64; PYTHON_WORDS], code: u64) -> bool {
    read_words(words, code.wrapping_add(u64::from(PYTHON_CODE_FROM)), 112)
}

/// The word at an offset of what was read, from its lowest byte on.
#[inline(always)]
fn word(words: &[u64; PYTHON_WORDS], offset: u16) -> u64 {
    memory::word(words, offset) >> (8 * u32::from(offset & 7))
}
