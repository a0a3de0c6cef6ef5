//! Which linkage slots of a process lead to its allocator, and which of the allocator's functions get an entry in the
//! fast path's code.
//!
//! Stage: probes. Reads the process's memory, and writes nothing. Must not know how files are parsed, nor who writes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use thiserror::Error;

use super::code::{self, Function, Way};
use super::earlier;
use super::eligible::{self, Refusal};
use super::forwarders;
use super::messages::Redirect;
use super::patch::Patch;
use super::records;
use super::slots::Slots;
use super::stubs::{self, Stub, Stubs};
use crate::open::FileId;
use crate::probes::allocators::ProbedFunction;
use crate::proc::maps::{self, Mapping};
use crate::proc::{contents, processes};

/// How far from the allocator the code may be: jumps reach 2 GiB, and the allocator's own data is near it.
const MOST_DISTANCE: u64 = 1 << 30;

/// Free addresses that are left on both sides of the code.
const MARGIN: u64 = 1 << 20;

/// Addresses below the first thread's stack that the kernel leaves free for it, at least.
const STACK_ROOM: u64 = 128 << 20;

/// Most places that are tried.
const MOST_PLACES: usize = 8;

/// A breakpoint instruction.
const BREAKPOINT: u8 = 0xcc;

/// A file that a process has mapped.
#[derive(Debug)]
pub struct Module {
    /// Its identity.
    pub id: FileId,
    /// Its path in the process.
    pub path: String,
    /// The file.
    pub file: File,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
}

/// A slot that leads to an allocator function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The function's number in [`code::FUNCTIONS`].
    pub function: usize,
    /// Address of the slot.
    pub at: u64,
    /// Its value: the address of the function, or of code that only jumps there.
    pub value: u64,
    /// The address of the function.
    pub reached: u64,
}

/// What can be done for a process.
#[derive(Debug, Default)]
pub struct Plan {
    /// The module with the allocator that the process calls: an index in the modules.
    pub provider: usize,
    /// The functions with an entry.
    pub functions: Vec<Function>,
    /// The slots that lead to them.
    pub slots: Vec<Linked>,
    /// The linkage stubs that lead to them by slots which keep their values.
    pub stubs: Stubs,
    /// Where the code may be mapped.
    pub places: Vec<u64>,
    /// The mapping of an earlier run, with the same code.
    pub old: Option<u64>,
    /// The changes of stubs that are recorded there.
    pub records: Vec<Patch>,
}

impl Plan {
    /// All changes of stubs that must be recorded, if these are made.
    pub fn recorded(&self, redirects: &[Redirect]) -> Vec<Patch> {
        records::merge(self.records.clone(), redirects.iter().map(|it| it.patch))
    }

    /// What must be written into a mapping at `base`, and where. `None` if a function is too far away from there.
    pub fn contents(
        &self,
        base: u64,
        cookie: u64,
        data: Vec<u8>,
        way: Way,
    ) -> Option<Vec<(u64, Vec<u8>)>> {
        let code = match self.old {
            // Threads may be executing the code that is there.
            Some(old) if old == base => (code::cookie_at(base), cookie.to_le_bytes().to_vec()),
            _ => (base, code::code(base, cookie, &self.functions)?),
        };
        let mut contents = vec![(code::mean_at(base), data), code];
        if way == Way::Exact {
            contents.push((code::mark_at(base), 1_u64.to_le_bytes().to_vec()));
        }
        Some(contents)
    }
}

