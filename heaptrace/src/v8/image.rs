//! Finds V8 in a file.
//!
//! Part of `v8`. The file is untrusted: an image that is found is sound, but a forged file gives itself wrong names.

use heaptrace_common::wire::V8Image;
use object::elf::SHT_DYNSYM;
use object::read::ReadRef;

use super::layouts::{Layout, layout, version};
use crate::elf::Elf;

/// The numbers of the version. Programs that let extensions be loaded, as Node does, export them.
const VERSION: [&str; 2] = [
    "_ZN2v88internal7Version6major_E",
    "_ZN2v88internal7Version6minor_E",
];

/// The beginning of those names, after a `_` that some have.
const VERSION_PREFIX: &str = "ZN2v88internal7Version";

/// The name of what V8 tells debuggers, and the value that it must have for a layout.
type Metadata = (&'static str, fn(&Layout) -> u16);

const METADATA: [Metadata; 7] = [
    // Objects without compressed pointers.
    ("v8dbg_TaggedSize", |_| 8),
    ("v8dbg_class_JSFunction__shared__SharedFunctionInfo", |it| {
        it.kernel.function_shared
    }),
    (
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
        |it| it.kernel.shared_name,
    ),
    (
        "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
        |it| it.kernel.shared_type,
    ),
    ("v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE", |it| {
        it.kernel.bytecode_type
    }),
    ("v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE", |it| it.scope_type),
    ("v8dbg_type_Script__SCRIPT_TYPE", |it| it.script_type),
];

/// The beginning of those names.
const METADATA_PREFIX: &str = "v8dbg_";

/// Numbers in the short form of an image.
pub const IMAGE_WORDS: usize = 1;

/// Finds V8 in an ELF file for x86-64. `None` if the file does not hold it, or holds a version or a build whose layout is not known.
pub fn find<'data, R: ReadRef<'data>>(data: R) -> Option<V8Image> {
    let elf = Elf::parse(data)?;
    let versions = elf.symbols(SHT_DYNSYM, VERSION_PREFIX, &VERSION);
    let number = |address: u64| {
        let bytes = elf.bytes(address, 4)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let part = |name| u16::try_from(number(versions.get(name)?.address)?).ok();
    let [major, minor] = VERSION.map(part);
    let version = version(major?, minor?);
    let layout = layout(version)?;
    let names = METADATA.map(|(name, _)| name);
    let metadata = elf.symbols(SHT_DYNSYM, METADATA_PREFIX, &names);
    // A list that lacks an entry says nothing against the layout; one that has no entry at all is none.
    let is_as_known = METADATA.iter().all(|(name, value)| {
        let Some(symbol) = metadata.get(name) else {
            return true;
        };
        number(symbol.address) == Some(value(&layout).into())
    });
    (is_as_known && !metadata.is_empty()).then_some(V8Image {
        version,
        layout: layout.kernel,
    })
}

/// Whether a file has V8, of whatever version.
pub fn is_in<'data, R: ReadRef<'data>>(data: R) -> bool {
    let versions = Elf::parse(data).map(|elf| elf.symbols(SHT_DYNSYM, VERSION_PREFIX, &VERSION));
    versions.is_some_and(|it| it.len() == VERSION.len())
}

/// Whether an image has the form that the kernel program relies on. An image from a cache or a reader may have any content.
pub fn is_sound(image: &V8Image) -> bool {
    // All offsets in objects are ours.
    layout(image.version).is_some_and(|layout| layout.kernel == image.layout)
}

/// The short form of an image. It has the version instead of the layout.
pub fn to_words(image: &V8Image) -> [u32; IMAGE_WORDS] {
    [image.version]
}

/// The image with this short form, if it is sound.
pub fn from_words([version]: [u32; IMAGE_WORDS]) -> Option<V8Image> {
    layout(version).map(|layout| V8Image {
        version,
        layout: layout.kernel,
    })
}
