//! The frames of JavaScript: read after the walk of a stack of a thread that runs V8, and sent once for each process.
//!
//! Each function of JavaScript has a frame on the stack of machine code, with a pointer to the function. V8's generated code and its
//! built-in functions have no unwind information, so only frames without a rule are looked at. A frame says where it is in
//! its bytecode in a word that the walk does not read: the hash of all frames is part of a stack's identity. The garbage collector
//! moves functions all the time, but hardly ever what all functions of the same source share: that is what is sent.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::helpers::{bpf_probe_read_user, generated::bpf_loop};
use heaptrace_common::{
    counters::Counter,
    limits::{MAX_FRAMES, MAX_V8_FRAMES},
    unwind::{Rule, cfa},
    wire::{
        LanguageStackKey, Stack, ThreadState, V8_MAP, V8_MAP_TYPE, V8_WORDS, V8Frame, V8Image,
        V8Stack, V8Walk, WalkCache, is_v8_object, kind, v8_cookie,
    },
};

use crate::{
    caller::Caller,
    counters::count,
    globals::HASH_SEED,
    language,
    maps::{BLANK_V8, V8_IMAGES, V8_WALKS},
    memory::{read_words, word, word_at},
    walk::{CONTINUE, STOP, Walk},
};

/// Notes whether the frame that the walk has reached may be one of JavaScript, and whether its file holds V8.
#[inline(always)]
pub fn note_frame(walk: &mut Walk<'_>, depth: usize, rule: Rule) {
    if walk.state.table.v8 != 0 {
        walk.state.v8_image = walk.state.table.v8 as u16;
    }
    if rule.cfa == cfa::NONE && walk.state.v8_image != 0 {
        language::mark(walk.stack, depth);
    }
}

/// Reads the frames of JavaScript of the calling thread, and makes them part of its stack, which was walked just now.
#[inline(always)]
pub fn capture(caller: Caller, state: &mut ThreadState) {
    if state.walk.v8_image == 0 {
        return;
    }
    let id = read(caller, state);
    language::set(state, id);
}

/// The id of the thread's frames of JavaScript, which are sent if they are new; 0 if there are none.
#[inline(never)]
fn read(caller: Caller, state: &mut ThreadState) -> u64 {
    let Some(image) = V8_IMAGES.get(u32::from(state.walk.v8_image).wrapping_sub(1)) else {
        return 0;
    };
    let Some(walk) = language::of_thread(&V8_WALKS, &BLANK_V8, caller.key) else {
        return 0;
    };
    walk.stack.process = state.process;
    walk.stack.depth = 0;
    walk.stack.id = HASH_SEED.load();
    let mut pass = Pass {
        walk,
        image,
        stack: &mut state.stack,
        cache: &state.walk.cache,
    };
    // SAFETY: the callback gets the pass, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_FRAMES as u32,
            frame as *mut c_void,
            (&raw mut pass).cast::<c_void>(),
            0,
        );
    }
    let (walk, before) = (pass.walk, pass.stack.head.language);
    if walk.stack.depth == 0 {
        return 0;
    }
    walk.stack.id = walk.stack.id.max(1);
    if walk.stack.id == before || is_sent(caller, &mut walk.stack, image) {
        return walk.stack.id;
    }
    count(Counter::V8FramesLost);
    0
}

/// What the loop over frames shares.
struct Pass<'a> {
    walk: &'a mut V8Walk,
    image: &'static V8Image,
    stack: &'a mut Stack,
    cache: &'a WalkCache,
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn end(key: u64) {
    let _ = V8_WALKS.remove(key);
}

