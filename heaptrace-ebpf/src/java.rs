//! Java: the walk through code that HotSpot has generated, and the frames of Java code, which are sent once for each process.
//!
//! Such code has no file, and no unwind information in the process but the virtual machine's own. The agent describes where that is
//! (`Jvm`), when a walk has met code without a file in a process for the first time.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::{
    bindings::{BPF_EXIST, BPF_NOEXIST},
    helpers::{bpf_get_current_pid_tgid, generated::bpf_loop},
};
use heaptrace_common::{
    counters::Counter,
    java,
    limits::{CODE_HEAPS, MAX_JAVA_FRAMES},
    unwind::outcome,
    wire::{
        CodeHeap, CodeRange, JavaFrame, JavaStack, Jvm, JvmLayout, LanguageStackKey, NeedJvm,
        ThreadState, WalkState, has, jvm, kind,
    },
};

use crate::{
    caller::Caller,
    counters::count,
    globals::HASH_SEED,
    language,
    maps::{BLANK_JAVA, EVENTS, JAVA_STACKS, JVMS},
    memory::Process,
    process, ring,
    walk::{CONTINUE, STOP, Walk},
    window,
};

/// Steps from a frame of generated code to its caller. Returns a constant of [`outcome`]; [`outcome::NO_RULE`] if the code is not
/// that of a Java virtual machine which is known.
#[inline(never)]
pub fn step(walk: &mut Walk<'_>, depth: u32, pc: u64) -> u32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let Some(jvm) = find(tgid) else {
        request(tgid, BPF_NOEXIST);
        return outcome::NO_RULE;
    };
    let Some(jvm) = described(jvm, tgid) else {
        return outcome::NO_RULE;
    };
    let mut frame = JavaFrame::default();
    let WalkState {
        registers, window, ..
    } = &mut *walk.state;
    let mut stack = window::Stack::new(window);
    let outcome = java::step(jvm, pc, registers, &mut stack, &mut Process, &mut frame);
    if outcome != outcome::NO_RULE {
        note(walk, depth, frame);
    }
    outcome
}

/// The description of a process's virtual machine, if it has one. Asks for it if the virtual machine may have started by now.
#[inline(always)]
pub fn of(tgid: u32) -> Option<&'static Jvm> {
    described(find(tgid)?, tgid)
}

#[inline(always)]
fn find(tgid: u32) -> Option<&'static Jvm> {
    // SAFETY: the entry may belong to another process by now, if this one ends. It is read anew then, and describes code that this
    // one does not have.
    JVMS.get_ptr(tgid).map(|jvm| unsafe { &*jvm })
}

