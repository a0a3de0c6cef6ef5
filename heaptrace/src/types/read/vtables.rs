//! Finds the class that a table of virtual functions belongs to, by what the file says of itself.
//!
//! Stage: types. Runs in a reader. The table has a pointer to the class's type information before its functions, which has the class's name, also in
//! stripped files. Pointers are those that the dynamic linker would write, by the file's relocations. Without type information, a symbol of the
//! table names the class. Must not know processes.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use object::elf::{R_X86_64_64, R_X86_64_COPY, R_X86_64_RELATIVE};
use object::{
    Architecture, Object as _, ObjectSegment as _, ObjectSymbol as _, ObjectSymbolTable as _,
    RelocationFlags, RelocationTarget, SymbolIndex,
};

use crate::reader::{decode, encode};
use crate::symbolize::{ElfFacts, Image, catch_panic, demangle_bare};
use crate::types::live_protocol::{ClassesAnswer, ClassesQuestion, MAX_PLACES};
use crate::types::people::cpp;
use crate::types::protocol::MAX_NAME;
use crate::types::text::first_argument;

/// Most bytes of a file.
const MAX_FILE: u64 = 2 << 30;

/// Most relocations and most symbols that are kept.
const MAX_RELOCATIONS: usize = 2 << 20;
const MAX_SYMBOLS: usize = 1 << 20;

/// Bytes of a pointer.
const WORD: u64 = 8;

/// Classes of type information: those of classes without bases, with one, and with several.
const OF_CLASSES: [&str; 3] = [
    "N10__cxxabiv117__class_type_infoE",
    "N10__cxxabiv120__si_class_type_infoE",
    "N10__cxxabiv121__vmi_class_type_infoE",
];

/// The reader's answer.
pub(crate) fn answer(question: &[u8], files: &[File]) -> Vec<u8> {
    let answered = || {
        let question: ClassesQuestion = decode(question)?;
        catch_panic(|| classes(&question, files.first()?)).flatten()
    };
    encode(&answered().unwrap_or_default())
}

fn classes(question: &ClassesQuestion, file: &File) -> Option<ClassesAnswer> {
    let facts = ElfFacts::read(file)?;
    let image = Image::of(file)?;
    if image.most_bytes > MAX_FILE {
        return None;
    }
    let data = Data::of(image.bytes())?;
    let places = question.offsets.iter().take(MAX_PLACES);
    let classes = places.map(|offset| {
        let table = facts.address(*offset);
        let name = table.and_then(|it| data.class(it)).unwrap_or_default();
        match name.len() <= MAX_NAME {
            true => name,
            false => String::new(),
        }
    });
    Some(classes.collect())
}

/// What a word holds when the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointer<'d> {
    /// An address in this file, or a number.
    Here(u64),
    /// So many bytes behind a symbol, and its address if it is in this file.
    Named(&'d str, i64, Option<u64>),
}

/// The words of a file.
struct Data<'d> {
    file: object::File<'d>,
    relocations: HashMap<u64, (Option<SymbolIndex>, i64)>,
    /// The addresses of tables whose words the dynamic linker copies from another file.
    copied: HashSet<u64>,
    /// The tables and type information that have symbols, by address, with their sizes.
    tables: Vec<(u64, u64, &'d str)>,
}

