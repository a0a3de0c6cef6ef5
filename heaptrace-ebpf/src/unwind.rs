//! The walk from the caller of an allocator function outward, by unwind tables.
//!
//! One program, no tail calls: `bpf_loop` over frames, and inside it over the steps of a binary
//! search. What stands at an address the kernel itself says, by its own mappings, so nothing has to
//! be kept up to date from outside; only the tables of files come from the agent, which is asked for
//! one the first time that its file is met.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_user,
        generated::{bpf_find_vma, bpf_get_current_task_btf, bpf_loop},
    },
};
use heaptrace_common::{
    limits::MAX_FRAMES,
    unwind::{
        Memory, PAGE_BITS, Registers, Rule, outcome, row_of_slot, row_offset, row_rule, step,
        step_frame_pointer,
    },
    wire::{FileKey, NeedTable, Stack, TableRef, kind, table, walk},
};

use crate::{
    globals::{
        FILE_INODE, INODE_NUMBER, INODE_SUPER, MAX_STACK_DEPTH, SUPER_DEVICE, VMA_END, VMA_FILE,
        VMA_PGOFF, VMA_START,
    },
    maps::{EVENTS, PAGES, ROWS, RULES, TABLES},
    process::read,
};

/// Steps of a binary search in one page, which has at most a row per byte.
const SEARCH_STEPS: u32 = 17;

/// The memory of the traced process.
struct User;

impl Memory for User {
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<u64> {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(address as *const u64) }.ok()
    }
}

/// A walk under way.
struct Walk<'a> {
    /// Its head also keeps the depth and the status, because it is in a map: of what stands on the program's own stack the
    /// verifier knows each value, and would go through the loop once for every depth there can be.
    stack: &'a mut Stack,
    registers: Registers,
    limit: u32,
    /// 1 where the address is that of a return, and the call stands before it.
    before: u64,
    /// The mapping that the last frame stood in.
    mapping: Mapping,
    /// The table of its file.
    table: TableRef,
}

/// What is mapped at an address.
#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: FileKey,
}

/// A binary search for the last row at or before an offset.
struct Search {
    low: u32,
    high: u32,
    offset: u32,
}

/// Walks outward and notes the frames.
#[inline(always)]
pub fn walk(registers: Registers, stack: &mut Stack) {
    let limit = MAX_STACK_DEPTH.load().clamp(1, MAX_FRAMES as u32);
    stack.head.depth = 0;
    stack.head.walk = walk::TRUNCATED;
    let mut walk = Walk {
        stack,
        registers,
        limit,
        before: 1,
        mapping: Mapping {
            start: 0,
            end: 0,
            offset: 0,
            file: FileKey {
                inode: 0,
                device: 0,
            },
        },
        table: TableRef {
            state: table::REQUESTED,
            pages_at: 0,
            pages: 0,
            first_page: 0,
        },
    };
    // SAFETY: the callback gets the walk, which outlives the loop.
    unsafe {
        bpf_loop(
            limit + RETRIES,
            frame as *mut c_void,
            (&raw mut walk).cast::<c_void>(),
            0,
        );
    }
    let head = &mut walk.stack.head;
    if head.walk == walk::BUSY {
        head.depth += 1;
    }
    head.depth = head.depth.min(MAX_FRAMES as u32);
}

/// How often in a walk a frame may be tried again because another thread is just changing the
/// mappings; mostly that is done in no time.
const RETRIES: u32 = 16;

const GO_ON: i64 = 0;
const STOP: i64 = 1;

/// One frame: noted, and left.
#[inline(never)]
extern "C" fn frame(_: u32, walk: *mut c_void) -> i64 {
    // SAFETY: what `walk` passes.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let depth = walk.stack.head.depth;
    if depth >= walk.limit || depth as usize >= MAX_FRAMES {
        return STOP;
    }
    // An address that is none of a return is noted as if it were: readers subtract one.
    walk.stack.frames[depth as usize] = walk.registers.ip.wrapping_add(1 - walk.before);
    let pc = walk.registers.ip.wrapping_sub(walk.before);
    if pc < walk.mapping.start || pc >= walk.mapping.end {
        match locate(walk, pc) {
            walk::COMPLETE => {}
            walk::BUSY => {
                walk.stack.head.walk = walk::BUSY;
                return GO_ON;
            }
            status => {
                walk.stack.head.walk = status;
                walk.stack.head.depth = depth + 1;
                return STOP;
            }
        }
    }
    walk.stack.head.depth = depth + 1;
    walk.stack.head.walk = walk::TRUNCATED;
    let rule = match walk.table.state {
        table::LOADED => rule(walk, pc),
        table::ABSENT => Rule::default(),
        _ => {
            walk.stack.head.walk = walk::NO_TABLE;
            return STOP;
        }
    };
    let mut outcome = step(rule, &mut walk.registers, &mut User);
    if outcome == outcome::NO_RULE {
        outcome = step_frame_pointer(&mut walk.registers, &mut User);
    }
    match outcome {
        outcome::CALLER => walk.before = 1,
        outcome::CALLER_EXACT => walk.before = 0,
        outcome::OUTERMOST => {
            walk.stack.head.walk = walk::COMPLETE;
            return STOP;
        }
        other => {
            walk.stack.head.walk = walk::STEP + other;
            return STOP;
        }
    }
    GO_ON
}

