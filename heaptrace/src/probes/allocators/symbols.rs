//! Symbols that may matter, from wherever a file has them.
//!
//! Stage: probes. Its own tables, a separate debug file and a table that is packed into the file
//! (mini debuginfo). All of it may be anything: what is read and kept has bounds. Knows nothing of
//! what the names mean.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use object::elf::{STT_FUNC, STT_GNU_IFUNC};
use object::{Object as _, ObjectSection as _, ReadRef, SymbolFlags};

/// Most symbols of a table that are looked at.
const MAX_SYMBOLS: usize = 8 << 20;

/// Most symbols that are kept.
const MAX_KEPT: usize = 1 << 16;

/// Longest name that is kept.
const MAX_NAME: usize = 256;

/// Most bytes of a packed table, before and after unpacking.
const MAX_PACKED: u64 = 64 << 20;
const MAX_UNPACKED: u64 = 256 << 20;

/// Most memory that its unpacking may take.
const MAX_UNPACKING_KIB: u32 = 128 << 10;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Its address in the file's own numbering.
    pub(super) address: u64,
    /// Its size, 0 where that is not told.
    pub(super) size: u64,
    /// Whether it is a function that returns which function to call.
    pub(super) is_indirect: bool,
}

/// Functions by name.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    by_name: HashMap<String, Symbol>,
    exported: HashSet<String>,
}

impl Symbols {
    /// The symbols of a file's own tables whose names are wanted.
    pub(super) fn read<'a, R: ReadRef<'a>>(
        image: &object::File<'a, R>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let mut symbols = Self::default();
        // What the dynamic linker knows comes first: it is what others call.
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
            // A version may be part of the name.
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

    /// Adds those of the file that has this one's debug information.
    pub(super) fn add_debug_file<'a, R: ReadRef<'a>>(
        &mut self,
        debug: &object::File<'a, R>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) {
        self.add(debug.symbols(), is_wanted);
    }

    /// Adds those of the table that is packed into the file, if there is one.
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

    /// A symbol by its name.
    pub(super) fn get(&self, name: &str) -> Option<Symbol> {
        self.by_name.get(name).copied()
    }

    /// Whether there is a symbol of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether other files can call a function of this name.
    pub(super) fn exports(&self, name: &str) -> bool {
        self.exported.contains(name)
    }

    /// All names, in no order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// The content of `.gnu_debugdata`: an ELF file with nothing but symbols.
fn unpacked<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> Option<Vec<u8>> {
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