/// Why nothing can be done for a process.
#[derive(Debug, Error)]
pub enum Unplanned {
    /// Its memory can't be read, most often because it has ended.
    #[error("its memory can't be read: {0}")]
    Unreadable(std::io::Error),
    /// It can't have a fast path.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The beginning of `malloc` or `free` can't be copied, or another tracer's breakpoint is there.
    #[error("the beginning of its {0} can't be copied")]
    NotCopied(&'static str),
    /// There are no free addresses near the allocator.
    #[error("there is no room near its allocator")]
    NoRoom,
}

/// The files that a process has mapped.
pub fn modules(pid: u32) -> Vec<Module> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).unwrap_or_default();
    let mut modules: Vec<Module> = Vec::new();
    let mut known: HashMap<((u32, u32), u64), usize> = HashMap::new();
    for mapping in maps::parse(&text).filter(|it| it.inode != 0) {
        let key = (mapping.device, mapping.inode);
        if let Some(module) = known.get(&key).and_then(|index| modules.get_mut(*index)) {
            module.mappings.push(mapping);
        } else if let Ok(opened) = maps::open_mapped(thread, &mapping) {
            known.insert(key, modules.len());
            modules.push(Module {
                id: opened.identity.file,
                path: mapping.path.clone(),
                file: opened.file,
                mappings: vec![mapping],
            });
        }
    }
    modules
}

impl Module {
    /// Whether an address of the process is in the module.
    pub fn contains(&self, address: u64) -> bool {
        self.mappings
            .iter()
            .any(|it| (it.start..it.end).contains(&address))
    }

    /// The address of an offset of the file that is mapped as code.
    fn address(&self, offset: u64) -> Option<u64> {
        self.mappings
            .iter()
            .filter(|it| it.executable)
            .find_map(|it| {
                let behind = offset.checked_sub(it.offset)?;
                (behind < it.end - it.start).then_some(it.start + behind)
            })
    }
}

/// An allocator function of a module, in the process.
struct Candidate<'a> {
    module: usize,
    number: usize,
    address: u64,
    function: &'a ProbedFunction,
}