#[inline(always)]
fn described(jvm: &'static Jvm, tgid: u32) -> Option<&'static Jvm> {
    if jvm.state == jvm::EXPECTED {
        request(tgid, BPF_EXIST);
    }
    (jvm.state == jvm::READY).then_some(jvm)
}

/// Asks the agent to describe the virtual machine of a process, once.
#[inline(never)]
fn request(tgid: u32, which: u32) {
    let Some(process) = process::find(tgid) else {
        return;
    };
    let Some(mut event) = EVENTS.reserve::<NeedJvm>(0) else {
        return;
    };
    if JVMS.insert(tgid, &REQUESTED, u64::from(which)).is_err() {
        event.discard(ring::QUIETLY);
        return;
    }
    event.write(NeedJvm {
        kind: kind::NEED_JVM,
        pad: 0,
        tgid,
        process,
    });
    event.submit(ring::AT_ONCE);
}

static REQUESTED: Jvm = Jvm {
    state: jvm::REQUESTED,
    pad: 0,
    interpreter: CodeRange { start: 0, end: 0 },
    heaps: [CodeHeap {
        start: 0,
        end: 0,
        segments: 0,
        shift: 0,
    }; CODE_HEAPS],
    archive: CodeRange { start: 0, end: 0 },
    layout: JvmLayout {
        block_head: 0,
        blob_frame_size: 0,
        blob_size: 0,
        blob_compile_id: 0,
        method_constant: 0,
        constant_bytes: 0,
        frame_instruction: 0,
        pad: 0,
    },
};

/// Notes a frame. A thread that has met Python has the frames of Python code in its stacks.
#[inline(always)]
fn note(walk: &mut Walk<'_>, depth: u32, frame: JavaFrame) {
    if walk.state.python_image != 0 {
        return;
    }
    let key = bpf_get_current_pid_tgid();
    let Some(stack) = language::of_thread(&JAVA_STACKS, &BLANK_JAVA, key) else {
        return;
    };
    walk.state.has |= has::JAVA_STACK;
    let count = stack.depth as usize;
    if count >= MAX_JAVA_FRAMES {
        return;
    }
    stack.frames[count & (MAX_JAVA_FRAMES - 1)] = frame;
    stack.depth = count as u32 + 1;
    language::mark(walk.stack, depth as usize);
}

/// Makes the Java frames of a stack, which was walked just now, a part of it.
#[inline(always)]
pub fn capture(caller: Caller, state: &mut ThreadState) {
    if state.walk.has & has::JAVA_STACK == 0 || state.walk.python_image != 0 {
        return;
    }
    let id = send(caller, state);
    language::set(state, id);
}

/// The id of the thread's Java frames, which are sent if they are new; 0 if there are none.
#[inline(never)]
fn send(caller: Caller, state: &mut ThreadState) -> u64 {
    let Some(stack) = language::existing(&JAVA_STACKS, caller.key) else {
        return 0;
    };
    let depth = stack.depth.min(MAX_JAVA_FRAMES as u32);
    // The next walk begins without frames.
    stack.depth = 0;
    if depth == 0 {
        return 0;
    }
    let mut hash = Hash {
        stack,
        hash: HASH_SEED.load() ^ u64::from(depth),
    };
    // SAFETY: the callback gets the state, which outlives the loop.
    unsafe {
        bpf_loop(
            depth,
            add as *mut c_void,
            (&raw mut hash).cast::<c_void>(),
            0,
        );
    }
    let Hash { stack, hash } = hash;
    let key = LanguageStackKey {
        process: state.process,
        id: hash.max(1),
    };
    if key.id == state.stack.head.language || language::is_sent(key) {
        return key.id;
    }
    stack.kind = kind::JAVA_STACK;
    stack.pad = 0;
    stack.process = key.process;
    stack.id = key.id;
    stack.depth = depth;
    let head = offset_of!(JavaStack, frames);
    // SAFETY: the record has at least that depth.
    let is_sent = unsafe { language::send(key, stack, head, depth, size_of::<JavaFrame>()) };
    stack.depth = 0;
    if is_sent {
        return key.id;
    }
    count(Counter::JavaFramesLost);
    0
}

/// A stack, and the hash of its first frames.
struct Hash<'a> {
    stack: &'a mut JavaStack,
    hash: u64,
}

/// Adds a frame to the hash.
#[inline(never)]
extern "C" fn add(index: u32, hash: *mut c_void) -> i64 {
    // SAFETY: `send` passes its state.
    let Hash { stack, hash } = unsafe { &mut *hash.cast::<Hash<'_>>() };
    if index as usize >= MAX_JAVA_FRAMES {
        return STOP;
    }
    let frame = stack.frames[index as usize & (MAX_JAVA_FRAMES - 1)];
    let mut mixed = (*hash ^ frame.code).wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed ^= mixed >> 29;
    mixed = (mixed ^ frame.place).wrapping_mul(0xff51_afd7_ed55_8ccd);
    *hash = mixed ^ mixed >> 32;
    CONTINUE
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn end(key: u64) {
    let _ = JAVA_STACKS.remove(key);
}

/// Forgets the virtual machine of a process that has ended, or has become another program.
#[inline(always)]
pub fn end_process(tgid: u32) {
    let _ = JVMS.remove(tgid);
}
