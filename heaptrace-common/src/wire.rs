//! The records that the kernel program sends to the agent, and the keys and values of its maps.
//!
//! Fixed-width integers only; padding is explicit and zero; the layout is asserted at compile time.

mod block;
mod file;
mod java;
mod mapping;
mod process;
mod python;
mod raw_stack;
mod sampling;
mod stack;
mod thread;
mod v8;
mod walk_state;

pub use block::*;
pub use file::*;
pub use java::*;
pub use mapping::*;
pub use process::*;
pub use python::*;
pub use raw_stack::*;
pub use sampling::*;
pub use stack::*;
pub use thread::*;
pub use v8::*;
pub use walk_state::*;

/// Kinds of records in the ring: their first two bytes.
pub mod kind {
    /// An [`Alloc`](super::Alloc).
    pub const ALLOC: u16 = 1;
    /// A [`Free`](super::Free).
    pub const FREE: u16 = 2;
    /// A [`Stack`](super::Stack), cut after its last frame.
    pub const STACK: u16 = 3;
    /// A [`ProcessBegin`](super::ProcessBegin).
    pub const PROCESS_BEGIN: u16 = 4;
    /// A [`ProcessEnd`](super::ProcessEnd).
    pub const PROCESS_END: u16 = 5;
    /// A [`NeedTable`](super::NeedTable).
    pub const NEED_TABLE: u16 = 6;
    /// A [`MapChange`](super::MapChange).
    pub const MAP_CHANGE: u16 = 7;
    /// A [`PythonStack`](super::PythonStack), cut after its last frame.
    pub const PYTHON_STACK: u16 = 8;
    /// A [`PythonCode`](super::PythonCode), with room for a short or a long table of lines.
    pub const PYTHON_CODE: u16 = 9;
    /// A [`RawStack`](super::RawStack), cut after its last word.
    pub const RAW_STACK: u16 = 10;
    /// A [`V8Stack`](super::V8Stack), cut after its last frame.
    pub const V8_STACK: u16 = 11;
    /// A [`NeedJvm`](super::NeedJvm).
    pub const NEED_JVM: u16 = 20;
    /// A [`JavaStack`](super::JavaStack), cut after its last frame.
    pub const JAVA_STACK: u16 = 21;
}