/// Plans the fast path of a process: `modules` with their slots, and the probed functions of each file.
pub fn plan<'a>(
    pid: u32,
    way: Way,
    modules: &[(Module, Arc<Slots>)],
    probed: impl Fn(FileId) -> &'a [ProbedFunction],
) -> Result<Plan, Unplanned> {
    eligible::check_library(pid, modules.iter().map(|(_, slots)| &**slots))?;
    let memory = contents::open(pid).map_err(Unplanned::Unreadable)?;
    let mappings = maps::of(pid).unwrap_or_default();
    let candidates = candidates(modules, probed);
    let by_address: HashMap<u64, Vec<&Candidate<'_>>> =
        candidates.iter().fold(HashMap::new(), |mut all, it| {
            all.entry(it.address).or_default().push(it);
            all
        });
    // The value of a slot, and the function of this name that a call of it reaches.
    let leads_to = |slot: u64, name: u16| {
        let of_name = |at: &u64| {
            let mut all = by_address.get(at)?.iter();
            all.find(|it| it.number == usize::from(name)).copied()
        };
        let value = read_word(&memory, slot)?;
        let code = |at| read(&memory, at);
        // Another word may be a variable by which the program chooses.
        let constant = |at| read_word(&memory, at).filter(|_| is_constant(&mappings, at));
        let reached = || forwarders::reached(value, code, constant);
        let found = of_name(&value).or_else(|| reached().find_map(|at| of_name(&at)))?;
        Some((value, found))
    };
    let mut linked: Vec<(usize, Linked)> = Vec::new();
    let mut stubs: Vec<(usize, Stub)> = Vec::new();
    for (module, slots) in modules {
        for slot in slots.in_process(&module.mappings) {
            if let Some((value, candidate)) = leads_to(slot.address, slot.name) {
                let slot = Linked {
                    function: candidate.number,
                    at: slot.address,
                    value,
                    reached: candidate.address,
                };
                linked.push((candidate.module, slot));
            }
        }
        for stub in slots.stubs_in_process(&module.mappings) {
            let slot = stub.stub.slot;
            if let Some((_, candidate)) = leads_to(slot, stub.stub.name)
                && let Some(jump) = stubs::jump(&module.file, &memory, &stub)
            {
                let stub = Stub {
                    function: candidate.number,
                    slot,
                    jump,
                };
                stubs.push((candidate.module, stub));
            }
        }
    }
    let called = linked.iter().map(|(module, it)| (*module, it.function));
    let called = called.chain(stubs.iter().map(|(module, it)| (*module, it.function)));
    let provider = provider(called).ok_or(Refusal::NoSlots)?;
    let (owner, _) = modules.get(provider).ok_or(Refusal::NoSlots)?;
    let functions: BTreeMap<usize, Function> = candidates
        .iter()
        .filter(|it| it.module == provider && is_untouched(owner, &memory, it))
        .filter_map(|it| {
            let function = Function {
                number: it.number,
                address: it.address,
                skipped: it.function.skipped.clone()?,
                may_call_others: code::may_call_others(it.number, &it.function.kind),
                allocator: it.function.code_at(it.address),
                entry_program: it.function.hook.entry,
            };
            Some((it.number, function))
        })
        .collect();
    for needed in ["malloc", "free"] {
        let number = code::FUNCTIONS.iter().position(|name| *name == needed);
        if !number.is_some_and(|number| functions.contains_key(&number)) {
            return Err(Unplanned::NotCopied(needed));
        }
    }
    let is_fast = |module: usize, function: usize| {
        let function = functions.get(&function);
        module == provider && function.is_some_and(|it| it.has_entry(way))
    };
    // The allocator's own calls of its functions belong to calls that are recorded already.
    let is_own = |address: u64| way == Way::Exact && owner.contains(address);
    linked.retain(|(module, it)| is_fast(*module, it.function) && !is_own(it.at));
    stubs.retain(|(module, it)| is_fast(*module, it.function) && !is_own(it.jump.address));
    let mut slots: Vec<Linked> = linked.into_iter().map(|(_, it)| it).collect();
    // Frees first: a block that the code samples must have a free that it sees.
    slots.sort_by_key(|it| (!code::frees(it.function), it.at));
    let functions: Vec<Function> = functions.into_values().collect();
    let mut earlier = earlier::find(pid).into_iter();
    let old = earlier.find(|it| it.is_for(&functions));
    let places = places(&mappings, owner);
    if places.is_empty() && old.is_none() {
        return Err(Unplanned::NoRoom);
    }
    let stubs = stubs.into_iter().map(|(_, it)| it).collect();
    let stubs = match processes::heap_start(pid) {
        Some(heap) => Stubs::new(stubs, way, &mappings, heap, old.as_ref()),
        None => Stubs::default(),
    };
    Ok(Plan {
        provider,
        functions,
        slots,
        stubs,
        places,
        old: old.as_ref().map(|it| it.base),
        records: old.map_or_else(Vec::new, |it| it.records().to_vec()),
    })
}

/// The allocator functions of all modules that the code has entries for.
fn candidates<'a>(
    modules: &[(Module, Arc<Slots>)],
    probed: impl Fn(FileId) -> &'a [ProbedFunction],
) -> Vec<Candidate<'a>> {
    let mut candidates = Vec::new();
    for (index, (module, _)) in modules.iter().enumerate() {
        for function in probed(module.id) {
            let Some(address) = module.address(function.offset) else {
                continue;
            };
            for (number, name) in code::FUNCTIONS.iter().enumerate() {
                if function.names.iter().any(|it| it == name) {
                    candidates.push(Candidate {
                        module: index,
                        number,
                        address,
                        function,
                    });
                }
            }
        }
    }
    candidates
}

/// The module that most slots and stubs of `malloc` lead to, or else most of all. Each is given by its module and function.
fn provider(called: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (module, function) in called {
        let count = counts.entry(module).or_default();
        count.0 += usize::from(function == 0);
        count.1 += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(module, _)| module)
}

