//! The code of a file: which functions its calls lead to, and the symbols.
//!
//! Stage: types. Runs in a reader. x86-64 alone. Must not know debug information.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::read::elf::{SectionHeader as _, Sym as _};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::types::parsed::is_allocator;

/// Most symbols that are kept.
const MAX_SYMBOLS: usize = 4 << 20;

/// Most slots for functions of other files.
const MAX_SLOTS: usize = 1 << 20;

/// Most bytes of a function that are decoded.
const MAX_FUNCTION: u64 = 256 << 10;

/// Most bytes of code that are decoded for a question.
const MAX_DECODED: u64 = 64 << 20;

/// Functions of the C library that return their first argument.
const PASS_ON: [&str; 7] = [
    "memset", "memcpy", "memmove", "strcpy", "strncpy", "strcat", "strncat",
];

/// A symbol.
#[derive(Clone, Copy, Debug)]
struct Symbol<'d> {
    address: u64,
    size: u64,
    name: &'d str,
}

/// Code that a call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Callee<'d> {
    /// Its name in the table of symbols, as it is there.
    pub(super) name: &'d str,
    /// Its address, if it is in this file.
    pub(super) address: Option<u64>,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call<'d> {
    /// Where it returns to.
    pub(super) returns_to: u64,
    /// `None` if that is decided when it runs.
    pub(super) callee: Option<Callee<'d>>,
}

/// The code of a file.
pub(super) struct Code<'d> {
    file: object::File<'d>,
    /// By address.
    symbols: Vec<Symbol<'d>>,
    /// Names of functions in other files, by the slot that has their address.
    slots: HashMap<u64, &'d str>,
    calls: RefCell<HashMap<u64, Rc<Vec<Call<'d>>>>>,
    decoded: RefCell<u64>,
}

impl<'d> Code<'d> {
    /// The code of a file, with the symbols of its debug file.
    pub(super) fn of(own: &'d [u8], debug: Option<&'d [u8]>) -> Option<Self> {
        let file = object::File::parse(own).ok()?;
        if file.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let mut symbols = Vec::new();
        add_symbols(&file, &mut symbols);
        if let Some(debug) = debug
            && let Ok(debug) = object::File::parse(debug)
        {
            add_symbols(&debug, &mut symbols);
        }
        symbols.sort_unstable_by_key(|it| (it.address, it.size));
        Some(Self {
            slots: slots(&file),
            file,
            symbols,
            calls: RefCell::default(),
            decoded: RefCell::default(),
        })
    }

