//! V8: where its objects keep what leads to names, and what the kernel program sends about frames of JavaScript.

use crate::limits::MAX_V8_FRAMES;

/// A file that holds V8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct V8Image {
    /// The version: the major one in the upper half, the minor one in the lower.
    pub version: u32,
    /// Its objects, as far as the kernel program reads them.
    pub layout: V8Layout,
}

/// Offsets in objects of a version of V8, in bytes, and numbers of types of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct V8Layout {
    /// Of a function: what all functions of the same source share.
    pub function_shared: u16,
    /// Of a function: its code.
    pub function_code: u16,
    /// The type of what functions share.
    pub shared_type: u16,
    /// Of what functions share: the name, or the scope that has it.
    pub shared_name: u16,
    /// Of what functions share: the script.
    pub shared_script: u16,
    /// The type of bytecode.
    pub bytecode_type: u16,
}

/// Of an object: the offset of its map.
pub const V8_MAP: u64 = 0;

/// Of a map: the offset of the number of the type, a `u16`.
pub const V8_MAP_TYPE: u64 = 12;

/// Whether a word is a pointer to an object. The object begins one byte before.
#[inline(always)]
pub const fn is_v8_object(word: u64) -> bool {
    word & 3 == 1 && word >> 47 == 0
}

/// A value by which what functions share is told apart from others that were at its address: from its map, its name and its
/// script.
#[inline(always)]
pub const fn v8_cookie(map: u64, name: u64, script: u64) -> u16 {
    let mut mixed = map.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ name;
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ script;
    mixed = (mixed ^ mixed >> 29).wrapping_mul(0x9fb2_1c65_1e98_df25);
    (mixed >> 48) as u16
}

/// A frame of JavaScript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct V8Frame {
    /// The pointer to what its function shares, and the [`v8_cookie`] of it in the upper 16 bits.
    pub shared: u64,
    /// The pointer to its bytecode; or, with [`Self::IS_COMPILED`], to the code that its function has now.
    pub code: u64,
    /// The position in the bytecode, counted from the pointer to the bytecode; or the return address in compiled code.
    pub place: u64,
}

impl V8Frame {
    /// The bit of `code` that tells that the frame's code was compiled.
    pub const IS_COMPILED: u64 = 1 << 63;
    /// The lowest bit of the cookie in `shared`.
    pub const COOKIE: u32 = 48;
}

/// The frames of JavaScript of a thread, sent once for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct V8Stack {
    /// [`kind::V8_STACK`](super::kind::V8_STACK).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Number of frames.
    pub depth: u32,
    /// Serial number of the process record.
    pub process: u64,
    /// Its hash, which stacks refer to; never 0.
    pub id: u64,
    /// Process id.
    pub tgid: u32,
    /// The version of V8, as in [`V8Image`].
    pub version: u32,
    /// Innermost first; `depth` of them are sent.
    pub frames: [V8Frame; MAX_V8_FRAMES],
}

/// Words that are read of a frame or an object at once; a power of two.
pub const V8_WORDS: usize = 8;

/// The state of a thread's passes over its frames of JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct V8Walk {
    /// The stack that is read.
    pub stack: V8Stack,
    /// A piece of the frame or the object that is read.
    pub words: [u64; V8_WORDS],
}

const _: () = {
    assert!(size_of::<V8Image>() == 16);
    assert!(size_of::<V8Frame>() == 24);
    assert!(size_of::<V8Stack>() == 32 + 24 * MAX_V8_FRAMES);
    assert!(size_of::<V8Walk>() == size_of::<V8Stack>() + 8 * V8_WORDS);
    // The kernel allocates entries of maps in pieces of at most a page, with a head of its own.
    assert!(size_of::<V8Walk>() <= 4096 - 64);
};