impl<'d> Data<'d> {
    fn of(bytes: &'d [u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        if file.architecture() != Architecture::X86_64 {
            return None;
        }
        let (mut relocations, mut copied) = (HashMap::new(), HashSet::new());
        for (at, relocation) in file
            .dynamic_relocations()
            .into_iter()
            .flatten()
            .take(MAX_RELOCATIONS)
        {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            if r_type == R_X86_64_COPY {
                copied.insert(at);
            }
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) if r_type == R_X86_64_64 => Some(index),
                _ if r_type == R_X86_64_RELATIVE => None,
                _ => continue,
            };
            relocations.insert(at, (symbol, relocation.addend()));
        }
        let all = file.symbols().chain(file.dynamic_symbols());
        let tables = all.filter(|it| it.is_definition()).filter_map(|symbol| {
            // Linkers write the version of a copied symbol behind its name.
            let name = symbol.name().ok()?.split('@').next()?;
            let is_table = ["_ZTV", "_ZTC", "_ZTI"]
                .iter()
                .any(|it| name.starts_with(it));
            is_table.then(|| (symbol.address(), symbol.size(), name))
        });
        let mut tables: Vec<_> = tables.take(MAX_SYMBOLS).collect();
        tables.sort_unstable();
        Some(Self {
            file,
            relocations,
            copied,
            tables,
        })
    }

    /// The class whose objects begin with this address of a table; `None` if there is no such table.
    fn class(&self, table: u64) -> Option<String> {
        if !table.is_multiple_of(WORD) {
            return None;
        }
        // Tables of bases that are not at the beginning of an object tell how far they are from it.
        let to_top = self.word(table.checked_sub(2 * WORD)?)?;
        if to_top != Pointer::Here(0) {
            return None;
        }
        let symbol = self.symbol(table.checked_sub(WORD)?);
        // Its words are not in this file.
        if symbol.is_some_and(|(begin, _)| self.copied.contains(&begin)) {
            return None;
        }
        let symbol = symbol.map(|it| it.1);
        // An object has such a table only while its constructor runs.
        if symbol.is_some_and(|it| it.starts_with("_ZTC")) {
            return None;
        }
        let named = symbol.and_then(|it| it.strip_prefix("_ZTV"));
        let mangled = match self.word(table - WORD)? {
            Pointer::Here(0) => return shown(named?),
            Pointer::Here(info) => self.type_name(info)?,
            Pointer::Named(_, 0, Some(info)) => self.type_name(info)?,
            Pointer::Named(name, 0, None) => name.strip_prefix("_ZTI")?,
            Pointer::Named(..) => return None,
        };
        match named {
            Some(named) if named != mangled => None,
            _ => shown(mangled),
        }
    }

    /// The mangled name in the type information of a class.
    fn type_name(&self, info: u64) -> Option<&'d str> {
        let kind = match self.word(info)? {
            Pointer::Named(name, 16, _) => name.strip_prefix("_ZTV")?,
            Pointer::Here(table) => {
                let begin = table.checked_sub(2 * WORD)?;
                let symbol = self.symbol(begin);
                let symbol = symbol.and_then(|(_, name)| name.strip_prefix("_ZTV"));
                match symbol {
                    Some(name) => name,
                    // In a stripped program that is linked statically, its own type information names it.
                    None => match self.word(table - WORD)? {
                        Pointer::Here(info) => self.name_in(info)?,
                        Pointer::Named(..) => return None,
                    },
                }
            }
            Pointer::Named(..) => return None,
        };
        OF_CLASSES.contains(&kind).then(|| self.name_in(info))?
    }

    /// The text that the second word of type information points to.
    fn name_in(&self, info: u64) -> Option<&'d str> {
        let text = match self.word(info.checked_add(WORD)?)? {
            Pointer::Here(at) => at,
            Pointer::Named(_, offset, Some(at)) => at.checked_add_signed(offset)?,
            Pointer::Named(..) => return None,
        };
        let bytes = self.bytes(text)?;
        let bytes = bytes.get(..bytes.len().min(MAX_NAME))?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(bytes.get(..end)?).ok()?;
        // Names of classes that other files can't refer to begin so.
        let name = name.strip_prefix('*').unwrap_or(name);
        let is_mangled = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        (!name.is_empty() && name.bytes().all(is_mangled)).then_some(name)
    }

    /// The table that has an address: its own address, and its symbol.
    fn symbol(&self, address: u64) -> Option<(u64, &'d str)> {
        let end = self.tables.partition_point(|it| it.0 <= address);
        let (begin, size, name) = self.tables.get(end.checked_sub(1)?)?;
        (address - begin < *size).then_some((*begin, *name))
    }

    /// What is at an address when the program runs.
    fn word(&self, address: u64) -> Option<Pointer<'d>> {
        let Some((symbol, addend)) = self.relocations.get(&address) else {
            let bytes = self.bytes(address)?.first_chunk()?;
            return Some(Pointer::Here(u64::from_le_bytes(*bytes)));
        };
        let Some(index) = symbol else {
            return Some(Pointer::Here(addend.cast_unsigned()));
        };
        let names = self.file.dynamic_symbol_table()?;
        let symbol = names.symbol_by_index(*index).ok()?;
        let address = symbol.is_definition().then(|| symbol.address());
        Some(Pointer::Named(symbol.name().ok()?, *addend, address))
    }

    /// The bytes from an address on, to the end of its segment.
    fn bytes(&self, address: u64) -> Option<&'d [u8]> {
        self.file.segments().find_map(|segment| {
            let within = address.checked_sub(segment.address())?;
            let data = segment.data().ok()?;
            let rest = data.get(usize::try_from(within).ok()?..)?;
            (!rest.is_empty()).then_some(rest)
        })
    }
}

/// The name of a class for people.
fn shown(mangled: &str) -> Option<String> {
    const INFO: &str = "typeinfo for ";
    let name = demangle_bare(&format!("_ZTI{mangled}"));
    let class = name.strip_prefix(INFO)?;
    (!class.is_empty()).then(|| named(class))
}

/// A class's name, or what `std::shared_ptr` uses the class for.
fn named(class: &str) -> String {
    let is = |names: [&str; 3]| names.iter().any(|it| class.starts_with(it));
    let with_object = is([
        "std::_Sp_counted_ptr_inplace<",
        "std::__1::__shared_ptr_emplace<",
        "std::__shared_ptr_emplace<",
    ]);
    let without = is([
        "std::_Sp_counted_ptr<",
        "std::_Sp_counted_deleter<",
        "std::__1::__shared_ptr_pointer<",
    ]);
    match first_argument(class) {
        Some(object) if with_object => format!("std::shared_ptr<{}>", cpp(object)),
        Some(pointer) if without && pointer.ends_with('*') => {
            let object = pointer.trim_end_matches('*').trim_end();
            format!("std::shared_ptr<{}> (control block)", cpp(object))
        }
        _ => cpp(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the blocks of shared pointers are named after what they hold, and other classes after themselves.
    #[test]
    fn blocks_of_shared_pointers_are_named() {
        for (class, expected) in [
            (
                "std::_Sp_counted_ptr_inplace<shop::Order, std::allocator<shop::Order>, (__gnu_cxx::_Lock_policy)2>",
                "std::shared_ptr<shop::Order>",
            ),
            (
                "std::_Sp_counted_ptr<shop::Order*, (__gnu_cxx::_Lock_policy)2>",
                "std::shared_ptr<shop::Order> (control block)",
            ),
            (
                "std::__1::__shared_ptr_emplace<int, std::__1::allocator<int> >",
                "std::shared_ptr<int>",
            ),
            ("shop::Box<long>", "shop::Box<long>"),
        ] {
            assert_eq!(named(class), expected);
        }
        assert_eq!(shown("N4shop5OrderE").as_deref(), Some("shop::Order"));
        assert_eq!(shown("no name"), None);
    }
}
