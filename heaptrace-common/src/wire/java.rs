//! HotSpot, the Java virtual machine: where it keeps its code, and what the kernel program sends about Java frames.

use super::CodeRange;
use crate::limits::{CODE_HEAPS, MAX_JAVA_FRAMES};

/// Value of the map of Java virtual machines, by process id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Jvm {
    /// A constant of [`jvm`].
    pub state: u32,
    /// Zero.
    pub pad: u32,
    /// The code of the interpreter. It lies in one of the heaps.
    pub interpreter: CodeRange,
    /// The parts of the code cache; all zero in an unused one.
    pub heaps: [CodeHeap; CODE_HEAPS],
    /// The archive of classes that are mapped at once, with their methods; empty if there is none. Other methods are where the
    /// kernel maps libraries. Of a process with V8, which has no other part of a virtual machine: where V8 has its objects.
    pub archive: CodeRange,
    /// Its structures.
    pub layout: JvmLayout,
}

/// State of a [`Jvm`].
pub mod jvm {
    /// The agent was asked whether the process has a virtual machine.
    pub const REQUESTED: u32 = 0;
    /// The process has one, and it is described.
    pub const READY: u32 = 1;
    /// The process has none, or one that is not known.
    pub const NONE: u32 = 2;
    /// The process has mapped the file of one, which may have started by now: the kernel program may ask.
    pub const EXPECTED: u32 = 3;
}

/// A part of the code cache. Code is kept in blobs, each of which begins at a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CodeHeap {
    /// First address of the memory that is reserved for it.
    pub start: u64,
    /// First address after that.
    pub end: u64,
    /// Address of its segment map, with a byte for each segment: how many segments before it the blob begins, or a step
    /// towards that.
    pub segments: u64,
    /// The power of two of a segment's size.
    pub shift: u64,
}

/// Offsets in the structures of a version of HotSpot, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JvmLayout {
    /// Bytes before a blob, in its first segment.
    pub block_head: u16,
    /// Of a blob: the size of its frames in words, an `i32`; 0 if its code keeps a frame pointer or has no frame.
    pub blob_frame_size: u16,
    /// Of a blob: its size, an `i32`.
    pub blob_size: u16,
    /// Of a compiled method's blob: the number of its compilation, an `i32`.
    pub blob_compile_id: u16,
    /// Of a method: the part of it that never changes.
    pub method_constant: u16,
    /// The size of that part, after which the bytecode begins.
    pub constant_bytes: u16,
    /// Of a frame of the interpreter: how far below the frame pointer the instruction is.
    pub frame_instruction: u16,
    /// Zero.
    pub pad: u16,
}

/// A frame of Java code, or of code that the virtual machine has generated for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct JavaFrame {
    /// Address of the method that the interpreter runs; or with [`Self::BLOB`] that of the blob of code; 0 if it could not be
    /// read.
    pub code: u64,
    /// A cookie in the upper half: what is at the same address later has another one. In the lower half the position in the
    /// bytecode, or in the blob.
    pub place: u64,
}

impl JavaFrame {
    /// The bit of `code` that tells that it is the address of a blob.
    pub const BLOB: u64 = 1 << 63;
}

/// The Java frames of a thread, sent once for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct JavaStack {
    /// [`kind::JAVA_STACK`](super::kind::JAVA_STACK).
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
    pub frames: [JavaFrame; MAX_JAVA_FRAMES],
}

/// A request for the description of a process's virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NeedJvm {
    /// [`kind::NEED_JVM`](super::kind::NEED_JVM).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// The process.
    pub tgid: u32,
    /// Serial number of its process record.
    pub process: u64,
}

const _: () = {
    assert!(size_of::<CodeHeap>() == 32);
    assert!(size_of::<JvmLayout>() == 16);
    assert!(size_of::<Jvm>() == 40 + 32 * CODE_HEAPS + 16);
    assert!(size_of::<JavaFrame>() == 16);
    assert!(size_of::<JavaStack>() == 24 + 16 * MAX_JAVA_FRAMES);
    assert!(size_of::<NeedJvm>() == 16);
};
