//! The fast path's code for one process: the fixed part (`shim.s`), the tables that it reads, and the copied beginnings of
//! the process's allocator functions.
//!
//! Stage: probes. Pure: it must not know how the code gets into a process.

use heaptrace_common::hints::{
    ADDRESS_SLOTS, ALIGNMENT_SHIFT, COUNT_SHIFT, HASH_FACTOR, HINT_SLOTS, PAGE_SHIFT, PAGE_SLOTS,
    PASSED_AT, PASSED_FROM,
};

use super::patch::Patch;
use super::records;
use crate::probes::placement::{MOST_SKIPPED, Skipped, displacement};

/// The functions that have an entry in the code, by their number there.
pub const FUNCTIONS: [&str; 20] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
];

/// Whether the function with this number gives a block back: its slots are written first, and put back last.
pub fn frees(function: usize) -> bool {
    frees_only(function) || FUNCTIONS.get(function) == Some(&"realloc")
}

/// Whether it does nothing else.
pub fn frees_only(function: usize) -> bool {
    FUNCTIONS
        .get(function)
        .is_some_and(|name| *name == "free" || name.starts_with("_Zd"))
}

/// Whether the function with this number may call another probed one that allocates. glibc's share code that is not probed, but
/// its `realloc` can't grow some blocks without its `malloc`, and those that align call it for what it aligns anyway.
pub fn may_call_others(function: usize, allocator: &str) -> bool {
    let stands_alone =
        ["malloc", "calloc"].contains(&FUNCTIONS.get(function).copied().unwrap_or(""));
    !(frees_only(function) || allocator == "glibc" && stands_alone)
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bytes of the code, of the tables that it reads, and of the copies.
pub const CODE_BYTES: usize = 3 * PAGE;

/// Bytes of the memory that the code and the agent change.
pub const DATA_BYTES: usize = PAGE;

/// Bytes of the memory that a forked child gets empty.
pub const MARK_BYTES: usize = PAGE;

/// Bytes of the hint array.
pub const HINT_BYTES: usize = HINT_SLOTS as usize * 8;

/// Where the table of logarithms is.
const LOGARITHMS: usize = PAGE;

/// Intervals from 1 to 2 in that table.
const INTERVALS: usize = 256;

/// Where the copied beginnings are.
const PASSES: usize = LOGARITHMS + 8 * INTERVALS;

/// Bytes from one to the next.
const PASS_BYTES: usize = 128;

/// Where the addresses of the functions are, by their numbers.
const ADDRESSES: usize = PASSES + PASS_BYTES * FUNCTIONS.len();

/// Where the run's cookie is.
const COOKIE: usize = ADDRESSES + 8 * FUNCTIONS.len();

/// Where the addresses are at which the allocator's code begins and ends.
const ALLOCATOR: usize = COOKIE + 8;

/// Where the mean between samples is.
const MEAN: usize = CODE_BYTES;

/// Where the number is that the first countdowns of threads are drawn from.
const SEED: usize = CODE_BYTES + 8;

/// Where the process id of the run's agent is, and behind it when the agent started.
const OWNER: usize = CODE_BYTES + 16;

/// Where the records of changed stubs are.
const RECORDS: usize = CODE_BYTES + 64;

/// Where the hint array is.
const HINTS: usize = CODE_BYTES + DATA_BYTES;

/// Where the mark is. Its page is the process's own: in a forked child it is 0 again.
const MARK: usize = HINTS + HINT_BYTES;

/// Bytes of a jump to an address within 2 GiB.
const JUMP_BYTES: usize = 5;

/// Notes the return address and the stack pointer of a call, before the copy of a function that may call another one, or end in
/// its tail call: that would look like a call of its own. `mov rax, [rsp]`, `mov fs:[PASSED_FROM], rax`,
/// `mov fs:[PASSED_AT], rsp`; `xor r10d, r10d`, so that what an earlier call left there is not taken for a decision about
/// the other call.
const NOTE: [u8; 25] = [
    0x48,
    0x8b,
    0x04,
    0x24,
    0x64,
    0x48,
    0x89,
    0x04,
    0x25,
    PASSED_FROM as u8,
    0,
    0,
    0,
    0x64,
    0x48,
    0x89,
    0x24,
    0x25,
    PASSED_AT as u8,
    0,
    0,
    0,
    0x45,
    0x31,
    0xd2,
];
const _: () = assert!(PASSED_AT <= u8::MAX as u64 && PASSED_FROM < PASSED_AT);

const _: () = assert!(RECORDS + records::RECORD * records::MOST <= CODE_BYTES + DATA_BYTES);
const _: () = assert!(ALLOCATOR + 16 <= CODE_BYTES);
const _: () = assert!(NOTE.len() + MOST_SKIPPED + JUMP_BYTES <= PASS_BYTES);

std::arch::global_asm!(
    include_str!("shim.s"),
    PASSES = const PASSES,
    PASS_BYTES = const PASS_BYTES,
    FIXED = const LOGARITHMS,
    FUNCTIONS = const ADDRESSES,
    COOKIE = const COOKIE,
    ALLOCATOR = const ALLOCATOR,
    PASSED_FROM = const PASSED_FROM,
    LOGARITHMS = const LOGARITHMS,
    MEAN = const MEAN,
    SEED = const SEED,
    HINTS = const HINTS,
    MARK = const MARK,
    PAGE_SHIFT = const PAGE_SHIFT,
    PAGE_SLOTS = const PAGE_SLOTS,
    ALIGNMENT_SHIFT = const ALIGNMENT_SHIFT,
    HASH_FACTOR = const HASH_FACTOR,
    ADDRESS_BITS = const ADDRESS_SLOTS.trailing_zeros(),
    COUNT_SHIFT = const COUNT_SHIFT,
);

unsafe extern "C" {
    static heaptrace_fast_begin: u8;
    static heaptrace_fast_end: u8;
    static heaptrace_fast_entries: [u64; FUNCTIONS.len()];
    static heaptrace_fast_recorded: [[u64; 2]; FUNCTIONS.len()];
}

/// What the code does with a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// It decides which calls are sampled; these have their functions' own probes.
    #[default]
    Sampled,
    /// Every call is recorded, by a probe in the code.
    Exact,
}

