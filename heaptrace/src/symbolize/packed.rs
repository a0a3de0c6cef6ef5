//! Names from a compressed table of symbols (mini debuginfo, `.gnu_debugdata`), and from the tables beside it.
//!
//! Stage: symbolize. Runs in a reader. Distributions put such a table into stripped programs. Must not know other sources of names.

use std::fs::File;

use object::{Object as _, ObjectSymbol as _, ReadCache, ReadRef, SymbolKind};

use super::demangle::demangle;
use super::protocol::FoundFrame;
use crate::probes::allocators::unpacked;

/// Most functions of a file that are kept.
const MAX_FUNCTIONS: usize = 4 << 20;

/// Most bytes of their names.
const MAX_NAMES: usize = 256 << 20;

/// A function with a symbol.
#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    end: u64,
    /// Where its name is in all names.
    name: (usize, usize),
}

/// The functions of a file, by address.
#[derive(Debug, Default)]
pub(super) struct PackedSymbols {
    functions: Vec<Function>,
    names: Vec<u8>,
}

impl PackedSymbols {
    /// Reads the tables of a file; `None` if it is no ELF file.
    pub(super) fn of(file: &File) -> Option<Self> {
        let data = ReadCache::new(file);
        let image = object::File::parse(&data).ok()?;
        let mut all = Self::default();
        all.add(image.dynamic_symbols());
        if let Some(bytes) = unpacked(&image)
            && let Ok(packed) = object::File::parse(&*bytes)
        {
            all.add(packed.symbols());
        }
        all.functions.sort_by_key(|function| function.start);
        Some(all)
    }

    fn add<'d, R: ReadRef<'d>>(&mut self, symbols: object::read::SymbolIterator<'d, '_, R>) {
        for symbol in symbols.filter(|it| it.kind() == SymbolKind::Text && it.size() > 0) {
            let name = symbol.name_bytes().unwrap_or_default();
            let begin = self.names.len();
            if self.functions.len() >= MAX_FUNCTIONS || begin + name.len() > MAX_NAMES {
                return;
            }
            self.names.extend(name);
            self.functions.push(Function {
                start: symbol.address(),
                end: symbol.address().saturating_add(symbol.size()),
                name: (begin, self.names.len()),
            });
        }
    }

    /// The function at an address, without its line.
    pub(super) fn frames(&self, address: u64) -> Vec<FoundFrame> {
        let behind = self.functions.partition_point(|it| it.start <= address);
        let before = self.functions.get(..behind).unwrap_or_default();
        // Functions don't overlap, but several names can have one address.
        let found = before.last().and_then(|last| {
            let alike = before.iter().rev().take_while(|it| it.start == last.start);
            alike.filter(|it| address < it.end).last()
        });
        let name = found.and_then(|it| self.names.get(it.name.0..it.name.1));
        let named = name.map(|name| FoundFrame {
            function: demangle(&String::from_utf8_lossy(name)),
            file: None,
            line: 0,
            inlined: false,
        });
        named.into_iter().collect()
    }
}