    /// The bytes from an address on.
    pub(super) fn bytes(&self, address: u64, most: usize) -> Option<&'d [u8]> {
        for segment in self.file.segments() {
            let Some(within) = address.checked_sub(segment.address()) else {
                continue;
            };
            let Ok(data) = segment.data() else {
                continue;
            };
            let Some(rest) = usize::try_from(within).ok().and_then(|at| data.get(at..)) else {
                continue;
            };
            if !rest.is_empty() {
                return rest.get(..most.min(rest.len()));
            }
        }
        None
    }

    /// The symbol that has an address: its name, its beginning and its size.
    pub(super) fn symbol(&self, address: u64) -> Option<(&'d str, u64, u64)> {
        let end = self.symbols.partition_point(|it| it.address <= address);
        let before = self.symbols.get(..end)?.iter().rev().take(16);
        let found = before.into_iter().find(|it| {
            let within = address - it.address;
            within < it.size || within == 0
        })?;
        Some((found.name, found.address, found.size))
    }

    /// Whether the code at an address is that of several functions, which a compiler or a linker merged because they are equal.
    pub(super) fn is_merged(&self, address: u64) -> bool {
        let end = self.symbols.partition_point(|it| it.address <= address);
        let before = self.symbols.get(..end).unwrap_or_default();
        let same = before.iter().rev().take_while(|it| it.address == address);
        // Constructors and destructors have two names each.
        let plain = |name: &str| name.replace("C1E", "C2E").replace("D1E", "D2E");
        let mut names = same.filter(|it| it.size > 0).map(|it| plain(it.name));
        let first = names.next();
        names.any(|it| Some(it) != first)
    }

    /// The name of the function whose address is in a slot.
    pub(super) fn slot(&self, address: u64) -> Option<&'d str> {
        self.slots.get(&address).copied()
    }

    /// The calls of a function.
    pub(super) fn calls(&self, begin: u64, end: u64) -> Rc<Vec<Call<'d>>> {
        if let Some(known) = self.calls.borrow().get(&begin) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.decode(begin, end));
        self.calls.borrow_mut().insert(begin, Rc::clone(&found));
        found
    }

    fn decode(&self, begin: u64, end: u64) -> Vec<Call<'d>> {
        let length = end.saturating_sub(begin).min(MAX_FUNCTION);
        let mut decoded = self.decoded.borrow_mut();
        *decoded += length;
        if *decoded > MAX_DECODED {
            return Vec::new();
        }
        let Some(bytes) = self.bytes(begin, usize::try_from(length).unwrap_or(0)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut decoder = Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) {
                found.push(Call {
                    returns_to: instruction.next_ip(),
                    callee: self.callee(&instruction),
                });
            }
        }
        found
    }

    /// The function that a call or a jump leads to.
    pub(super) fn callee(&self, instruction: &Instruction) -> Option<Callee<'d>> {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => self.at(instruction.near_branch_target()),
            OpKind::Memory if instruction.memory_base() == Register::RIP => {
                let slot = instruction.memory_displacement64();
                self.slot(slot).map(|name| Callee {
                    name,
                    address: None,
                })
            }
            _ => None,
        }
    }

    fn at(&self, address: u64) -> Option<Callee<'d>> {
        if let Some(name) = self.stub(address) {
            return Some(Callee {
                name,
                address: None,
            });
        }
        let end = self.symbols.partition_point(|it| it.address <= address);
        let before = self.symbols.get(..end)?.iter().rev().take(16);
        let exact: Vec<&Symbol<'d>> = before.take_while(|it| it.address == address).collect();
        // An allocator may have other names, too.
        let allocator = exact.iter().find(|it| allocates(it.name));
        let sized = || exact.iter().find(|it| it.size > 0);
        let named = allocator.or_else(sized).or(exact.first());
        Some(Callee {
            name: named.map_or("", |it| it.name),
            address: Some(address),
        })
    }

    /// Whether a function returns its first argument: copying functions of the C library do, and functions that do nothing else.
    pub(super) fn passes_on(&self, callee: Callee<'d>) -> bool {
        let name = callee.name.split('@').next().unwrap_or(callee.name);
        if PASS_ON.contains(&name.trim_start_matches('_').trim_end_matches("_chk")) {
            return true;
        }
        let bytes = callee.address.and_then(|it| self.bytes(it, 16));
        let mut decoder = Decoder::new(64, bytes.unwrap_or_default(), DecoderOptions::NONE);
        let mut instruction = decoder.decode();
        if instruction.code() == iced_x86::Code::Endbr64 {
            instruction = decoder.decode();
        }
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_register() == Register::RAX
            && instruction.op1_register() == Register::RDI
            && decoder.decode().flow_control() == FlowControl::Return
    }

    /// The function that a linkage stub jumps to.
    fn stub(&self, address: u64) -> Option<&'d str> {
        let bytes = self.bytes(address, 16)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        for _ in 0..2 {
            let instruction = decoder.decode();
            if instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::RIP
            {
                return self.slot(instruction.memory_displacement64());
            }
            if instruction.code() != iced_x86::Code::Endbr64 {
                return None;
            }
        }
        None
    }
}

fn add_symbols<'d>(file: &object::File<'d>, to: &mut Vec<Symbol<'d>>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if to.len() >= MAX_SYMBOLS {
            return;
        }
        let is_wanted = symbol.is_definition() && symbol.address() != 0;
        if is_wanted && let Ok(name) = symbol.name() {
            to.push(Symbol {
                address: symbol.address(),
                size: symbol.size(),
                name,
            });
        }
    }
}

/// The names of functions whose addresses the dynamic linker writes into slots. Large programs have a million relocations without a name, which are
/// passed over.
fn slots<'d>(file: &object::File<'d>) -> HashMap<u64, &'d str> {
    let mut slots = HashMap::new();
    let object::File::Elf64(file) = file else {
        return slots;
    };
    let endian = file.endian();
    let symbols = file.elf_dynamic_symbol_table();
    for section in file.elf_section_table().iter() {
        let Ok(Some((relocations, table))) = section.rela(endian, file.data()) else {
            continue;
        };
        if table != symbols.section() {
            continue;
        }
        let named = relocations.iter().filter(|it| it.r_sym(endian, false) != 0);
        for relocation in named.take(MAX_SLOTS - slots.len()) {
            let index = object::SymbolIndex(relocation.r_sym(endian, false) as usize);
            let symbol = symbols.symbol(index).ok();
            let name = symbol.and_then(|it| it.name(endian, symbols.strings()).ok());
            if let Some(name) = name.and_then(|it| std::str::from_utf8(it).ok()) {
                slots.insert(relocation.r_offset.get(endian), name);
            }
        }
    }
    slots
}

/// Whether a function returns new memory, by its name in a table of symbols.
pub(super) fn allocates(name: &str) -> bool {
    let plain = name.split('@').next().unwrap_or(name);
    is_allocator(plain)
        || plain.contains("__rust_alloc")
        || plain.contains("__rust_realloc")
        || plain.contains("__rdl_alloc")
        || plain.contains("__rdl_realloc")
}