/// Whether the beginning of a function is as in its file, except for the breakpoint of its own probe. Another tracer's
/// probe would miss the calls that the copy makes.
fn is_untouched(module: &Module, memory: &File, candidate: &Candidate<'_>) -> bool {
    let Some(skipped) = &candidate.function.skipped else {
        return false;
    };
    let length = skipped.resume as usize;
    let (mut there, mut in_file) = (vec![0; length], vec![0; length]);
    let is_read = memory.read_exact_at(&mut there, candidate.address).is_ok()
        && module
            .file
            .read_exact_at(&mut in_file, candidate.function.offset)
            .is_ok();
    let probe = candidate.function.placed.offset as usize;
    is_read
        && skipped.is_of(&in_file)
        && there
            .iter()
            .zip(&in_file)
            .enumerate()
            .all(|(at, (there, in_file))| there == in_file || at == probe && *there == BREAKPOINT)
}

/// Free places for the code, the nearest to a module first: below it, and above.
fn places(mappings: &[Mapping], module: &Module) -> Vec<u64> {
    let all: Vec<(u64, u64)> = mappings.iter().map(with_its_room).collect();
    let Some(near) = module.mappings.iter().find(|it| it.executable) else {
        return Vec::new();
    };
    free_places(&all, near.start)
}

/// Where a mapping begins and ends; the first thread's stack with the addresses below it that it may grow over.
fn with_its_room(mapping: &Mapping) -> (u64, u64) {
    let room = match mapping.path.as_str() {
        "[stack]" => STACK_ROOM,
        _ => 0,
    };
    (mapping.start.saturating_sub(room), mapping.end)
}

/// The same, for mappings in the order of their addresses.
fn free_places(all: &[(u64, u64)], near: u64) -> Vec<u64> {
    let needed = earlier::SIZES.total();
    let mut places: Vec<u64> = all
        .windows(2)
        .filter_map(|pair| {
            let (&[(_, end), (start, _)], gap) = (pair.try_into().ok()?, needed + 2 * MARGIN);
            // Just below the next mapping. The kernel puts new mappings there, too: hence the margin.
            (start.checked_sub(end)? >= gap).then(|| start - needed - MARGIN)
        })
        .filter(|place| place.abs_diff(near) < MOST_DISTANCE)
        .collect();
    places.sort_by_key(|place| place.abs_diff(near));
    places.truncate(MOST_PLACES);
    places
}

/// Whether an address is in memory that the process can't write now, as the slots of a file whose functions are bound at its start.
fn is_constant(mappings: &[Mapping], at: u64) -> bool {
    let found = mappings.iter().find(|it| (it.start..it.end).contains(&at));
    found.is_some_and(|it| it.permissions[1] != b'w')
}

fn read_word(memory: &File, at: u64) -> Option<u64> {
    read(memory, at).map(u64::from_le_bytes)
}

fn read<const N: usize>(memory: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the code is placed between mappings, near the allocator, and never where the stack may grow.
    #[test]
    fn places_are_free() {
        let places = |stack: &str| {
            let text = format!(
                "7f0000000000-7f0000100000 r-xp 00000000 08:01 7 /lib/libc.so.6\n\
                 7f0001000000-7f0001001000 rw-p 00000000 00:00 0 \n\
                 {stack} rw-p 00000000 00:00 0 [stack]\n"
            );
            let mappings: Vec<Mapping> = maps::parse(&text).collect();
            let all: Vec<(u64, u64)> = mappings.iter().map(with_its_room).collect();
            free_places(&all, mappings[0].start)
        };
        let below = |end: u64| end - MARGIN - earlier::SIZES.total();
        let between = below(0x7f00_0100_0000);
        assert_eq!(places("7f0005000000-7f0005021000"), [between]);
        assert_eq!(
            places("7f0010000000-7f0010021000"),
            [between, below(0x7f00_1000_0000 - STACK_ROOM)]
        );
    }
}
