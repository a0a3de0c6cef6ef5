//! Where each version of V8 keeps its data.
//!
//! Part of `v8`. The offsets are those of builds for x86-64 without compressed pointers, as Node has them. They stay the same in all
//! releases of a line of Node. The finder compares those that a file's own list for debuggers has.

use heaptrace_common::wire::V8Layout;

use super::bytecodes::{self, Lengths};

/// The objects of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What the kernel program reads.
    pub kernel: V8Layout,
    /// The type of a scope that is described.
    pub(super) scope_type: u16,
    /// The type of a script.
    pub(super) script_type: u16,
    /// Of bytecode: the table of positions.
    pub(super) bytecode_positions: u16,
    /// Of bytecode: the first instruction, counted from the pointer to the bytecode.
    pub(super) bytecode_first: u16,
    /// How a scope is described.
    pub(super) scope: ScopeForm,
    /// The lengths of instructions of bytecode.
    pub(super) lengths: Lengths,
    /// Compiled code.
    pub(super) code: CodeLayout,
}

/// Offsets in compiled code and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeLayout {
    /// The type of the description.
    pub(super) code_type: u16,
    /// The type of the object that holds the instructions: the description itself, or one that points to it.
    pub(super) holder_type: u16,
    /// Of that object: the first instruction.
    pub(super) first: u16,
    /// The number of bytes, a `u32`.
    pub(super) size: u16,
    /// A `u32` whose lowest bits tell how it was compiled.
    pub(super) flags: u16,
    /// The bytecode from which it was compiled line by line; or the data of the optimiser.
    pub(super) origin: u16,
    /// The table of positions.
    pub(super) positions: u16,
    /// How code is marked that was compiled without optimisation.
    pub(super) unoptimised: u32,
    /// Elements of the optimiser's data: the functions, and where they were put.
    pub(super) functions: u16,
    pub(super) inlinings: u16,
}

/// How the description of a scope is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeForm {
    /// The position in the source comes after the names. Names are always in the description.
    Plain,
    /// The same, but many names are in a table.
    WithTable,
    /// The position comes before the names. Many names are in a table. The flags are no small number.
    Recent,
}

/// The number of a version, as images have it.
pub(super) const fn version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// Node 16.
const V9_4: Layout = Layout {
    kernel: V8Layout {
        shared_type: 179,
        bytecode_type: 133,
        ..V11_3.kernel
    },
    scope_type: 178,
    script_type: 112,
    scope: ScopeForm::Plain,
    lengths: bytecodes::V9_4,
    code: CodeLayout {
        code_type: 162,
        holder_type: 162,
        first: 96,
        size: 40,
        ..V11_3.code
    },
    ..V11_3
};

/// Node 18.
const V10_2: Layout = Layout {
    kernel: V8Layout {
        shared_type: 257,
        bytecode_type: 195,
        ..V11_3.kernel
    },
    scope_type: 256,
    script_type: 170,
    bytecode_first: 55,
    lengths: bytecodes::V10_2,
    code: CodeLayout {
        code_type: 240,
        holder_type: 240,
        first: 128,
        size: 40,
        ..V11_3.code
    },
    ..V11_3
};

/// Node 20.
const V11_3: Layout = Layout {
    kernel: V8Layout {
        function_shared: 24,
        function_code: 48,
        shared_type: 262,
        shared_name: 16,
        shared_script: 32,
        bytecode_type: 191,
    },
    scope_type: 261,
    script_type: 167,
    bytecode_positions: 32,
    bytecode_first: 53,
    scope: ScopeForm::WithTable,
    lengths: bytecodes::V11_3,
    code: CodeLayout {
        code_type: 245,
        holder_type: 252,
        first: 16,
        size: 56,
        flags: 48,
        origin: 16,
        positions: 24,
        unoptimised: 11,
        functions: 2,
        inlinings: 7,
    },
};

/// Node 22.
const V12_4: Layout = Layout {
    kernel: V8Layout {
        function_shared: 32,
        function_code: 24,
        shared_type: 274,
        bytecode_type: 205,
        ..V11_3.kernel
    },
    scope_type: 272,
    script_type: 167,
    bytecode_positions: 24,
    bytecode_first: 63,
    lengths: bytecodes::V12_4,
    code: CodeLayout {
        code_type: 206,
        holder_type: 210,
        first: 32,
        size: 52,
        origin: 8,
        positions: 16,
        unoptimised: 10,
        ..V11_3.code
    },
    ..V11_3
};

/// Node 24.
const V13_6: Layout = Layout {
    kernel: V8Layout {
        function_shared: 32,
        // A number by which V8 finds the code.
        function_code: 24,
        shared_type: 282,
        shared_name: 24,
        shared_script: 40,
        bytecode_type: 186,
    },
    scope_type: 280,
    scope: ScopeForm::Recent,
    lengths: bytecodes::V13_6,
    code: CodeLayout {
        code_type: 187,
        holder_type: 192,
        size: 56,
        flags: 52,
        functions: 3,
        inlinings: 8,
        ..V12_4.code
    },
    ..V12_4
};

/// The versions that are known.
const KNOWN: [(u32, Layout); 5] = [
    (version(9, 4), V9_4),
    (version(10, 2), V10_2),
    (version(11, 3), V11_3),
    (version(12, 4), V12_4),
    (version(13, 6), V13_6),
];

/// The layout of a version.
pub fn layout(version: u32) -> Option<Layout> {
    let mut known = KNOWN.iter();
    let (_, layout) = known.find(|(known, _)| *known == version)?;
    Some(*layout)
}
