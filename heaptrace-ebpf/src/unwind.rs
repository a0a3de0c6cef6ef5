//! The walk from the caller of an allocator function outward, by unwind tables.
//!
//! One program without tail calls: `bpf_loop` runs over the frames, and inside it over the steps of a binary
//! search. The kernel tells which file is mapped at an address, so the agent has no mappings to keep up to
//! date. The agent provides the tables of files. A table is requested the first time that a walk reaches its
//! file.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_find_vma, bpf_get_current_task_btf, bpf_loop},
    },
};
use heaptrace_common::{
    limits::{MAX_FRAMES, SEGMENT_SLOTS},
    rows::{PAGE_BITS, page_first_row, page_rows, row_of_slot, row_offset, row_rule},
    trampoline::is_trampoline,
    unwind::{Rule, cfa, outcome, step_either},
    wire::{
        FileKey, Mapping, NeedTable, Stack, TableRef, WalkState, kind, table, version_of, walk,
    },
};

use crate::{
    globals::{
        FILE_INODE, INODE_CHANGE_NANOSECONDS, INODE_CHANGE_SECONDS, INODE_NUMBER, INODE_SUPER,
        MAX_STACK_DEPTH, MM_VDSO, SUPER_DEVICE, VMA_DETACHED, VMA_END, VMA_FILE, VMA_MM, VMA_PGOFF,
        VMA_REFERENCES, VMA_START,
    },
    java,
    kernel::read,
    language, mapping_cache, mapping_tree,
    maps::{EVENTS, PAGES, ROWS, RULES, TABLES, USES},
    python, ring, rule_cache, v8,
    walk::{CONTINUE, STOP, Walk},
    walk_cache, window,
};

/// Steps of a binary search in one page, which has at most a row per byte.
const SEARCH_STEPS: u32 = 17;