/// A probe in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The function's name.
    pub function: &'static str,
    /// Offset in the file that the code is mapped from.
    pub offset: u64,
    /// The kernel program.
    pub program: &'static str,
}

/// An allocator function of a process.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its number in [`FUNCTIONS`].
    pub number: usize,
    /// Its address in the process.
    pub address: u64,
    /// Its beginning up to the probe.
    pub skipped: Skipped,
    /// Whether it may end in a tail call of another allocating function.
    pub may_call_others: bool,
    /// Where the allocator's code begins and ends.
    pub allocator: (u64, u64),
    /// The kernel program on its entry.
    pub entry_program: &'static str,
}

/// Where the entry for a function is in the code that is mapped at `base`; `None` if it has none.
pub fn entry(base: u64, number: usize, way: Way) -> Option<u64> {
    let offset = match way {
        // SAFETY: a table of numbers, which the assembler wrote.
        Way::Sampled => unsafe { &heaptrace_fast_entries }.get(number).copied(),
        Way::Exact => recorded(number).map(|[entry, _]| entry),
    };
    offset.map(|offset| base + offset)
}

/// Where a function's entry and probe are that record every call.
fn recorded(number: usize) -> Option<[u64; 2]> {
    // SAFETY: as above.
    let recorded = unsafe { &heaptrace_fast_recorded };
    let of_one = recorded.get(number).copied();
    of_one.filter(|[entry, _]| *entry != 0)
}

/// The program for the probe that records a call of the function with this number, if it has one.
fn program(number: usize, entry_program: &str) -> Option<&'static str> {
    recorded(number)?;
    // A function of this name with other arguments, in some other library, keeps its own probe.
    Some(match (FUNCTIONS.get(number)?, entry_program) {
        (&"malloc", "malloc_entry") => "malloc_done",
        (&"calloc", "calloc_entry") => "calloc_done",
        (&("memalign" | "aligned_alloc"), "aligned_entry") => "aligned_done",
        (&"posix_memalign", "posix_memalign_entry") => "posix_memalign_done",
        (_, "free_entry") if frees_only(number) => "free_entry",
        _ => return None,
    })
}

impl Function {
    /// Whether its calls can be led to the code.
    pub fn has_entry(&self, way: Way) -> bool {
        match way {
            Way::Sampled => true,
            Way::Exact => program(self.number, self.entry_program).is_some(),
        }
    }
}

/// The probes that record every call of these functions: those on frees first.
pub fn probes(functions: &[Function]) -> Vec<Probe> {
    let of_one = |it: &Function| {
        Some(Probe {
            function: FUNCTIONS.get(it.number)?,
            offset: recorded(it.number)?[1],
            program: program(it.number, it.entry_program)?,
        })
    };
    let mut probes: Vec<Probe> = functions.iter().filter_map(of_one).collect();
    probes.sort_by_key(|it| it.program != "free_entry");
    probes
}

