//! Reads the needed symbols of a file: from its own tables, from its debug file, and from a compressed table in the file
//! (mini debuginfo).
//!
//! Stage: probes. Runs in a reader. All of these may contain anything, so everything that is read or stored has a bound. Must
//! not know what the names mean.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use object::elf::{STT_FUNC, STT_GNU_IFUNC};
use object::{Object as _, ObjectSection as _, ReadRef, SymbolFlags};

/// Most symbols of a table that are read.
const MAX_SYMBOLS: usize = 8 << 20;

/// Most symbols that are stored.
const MAX_KEPT: usize = 1 << 16;

/// Longest name that is stored.
const MAX_NAME: usize = 256;

/// Most bytes of a compressed table.
const MAX_PACKED: u64 = 64 << 20;

/// Most bytes of that table after decompression.
const MAX_UNPACKED: u64 = 256 << 20;

/// Most memory that decompression may use, in KiB.
const MAX_UNPACKING_KIB: u32 = 128 << 10;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Its virtual address in the file.
    pub(super) address: u64,
    /// Its size; 0 if unknown.
    pub(super) size: u64,
    /// Whether it selects the function to call when the program starts (IFUNC).
    pub(super) is_indirect: bool,
}

/// Functions by name.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    by_name: HashMap<String, Symbol>,
    exported: HashSet<String>,
}

impl Symbols {
    /// Reads the symbols with wanted names from a file's own tables.
    pub(super) fn read<'a, R: ReadRef<'a>>(
        image: &object::File<'a, R>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let mut symbols = Self::default();
        // Dynamic symbols come first: they are the functions that other files call.
        symbols.add(image.dynamic_symbols(), &is_wanted);
        symbols.exported = symbols.by_name.keys().cloned().collect();
        symbols.add(image.symbols(), &is_wanted);
        symbols
    }

    fn add<'a, S: object::ObjectSymbol<'a>>(
        &mut self,
        table: impl Iterator<Item = S>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) {
        for symbol in table.take(MAX_SYMBOLS) {
            let Ok(name) = symbol.name_bytes() else {
                continue;
            };
            if name.len() > MAX_NAME || self.by_name.len() >= MAX_KEPT || symbol.is_undefined() {
                continue;
            }
            // The name may include a version.
            let name = name.split(|byte| *byte == b'@').next().unwrap_or(name);
            if !is_wanted(name) {
                continue;
            }
            let kind = match symbol.flags() {
                SymbolFlags::Elf { st_info, .. } => st_info.st_type(),
                _ => continue,
            };
            if kind != STT_FUNC && kind != STT_GNU_IFUNC {
                continue;
            }
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            self.by_name.entry(name.to_owned()).or_insert(Symbol {
                address: symbol.address(),
                size: symbol.size(),
                is_indirect: kind == STT_GNU_IFUNC,
            });
        }
    }

    /// Adds the symbols of the file's debug file.
    pub(super) fn add_debug_file<'a, R: ReadRef<'a>>(
        &mut self,
        debug: &object::File<'a, R>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) {
        self.add(debug.symbols(), is_wanted);
    }

    /// Adds the symbols of the compressed table in the file, if it has one.
    pub(super) fn add_packed<'a, R: ReadRef<'a>>(
        &mut self,
        image: &object::File<'a, R>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) {
        let Some(bytes) = unpacked(image) else {
            return;
        };
        if let Ok(packed) = object::File::parse(&*bytes) {
            self.add(packed.symbols(), is_wanted);
        }
    }

    /// The symbol with a name.
    pub(super) fn get(&self, name: &str) -> Option<Symbol> {
        self.by_name.get(name).copied()
    }

    /// Whether there is a symbol with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether the file exports a function with this name.
    pub(super) fn exports(&self, name: &str) -> bool {
        self.exported.contains(name)
    }

    /// All names, in no order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// Decompresses `.gnu_debugdata`, an ELF file that has only symbols.
pub(crate) fn unpacked<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> Option<Vec<u8>> {
    let section = image.section_by_name(".gnu_debugdata")?;
    if section.size() > MAX_PACKED {
        return None;
    }
    let packed = section.data().ok()?;
    let mut bytes = Vec::new();
    let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, MAX_UNPACKING_KIB);
    reader.take(MAX_UNPACKED).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
