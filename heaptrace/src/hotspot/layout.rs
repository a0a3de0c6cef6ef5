//! The offsets of the virtual machine's structures that are read, by version.
//!
//! Part of `hotspot`. Must not know what is read at them.

use super::memory::Memory;
use super::packed::Packing;
use super::structs::Structs;

/// The members that some version has, by type.
pub(super) const MEMBERS: &[(&str, &[&str])] = &[
    ("Abstract_VM_Version", &["_vm_major_version"]),
    ("AbstractInterpreter", &["_code"]),
    ("StubQueue", &["_stub_buffer", "_buffer_limit"]),
    ("CodeCache", &["_heaps", "_heap"]),
    ("GenericGrowableArray", &["_len"]),
    ("GrowableArrayBase", &["_len"]),
    ("GrowableArray<int>", &["_data"]),
    ("CodeHeap", &["_memory", "_segmap", "_log2_segment_size"]),
    ("VirtualSpace", &["_low_boundary", "_high_boundary", "_low"]),
    (
        "CodeBlob",
        &[
            "_name",
            "_size",
            "_frame_size",
            "_code_begin",
            "_code_offset",
            "_data_offset",
            "_mutable_data",
            "_relocation_size",
        ],
    ),
    ("CompiledMethod", &["_method", "_scopes_data_begin"]),
    (
        "nmethod",
        &[
            "_method",
            "_compile_id",
            "_scopes_pcs_offset",
            "_scopes_data_offset",
            "_dependencies_offset",
            "_metadata_offset",
            "_immutable_data",
        ],
    ),
    (
        "MetaspaceObj",
        &["_shared_metaspace_base", "_shared_metaspace_top"],
    ),
    ("Method", &["_constMethod"]),
    (
        "ConstMethod",
        &[
            "_constants",
            "_code_size",
            "_name_index",
            "_flags",
            "_flags._flags",
        ],
    ),
    ("ConstantPool", &["_pool_holder", "_source_file_name_index"]),
    ("InstanceKlass", &["_source_file_name_index"]),
    ("Klass", &["_name"]),
    ("Symbol", &["_length", "_body"]),
];

/// The types whose sizes matter.
pub(super) const SIZES: &[&str] = &["ConstMethod", "ConstantPool", "HeapBlock", "PcDesc"];

/// Where a part of a blob begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    /// The blob has its address.
    Address(u16),
    /// The blob has its distance from the blob.
    Offset(u16),
}

/// Where a compiled method has what describes its code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Description {
    /// In its blob, up to Java 22: the distances of the table of positions and of its end, the scopes, and the distance of the list of
    /// methods.
    InBlob {
        positions: u16,
        positions_end: u16,
        scopes: Begin,
        methods: u16,
    },
    /// In memory of its own, whose address the blob has: the distances of the table of positions and of the scopes, which follow it.
    Apart {
        memory: u16,
        positions: u16,
        scopes: u16,
        methods: Methods,
    },
}

/// Where the methods of a description apart are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Methods {
    /// In the blob's data, at a distance (Java 23 and 24).
    InData { data: u16, methods: u16 },
    /// In further memory, after so many bytes (from Java 25).
    Apart { memory: u16, before: u16 },
}

/// Where the name of a class's source file is.
#[derive(Clone, Copy, Debug)]
pub(super) enum SourceFile {
    InPool(u16),
    InClass(u16),
}

/// Offsets in the structures, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) packing: Packing,
    /// Of a frame of the interpreter: how far below the frame pointer the instruction is.
    pub(super) frame_instruction: u16,
    pub(super) block_head: u16,
    pub(super) blob_name: u16,
    pub(super) blob_size: u16,
    pub(super) blob_frame_size: u16,
    pub(super) blob_code: Begin,
    pub(super) compile_id: u16,
    pub(super) compiled_method: u16,
    pub(super) description: Description,
    pub(super) position_bytes: u16,
    pub(super) method_constant: u16,
    pub(super) constant_bytes: u16,
    pub(super) constant_pool: u16,
    pub(super) constant_code_size: u16,
    pub(super) constant_name: u16,
    pub(super) constant_flags: u16,
    pub(super) pool_bytes: u16,
    pub(super) pool_holder: u16,
    pub(super) source_file: SourceFile,
    pub(super) class_name: u16,
    pub(super) symbol_length: u16,
    pub(super) symbol_body: u16,
}