/// Looks at one frame of machine code. If it is none of JavaScript, its mark is removed.
#[inline(never)]
extern "C" fn frame(index: u32, pass: *mut c_void) -> i64 {
    // SAFETY: `read` passes a pass.
    let pass = unsafe { &mut *pass.cast::<Pass<'_>>() };
    if index >= pass.stack.head.depth || index as usize >= MAX_FRAMES {
        return STOP;
    }
    let index = index as usize & (MAX_FRAMES - 1);
    let (word, bit) = (index >> 6, 1 << (index & 63));
    if pass.stack.head.language_frames[word] & bit == 0 {
        return CONTINUE;
    }
    let pc = pass.stack.frames[index];
    let Some(found) = at(&mut pass.walk.words, pass.image, pass.cache.bps[index], pc) else {
        pass.stack.head.language_frames[word] &= !bit;
        return CONTINUE;
    };
    let stack = &mut pass.walk.stack;
    let depth = stack.depth as usize & (MAX_V8_FRAMES - 1);
    stack.frames[depth] = found;
    stack.depth = depth as u32 + 1;
    let mut hash = stack.id;
    for value in [found.shared, found.code, found.place] {
        hash = (hash ^ value).wrapping_mul(0x9fb2_1c65_1e98_df25);
        hash ^= hash >> 29;
    }
    stack.id = hash;
    CONTINUE
}

/// Where a frame keeps its words, counted from the lowest one.
mod slot {
    /// The position in the bytecode, of an interpreted function.
    pub const POSITION: usize = 0;
    /// The bytecode, of an interpreted function.
    pub const BYTECODE: usize = 1;
    /// The function.
    pub const FUNCTION: usize = 3;
    /// The context, or a number that tells what kind of frame it is if it is none of JavaScript.
    pub const CONTEXT: usize = 4;
    /// Bytes of these words, which are below the address that the frame pointer holds.
    pub const BYTES: u32 = 40;
}

/// The frame of JavaScript with this frame pointer and this return address; `None` if it is another frame.
#[inline(always)]
fn at(words: &mut [u64; V8_WORDS], image: &V8Image, bp: u64, pc: u64) -> Option<V8Frame> {
    let layout = &image.layout;
    let is_read = read_words(words, bp.wrapping_sub(u64::from(slot::BYTES)), slot::BYTES);
    let (position, bytecode) = (words[slot::POSITION], words[slot::BYTECODE]);
    let function = words[slot::FUNCTION];
    if !is_read
        || !is_v8_object(words[slot::CONTEXT])
        || !is_v8_object(function)
        || !read_words(words, function.wrapping_sub(1), 56)
    {
        return None;
    }
    let shared = word(words, layout.function_shared);
    let code = word(words, layout.function_code);
    if !is_v8_object(shared) || !read_words(words, shared.wrapping_sub(1), 48) {
        return None;
    }
    let map = words[V8_MAP as usize];
    let name = word(words, layout.shared_name);
    let script = word(words, layout.shared_script);
    if type_of(map) != Some(layout.shared_type) {
        return None;
    }
    // A small number is in the upper half of a word.
    let is_interpreted = position as u32 == 0
        && is_v8_object(bytecode)
        && word_at(bytecode.wrapping_sub(1)).and_then(type_of) == Some(layout.bytecode_type);
    let (code, place) = if is_interpreted {
        (bytecode, position >> 32)
    } else {
        (code | V8Frame::IS_COMPILED, pc)
    };
    let cookie = u64::from(v8_cookie(map, name, script));
    Some(V8Frame {
        shared: shared | cookie << V8Frame::COOKIE,
        code,
        place,
    })
}

/// The type of the objects that have a map.
#[inline(always)]
fn type_of(map: u64) -> Option<u16> {
    let address = map.wrapping_sub(1).wrapping_add(V8_MAP_TYPE);
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u16) }.ok()
}

/// Sends a stack, if it was not sent before. False if the ring is full.
#[inline(always)]
fn is_sent(caller: Caller, stack: &mut V8Stack, image: &V8Image) -> bool {
    let key = LanguageStackKey {
        process: stack.process,
        id: stack.id,
    };
    if language::is_sent(key) {
        return true;
    }
    stack.kind = kind::V8_STACK;
    stack.pad = 0;
    stack.tgid = caller.tgid();
    stack.version = image.version;
    let depth = stack.depth.min(MAX_V8_FRAMES as u32);
    let head = offset_of!(V8Stack, frames);
    // SAFETY: the record has at least that depth.
    unsafe { language::send(key, stack, head, depth, size_of::<V8Frame>()) }
}