/// The code as it must be at `base`. `None` if a function is too far away from there.
pub fn code(base: u64, cookie: u64, functions: &[Function]) -> Option<Vec<u8>> {
    let mut bytes = fixed().to_vec();
    bytes.resize(CODE_BYTES, 0);
    put(&mut bytes, COOKIE, &cookie.to_le_bytes());
    let (begin, end) = functions.first().map_or((0, 0), |it| it.allocator);
    let allocator = [begin, end].map(u64::to_le_bytes).concat();
    put(&mut bytes, ALLOCATOR, &allocator);
    for interval in 0..INTERVALS {
        let entry = logarithm(interval).to_le_bytes();
        put(&mut bytes, LOGARITHMS + 8 * interval, &entry);
    }
    for function in functions {
        let at = PASSES + PASS_BYTES * function.number;
        let pass = pass(base + at as u64, function)?;
        put(&mut bytes, at, &pass);
        let address = function.address.to_le_bytes();
        put(&mut bytes, ADDRESSES + 8 * function.number, &address);
    }
    Some(bytes)
}

/// Whether these bytes are the code for these functions at `base`, whatever its cookie.
pub fn is_code(bytes: &[u8], base: u64, functions: &[Function]) -> bool {
    let code = word(bytes, COOKIE).and_then(|cookie| code(base, cookie, functions));
    code.is_some_and(|code| code == bytes)
}

/// The addresses of the entries of code at `base`, each with the address of its function. Empty if another version of
/// heaptrace wrote the code.
pub fn entries(bytes: &[u8], base: u64) -> Vec<(u64, u64)> {
    if !bytes.starts_with(fixed()) {
        return Vec::new();
    }
    let of_number = |number: usize| {
        let function = word(bytes, ADDRESSES + 8 * number)?;
        let ways = [Way::Sampled, Way::Exact];
        let entries = ways
            .into_iter()
            .filter_map(move |way| entry(base, number, way));
        (function != 0).then(|| entries.map(move |entry| (entry, function)))
    };
    let all = (0..FUNCTIONS.len()).filter_map(of_number);
    all.flatten().collect()
}

/// The memory behind the code as it is at first. The owner is the agent of the run: its process id, and when it started.
/// `stubs` are the changes that will be made.
pub fn data(mean: u64, seed: u64, owner: (u32, u64), stubs: &[Patch]) -> Vec<u8> {
    let words = [mean, seed, owner.0.into(), owner.1];
    let mut data = words.map(u64::to_le_bytes).concat();
    data.resize(RECORDS - CODE_BYTES, 0);
    data.extend(records::encode(stubs));
    data
}

/// The recorded changes of stubs in a mapping, by its code and data.
pub fn records(bytes: &[u8]) -> Vec<Patch> {
    records::decode(bytes.get(RECORDS..).unwrap_or_default())
}

/// The owner of a mapping, by its code and data.
pub fn owner(bytes: &[u8]) -> Option<(u32, u64)> {
    let pid = word(bytes, OWNER)?.try_into().ok()?;
    Some((pid, word(bytes, OWNER + 8)?))
}

/// The address of the run's cookie, for code at `base`.
pub fn cookie_at(base: u64) -> u64 {
    base + COOKIE as u64
}

/// The address of the mean between samples, for code at `base`.
pub fn mean_at(base: u64) -> u64 {
    base + MEAN as u64
}

/// The address of the mark, for code at `base`. While it is not 0, calls get to the probes that record every call.
pub fn mark_at(base: u64) -> u64 {
    base + MARK as u64
}

/// The part that is the same for every process.
fn fixed() -> &'static [u8] {
    let begin = &raw const heaptrace_fast_begin;
    // SAFETY: both symbols are of one section, which the assembler filled with the code between them.
    unsafe {
        let length = (&raw const heaptrace_fast_end).offset_from_unsigned(begin);
        std::slice::from_raw_parts(begin, length.min(LOGARITHMS))
    }
}

/// The copied beginning of a function, for a place in the process, with a jump behind its probe.
fn pass(at: u64, function: &Function) -> Option<Vec<u8>> {
    let mut pass = Vec::new();
    if function.may_call_others {
        pass.extend(NOTE);
    }
    let copy_at = at + pass.len() as u64;
    pass.extend(function.skipped.copy_for(copy_at, function.address)?);
    let end = at + (pass.len() + JUMP_BYTES) as u64;
    let behind = function.address + function.skipped.resume;
    pass.push(0xe9);
    pass.extend(displacement(end, behind)?);
    (pass.len() <= PASS_BYTES).then_some(pass)
}

/// The logarithm of the beginning of an interval to base 2, and above it how much it grows in the interval; 32 bits each.
fn logarithm(interval: usize) -> u64 {
    let of = |interval: usize| {
        let begin = 1.0 + interval as f64 / INTERVALS as f64;
        (begin.log2() * 2_f64.powi(32)).round() as u64
    };
    (of(interval + 1) - of(interval)) << 32 | of(interval)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(word))
}

/// Copies bytes to a place, if they fit.
fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + from.len()) {
        place.copy_from_slice(from);
    }
}

#[cfg(test)]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod tests;