impl Layout {
    /// The layout that the virtual machine describes; `None` if something is missing.
    pub(super) fn new<M: Memory>(memory: &M, structs: &Structs) -> Option<Self> {
        let at = |of, member| structs.offset(of, member);
        let version = structs.address("Abstract_VM_Version", "_vm_major_version")?;
        let major = memory.half(version)?;
        // Only Java 8 has one heap for its code. Its own versions go on from those of an earlier virtual machine, to 25.
        let is_8 = structs.address("CodeCache", "_heap").is_some();
        let blob_code = match at("CodeBlob", "_code_begin") {
            Some(at) => Begin::Address(at),
            None => Begin::Offset(at("CodeBlob", "_code_offset")?),
        };
        let source_file = match at("ConstantPool", "_source_file_name_index") {
            Some(at) => SourceFile::InPool(at),
            None => SourceFile::InClass(at("InstanceKlass", "_source_file_name_index")?),
        };
        Some(Self {
            packing: match major {
                20.. if !is_8 => Packing::WithoutZeros,
                _ => Packing::Old,
            },
            frame_instruction: if is_8 { 56 } else { 64 },
            block_head: structs.size("HeapBlock")?,
            blob_name: at("CodeBlob", "_name")?,
            blob_size: at("CodeBlob", "_size")?,
            blob_frame_size: at("CodeBlob", "_frame_size")?,
            blob_code,
            compile_id: at("nmethod", "_compile_id")?,
            compiled_method: at("nmethod", "_method")
                .or_else(|| at("CompiledMethod", "_method"))?,
            description: description(structs)?,
            position_bytes: structs.size("PcDesc")?,
            method_constant: at("Method", "_constMethod")?,
            constant_bytes: structs.size("ConstMethod")?,
            constant_pool: at("ConstMethod", "_constants")?,
            constant_code_size: at("ConstMethod", "_code_size")?,
            constant_name: at("ConstMethod", "_name_index")?,
            constant_flags: at("ConstMethod", "_flags")
                .or_else(|| at("ConstMethod", "_flags._flags"))?,
            pool_bytes: structs.size("ConstantPool")?,
            pool_holder: at("ConstantPool", "_pool_holder")?,
            source_file,
            class_name: at("Klass", "_name")?,
            symbol_length: at("Symbol", "_length")?,
            symbol_body: at("Symbol", "_body")?,
        })
    }
}

fn description(structs: &Structs) -> Option<Description> {
    let at = |member| structs.offset("nmethod", member);
    let in_blob = |member| structs.offset("CodeBlob", member);
    let positions = at("_scopes_pcs_offset")?;
    let Some(memory) = at("_immutable_data") else {
        return Some(Description::InBlob {
            positions,
            positions_end: at("_dependencies_offset")?,
            scopes: match structs.offset("CompiledMethod", "_scopes_data_begin") {
                Some(at_address) => Begin::Address(at_address),
                None => Begin::Offset(at("_scopes_data_offset")?),
            },
            methods: at("_metadata_offset")?,
        });
    };
    let methods = match in_blob("_mutable_data") {
        Some(memory) => Methods::Apart {
            memory,
            before: in_blob("_relocation_size")?,
        },
        None => Methods::InData {
            data: in_blob("_data_offset")?,
            methods: at("_metadata_offset")?,
        },
    };
    Some(Description::Apart {
        memory,
        positions,
        scopes: at("_scopes_data_offset")?,
        methods,
    })
}

#[cfg(any(test, feature = "fuzz"))]
impl Layout {
    /// That of Java 17.
    pub(super) const JAVA_17: Self = Self {
        packing: Packing::Old,
        frame_instruction: 64,
        block_head: 16,
        blob_name: 96,
        blob_size: 12,
        blob_frame_size: 28,
        blob_code: Begin::Address(32),
        compile_id: 304,
        compiled_method: 112,
        description: Description::InBlob {
            positions: 268,
            positions_end: 272,
            scopes: Begin::Address(120),
            methods: 260,
        },
        position_bytes: 16,
        method_constant: 8,
        constant_bytes: 48,
        constant_pool: 8,
        constant_code_size: 32,
        constant_name: 34,
        constant_flags: 28,
        pool_bytes: 72,
        pool_holder: 24,
        source_file: SourceFile::InPool(54),
        class_name: 24,
        symbol_length: 4,
        symbol_body: 6,
    };
}