/// Walks outward from the registers in the state, and records the frames.
#[inline(always)]
pub fn walk(stack: &mut Stack, state: &mut WalkState) {
    stack.head.depth = 0;
    stack.head.walk = walk::TRUNCATED;
    state.is_return_address = 1;
    state.cache.is_by_rule = 1;
    state.mapping.start = 0;
    state.mapping.end = 0;
    let is_same_space = mapping_cache::check_space(state);
    walk_cache::begin(state, is_same_space);
    let mut walk = Walk { stack, state };
    // SAFETY: the callback gets the walk, which outlives the loop.
    unsafe {
        bpf_loop(
            limit() + RETRIES,
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
    walk_cache::end(walk.stack, &mut walk.state.cache);
}

/// Maximum number of frames of a stack.
#[inline(always)]
fn limit() -> u32 {
    MAX_STACK_DEPTH.load().clamp(1, MAX_FRAMES as u32)
}

/// How often a walk may retry a frame, because another thread is changing the mappings and this thread has no
/// cached mapping for the frame.
const RETRIES: u32 = 128;

/// Records one frame, and steps to its caller.
#[inline(never)]
extern "C" fn frame(_: u32, walk: *mut c_void) -> i64 {
    // SAFETY: `walk` passes a walk.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let depth = walk.stack.head.depth;
    if depth >= limit() || depth as usize >= MAX_FRAMES {
        return STOP;
    }
    if walk_cache::matches(walk, depth as usize) {
        return STOP;
    }
    let before = u64::from(walk.state.is_return_address);
    // An address that is not a return address is recorded plus one, because readers subtract one.
    walk.stack.frames[depth as usize] = walk.state.registers.ip.wrapping_add(1 - before);
    language::unmark(walk.stack, depth as usize);
    let pc = walk.state.registers.ip.wrapping_sub(before);
    if pc < walk.state.mapping.start || pc >= walk.state.mapping.end {
        match locate(walk, pc) {
            walk::COMPLETE => {}
            walk::BUSY => {
                walk.stack.head.walk = walk::BUSY;
                return CONTINUE;
            }
            status => {
                walk.stack.head.walk = status;
                walk.stack.head.depth = depth + 1;
                return STOP;
            }
        }
    }
    python::note_frame(walk, depth as usize, pc);
    walk.stack.head.depth = depth + 1;
    walk.stack.head.walk = walk::TRUNCATED;
    let rule = match walk.state.table.state {
        table::LOADED => rule(walk, pc),
        table::ABSENT => Rule::default(),
        _ => {
            walk.stack.head.walk = walk::NO_TABLE;
            return STOP;
        }
    };
    v8::note_frame(walk, depth as usize, rule);
    if rule.cfa == cfa::NONE && is_put_by_hand(walk) {
        let ip = walk.state.registers.ip;
        walk.stack.frames[depth as usize & (MAX_FRAMES - 1)] = ip.wrapping_add(1);
        walk.state.cache.is_complete = 1;
        walk.stack.head.walk = walk::COMPLETE;
        return STOP;
    }
    let (outcome, rule, last_read) = match generated(walk, depth, pc) {
        outcome::NO_RULE => {
            let WalkState {
                registers, window, ..
            } = &mut *walk.state;
            let mut stack = window::Stack::new(window);
            let (outcome, is_by_rule) = step_either(rule, registers, &mut stack);
            let last_read = stack.last;
            walk.state.cache.is_by_rule = u32::from(is_by_rule);
            (outcome, rule, last_read)
        }
        outcome => {
            walk.state.cache.is_by_rule = 1;
            (outcome, Rule::UNSUPPORTED, 1)
        }
    };
    match outcome {
        outcome::CALLER => walk.state.is_return_address = 1,
        outcome::CALLER_EXACT => walk.state.is_return_address = 0,
        outcome::OUTERMOST => {
            walk.state.cache.is_complete = u32::from(last_read == 0);
            walk.stack.head.walk = walk::COMPLETE;
            return STOP;
        }
        other => {
            walk.stack.head.walk = walk::STEP + other;
            return STOP;
        }
    }
    walk_cache::record_step(walk.state, rule, last_read);
    CONTINUE
}

/// Steps through code that a runtime has generated: code without a file, and thus without a table. Returns
/// [`outcome::NO_RULE`] if no runtime that is known has.
#[inline(always)]
fn generated(walk: &mut Walk<'_>, depth: u32, pc: u64) -> u32 {
    if walk.state.table.state != table::ABSENT || walk.state.mapping.file.inode != 0 {
        return outcome::NO_RULE;
    }
    java::step(walk, depth, pc)
}

/// Whether the return address of the current frame, before which no rule applies, is the beginning of a function. No
/// call returns to it then: the address was put on the stack by hand, below the first function of a coroutine.
/// So does `makecontext`, with a function that has unwind information as if it had been called.
///
/// An address that was found by a frame pointer may be any pointer to a function, if the frame pointer is none.
#[inline(never)]
fn is_put_by_hand(walk: &mut Walk<'_>) -> bool {
    let WalkState {
        registers,
        mapping,
        table,
        is_return_address,
        cache,
        ..
    } = &*walk.state;
    let ip = registers.ip;
    *is_return_address == 1
        && cache.is_by_rule == 1
        && table.state == table::LOADED
        && ip < mapping.end
        && rule(walk, ip).cfa != cfa::NONE
}

/// Finds the mapping of an address, and the table of its file. Returns a constant of
/// [`walk`](heaptrace_common::wire::walk).
#[inline(always)]
fn locate(walk: &mut Walk<'_>, pc: u64) -> u32 {
    if !mapping_cache::find_current(walk.state, pc) {
        let status = look_up(walk, pc);
        if status != walk::COMPLETE {
            return status;
        }
    }
    let file = walk.state.mapping.file;
    if file.inode == 0 {
        // The real return address is not known.
        if is_trampoline(pc) {
            return walk::STEP + outcome::NO_RULE;
        }
        // JIT code.
        walk.state.table.state = table::ABSENT;
        return walk::COMPLETE;
    }
    // SAFETY: the entry is copied first, and the copy is checked: see `maps`.
    let Some(table) = TABLES.get_ptr(file).map(|it| unsafe { it.read_volatile() }) else {
        request(&walk.state.mapping);
        return walk::NO_TABLE;
    };
    walk.state.table = table;
    if walk.state.table.check != file.check() {
        walk.state.table.state = table::REQUESTED;
        walk.state.table.python = 0;
    }
    mark_used(walk.state.table.slot);
    walk::COMPLETE
}

/// Caches the mapping of an address, and makes it the walk's current one.
#[inline(always)]
pub fn note_mapping(walk: &mut Walk<'_>, address: u64) {
    if !mapping_cache::find_current(walk.state, address) {
        // Without an answer, the mapping is not known.
        let _ = look_up(walk, address);
    }
}

/// Asks the kernel for the mapping of an address.
#[inline(always)]
fn look_up(walk: &mut Walk<'_>, pc: u64) -> u32 {
    // SAFETY: the current task is valid; the callback gets the walk, which outlives the call.
    let found = unsafe {
        bpf_find_vma(
            bpf_get_current_task_btf(),
            pc,
            mapped as *mut c_void,
            (&raw mut *walk).cast::<c_void>(),
            0,
        )
    };
    const EBUSY: i64 = 16;
    match found {
        0 => mapping_cache::store(walk.state, true),
        // Another thread is changing the mappings, but hardly the mapping of this code.
        busy if busy == -EBUSY => {
            if !is_known(walk.state, pc) && !is_found(walk.state, pc) {
                walk.state.mapping.end = 0;
                return walk::BUSY;
            }
        }
        _ => return walk::UNMAPPED,
    }
    walk::COMPLETE
}

/// Makes the cached mapping of an address the current one; false if there is none that is still there.
#[inline(always)]
fn is_known(state: &mut WalkState, pc: u64) -> bool {
    mapping_cache::find_any(state, pc) && is_still_there(state, pc)
}

/// Makes the mapping of an address that is found without the kernel's lock the current one. It is not the last word: the change
/// may be about it.
#[inline(always)]
fn is_found(state: &mut WalkState, pc: u64) -> bool {
    state.mapping.record = mapping_tree::record(state, pc);
    let is_found = state.mapping.record != 0 && is_still_there(state, pc);
    if is_found {
        mapping_cache::store(state, false);
    }
    is_found
}

/// Whether the kernel's record of the current mapping still has an address. Another library may have been loaded where
/// one was unloaded, and its mapping may have the same record. So the mapping is read anew.
///
/// The record may be of anything by now: its memory is reused. So its address space must be this one.
#[inline(never)]
fn is_still_there(state: &mut WalkState, pc: u64) -> bool {
    let record = state.mapping.record;
    let was_attached = is_attached(record);
    read_mapping(&mut state.mapping, record);
    // SAFETY: as in `read_mapping`.
    let space = unsafe { read::<u64>(record, VMA_MM.load()) };
    was_attached
        && is_attached(record)
        && space == state.space
        && pc >= state.mapping.start
        && pc < state.mapping.end
}

/// Whether the kernel's record of a mapping belongs to an address space. Kernels before 6.4 don't tell.
#[inline(always)]
fn is_attached(record: u64) -> bool {
    // SAFETY: as in `read_mapping`.
    unsafe {
        match (VMA_REFERENCES.load(), VMA_DETACHED.load()) {
            (0, 0) => true,
            (0, detached) => read::<u8>(record, detached) == 0,
            (references, _) => read::<u32>(record, references) != 0,
        }
    }
}

/// Marks a table as used, so that the agent can drop unused ones. Writes only if the clock has moved, so that
/// the entry of a table that all CPUs use stays in their caches.
#[inline(always)]
fn mark_used(slot: u32) {
    let (Some(now), Some(used)) = (USES.get(0), USES.get_ptr_mut(slot)) else {
        return;
    };
    // SAFETY: the pointer comes from a lookup in this program; an aligned u64 is read and written
    // whole.
    unsafe {
        if used.read_volatile() != *now {
            used.write_volatile(*now);
        }
    }
}

/// No file is mapped.
const NO_FILE: FileKey = FileKey {
    inode: 0,
    device: 0,
    version: 0,
};

/// Reads the mapping. The kernel calls this back.
#[inline(never)]
extern "C" fn mapped(_: *mut c_void, vma: *mut c_void, walk: *mut c_void) -> i64 {
    // SAFETY: `look_up` passes a walk.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    read_mapping(&mut walk.state.mapping, vma as u64);
    0
}

/// Reads a mapping from the kernel's record of it.
#[inline(always)]
fn read_mapping(mapping: &mut Mapping, record: u64) {
    // SAFETY: offsets come from the kernel's BTF, and the helper checks addresses.
    unsafe {
        mapping.record = record;
        mapping.start = read::<u64>(record, VMA_START.load());
        mapping.end = read::<u64>(record, VMA_END.load());
        mapping.offset = read::<u64>(record, VMA_PGOFF.load()) << 12;
        let file = read::<u64>(record, VMA_FILE.load());
        mapping.file = NO_FILE;
        if file != 0 {
            let inode = read::<u64>(file, FILE_INODE.load());
            let superblock = read::<u64>(inode, INODE_SUPER.load());
            mapping.file = FileKey {
                inode: read::<u64>(inode, INODE_NUMBER.load()),
                device: u64::from(read::<u32>(superblock, SUPER_DEVICE.load())),
                version: version_of(
                    read::<u64>(inode, INODE_CHANGE_SECONDS.load()),
                    read::<u32>(inode, INODE_CHANGE_NANOSECONDS.load()),
                ),
            };
        } else if mapping.start == read::<u64>(read::<u64>(record, VMA_MM.load()), MM_VDSO.load()) {
            mapping.file = FileKey::VDSO;
            mapping.offset = 0;
        }
    }
}

/// Asks the agent for the table of a file, once.
#[inline(always)]
fn request(mapping: &Mapping) {
    let Some(mut event) = EVENTS.reserve::<NeedTable>(0) else {
        return;
    };
    let requested = TableRef::none(table::REQUESTED).of(mapping.file);
    if TABLES
        .insert(mapping.file, requested, u64::from(BPF_NOEXIST))
        .is_err()
    {
        event.discard(ring::QUIETLY);
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
    event.submit(ring::AT_ONCE);
}

/// The rule for an address in the current mapping; the empty rule if there is none.
#[inline(always)]
fn rule(walk: &mut Walk<'_>, pc: u64) -> Rule {
    let at = pc
        .wrapping_sub(walk.state.mapping.start)
        .wrapping_add(walk.state.mapping.offset);
    let page = ((at >> PAGE_BITS) as u32).wrapping_sub(walk.state.table.first_page);
    if page >= walk.state.table.pages {
        return Rule::default();
    }
    let page = walk.state.table.pages_at.wrapping_add(page);
    let key = rule_cache::Key::new(page, at as u32);
    if let Some(rule) = key.rule() {
        return RULES.get(rule).copied().unwrap_or_default();
    }
    let Some(page) = PAGES.get(page) else {
        return Rule::default();
    };
    walk.state.low = page_first_row(*page);
    walk.state.high = walk.state.low.wrapping_add(page_rows(*page));
    walk.state.offset = at as u32 & 0xffff;
    // SAFETY: the callback gets the walk, which outlives the loop.
    unsafe {
        bpf_loop(
            SEARCH_STEPS,
            narrow as *mut c_void,
            (&raw mut *walk).cast::<c_void>(),
            0,
        );
    }
    // Every page begins with a row, so there is one before `low`.
    let Some(row) = row(walk.state.low.wrapping_sub(1)) else {
        return Rule::default();
    };
    key.store(row_rule(row));
    RULES.get(row_rule(row)).copied().unwrap_or_default()
}

/// One step of a binary search: afterwards all rows before `low` are at or before the offset.
#[inline(never)]
extern "C" fn narrow(_: u32, walk: *mut c_void) -> i64 {
    // SAFETY: `rule` passes a walk.
    let search = unsafe { &mut *(*walk.cast::<Walk<'_>>()).state };
    if search.low >= search.high {
        return STOP;
    }
    let middle = search.low + (search.high - search.low) / 2;
    match row(middle) {
        Some(row) if row_offset(row) <= search.offset => search.low = middle + 1,
        Some(_) => search.high = middle,
        None => return STOP,
    }
    CONTINUE
}

/// A row; each slot holds two.
#[inline(always)]
fn row(index: u32) -> Option<u32> {
    let slot = index / 2;
    let slots = ROWS.get_value(slot / SEGMENT_SLOTS, &(slot % SEGMENT_SLOTS))?;
    Some(row_of_slot(*slots, index))
}