/// Finds out what is mapped at an address, and the table for it.
#[inline(always)]
fn locate(walk: &mut Walk<'_>, pc: u64) -> u32 {
    let mut mapping = Mapping {
        start: 0,
        end: 0,
        offset: 0,
        file: FileKey {
            inode: 0,
            device: 0,
        },
    };
    // SAFETY: the current task is valid; the callback gets the mapping, which outlives the call.
    let found = unsafe {
        bpf_find_vma(
            bpf_get_current_task_btf(),
            pc,
            mapped as *mut c_void,
            (&raw mut mapping).cast::<c_void>(),
            0,
        )
    };
    if found != 0 {
        const EBUSY: i64 = 16;
        return if found == -EBUSY {
            walk::BUSY
        } else {
            walk::UNMAPPED
        };
    }
    walk.mapping = mapping;
    // JIT code, and the kernel's own page.
    let mut state = TableRef {
        state: table::ABSENT,
        pages_at: 0,
        pages: 0,
        first_page: 0,
    };
    if mapping.file.inode != 0 {
        // SAFETY: entries are never reused while a program holds them (BPF_F_NO_PREALLOC).
        match unsafe { TABLES.get(mapping.file) } {
            Some(found) => state = *found,
            None => {
                request(&mapping);
                return walk::NO_TABLE;
            }
        }
    }
    walk.table = state;
    walk::COMPLETE
}

/// Notes what is mapped. Called back by the kernel.
#[inline(never)]
extern "C" fn mapped(_: *mut c_void, vma: *mut c_void, mapping: *mut c_void) -> i64 {
    // SAFETY: what `locate` passes; offsets come from the kernel's BTF, and the helper checks
    // addresses.
    unsafe {
        let mapping = &mut *mapping.cast::<Mapping>();
        let vma = vma as u64;
        mapping.start = read::<u64>(vma, VMA_START.load());
        mapping.end = read::<u64>(vma, VMA_END.load());
        mapping.offset = read::<u64>(vma, VMA_PGOFF.load()) << 12;
        let file = read::<u64>(vma, VMA_FILE.load());
        if file != 0 {
            let inode = read::<u64>(file, FILE_INODE.load());
            let superblock = read::<u64>(inode, INODE_SUPER.load());
            mapping.file = FileKey {
                inode: read::<u64>(inode, INODE_NUMBER.load()),
                device: u64::from(read::<u32>(superblock, SUPER_DEVICE.load())),
            };
        }
    }
    0
}

/// Asks the agent for the table of a file, once.
#[inline(always)]
fn request(mapping: &Mapping) {
    let Some(mut event) = EVENTS.reserve::<NeedTable>(0) else {
        return;
    };
    let requested = TableRef {
        state: table::REQUESTED,
        pages_at: 0,
        pages: 0,
        first_page: 0,
    };
    if TABLES
        .insert(mapping.file, requested, u64::from(BPF_NOEXIST))
        .is_err()
    {
        event.discard(0);
        return;
    }
    event.write(NeedTable {
        kind: kind::NEED_TABLE,
        pad: 0,
        tgid: (bpf_get_current_pid_tgid() >> 32) as u32,
        start: mapping.start,
        end: mapping.end,
        file: mapping.file,
    });
    event.submit(0);
}

/// The rule for an address in the mapping at hand; the empty one where there is none.
#[inline(always)]
fn rule(walk: &Walk<'_>, pc: u64) -> Rule {
    let at = pc
        .wrapping_sub(walk.mapping.start)
        .wrapping_add(walk.mapping.offset);
    let page = ((at >> PAGE_BITS) as u32).wrapping_sub(walk.table.first_page);
    if page >= walk.table.pages {
        return Rule::default();
    }
    let entry = walk.table.pages_at.wrapping_add(page);
    let (Some(low), Some(high)) = (PAGES.get(entry), PAGES.get(entry.wrapping_add(1))) else {
        return Rule::default();
    };
    let mut search = Search {
        low: *low,
        high: *high,
        offset: at as u32 & 0xffff,
    };
    // SAFETY: the callback gets the search, which outlives the loop.
    unsafe {
        bpf_loop(
            SEARCH_STEPS,
            narrow as *mut c_void,
            (&raw mut search).cast::<c_void>(),
            0,
        );
    }
    // Every page begins with a row, so there is one before `low`.
    row(search.low.wrapping_sub(1))
        .and_then(|row| RULES.get(row_rule(row)))
        .copied()
        .unwrap_or_default()
}

/// One step of a binary search: afterwards all rows before `low` are at or before the offset.
#[inline(never)]
extern "C" fn narrow(_: u32, search: *mut c_void) -> i64 {
    // SAFETY: what `rule` passes.
    let search = unsafe { &mut *search.cast::<Search>() };
    if search.low >= search.high {
        return STOP;
    }
    let middle = search.low + (search.high - search.low) / 2;
    match row(middle) {
        Some(row) if row_offset(row) <= search.offset => search.low = middle + 1,
        Some(_) => search.high = middle,
        None => return STOP,
    }
    GO_ON
}

/// A row; two stand in each slot.
#[inline(always)]
fn row(index: u32) -> Option<u32> {
    Some(row_of_slot(*ROWS.get(index / 2)?, index))
}
