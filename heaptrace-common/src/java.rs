//! One step up a stack from code that HotSpot has generated. The kernel program runs this code, and the host tests it.
//!
//! No stage of the flow; x86-64 only. Written for the kernel's verifier, as [`unwind`](crate::unwind) is. It must not know where
//! the description of the virtual machine comes from.

use crate::limits::CODE_HEAPS;
use crate::unwind::{LOST_BP, Memory, Registers, outcome, step_frame_pointer};
use crate::wire::{CodeHeap, JavaFrame, Jvm};

/// Steps through a segment map to the beginning of a blob, at most. A step covers up to 254 segments.
const MAX_STEPS: u32 = 24;

/// A segment that belongs to no blob.
const FREE: u64 = 255;

/// Words that code may have pushed for a call, beyond its frame.
const MAX_PUSHED: u32 = 6;

/// Of a frame of the interpreter: how far below its frame pointer its caller's stack pointer is.
const SENDER_SP: u64 = 8;

/// The same for its method.
pub const METHOD: u64 = 24;

/// Steps from a frame of generated code to its caller, and describes the frame. Returns a constant of [`outcome`];
/// [`outcome::NO_RULE`] if the code is not the virtual machine's. The registers change only if there is a caller.
///
/// `stack` reads the thread's stack, `memory` anything else.
#[inline(always)]
pub fn step<S: Memory, M: Memory>(
    jvm: &Jvm,
    pc: u64,
    registers: &mut Registers,
    stack: &mut S,
    memory: &mut M,
    frame: &mut JavaFrame,
) -> u32 {
    if jvm.interpreter.contains(pc) {
        return step_interpreted(jvm, registers, stack, memory, frame);
    }
    let Some(heap) = heap_of(jvm, pc) else {
        return outcome::NO_RULE;
    };
    let Some(block) = block_at(heap, pc, memory) else {
        return outcome::NO_RULE;
    };
    let layout = &jvm.layout;
    let blob = block.wrapping_add(layout.block_head.into());
    let mut field = |offset: u16| half(memory, blob.wrapping_add(offset.into()));
    let Some(size) = field(layout.blob_frame_size) else {
        return outcome::NO_RULE;
    };
    // Smaller blobs are no compiled methods.
    let cookie = match field(layout.blob_size) {
        Some(bytes) if bytes > u32::from(layout.blob_compile_id) => field(layout.blob_compile_id),
        _ => None,
    };
    let cookie = cookie.unwrap_or(0);
    frame.code = blob | JavaFrame::BLOB;
    frame.place = u64::from(cookie) << 32 | u64::from(registers.ip.wrapping_sub(blob) as u32);
    if size as i32 <= 0 {
        return step_frame_pointer(registers, stack);
    }
    let mut caller_sp = registers.sp.wrapping_add(u64::from(size).wrapping_mul(8));
    let Some(mut ip) = stack.read(caller_sp.wrapping_sub(8)) else {
        return outcome::UNREADABLE;
    };
    // Such code is called by generated code alone.
    for pushed in 1..=MAX_PUSHED {
        if is_generated(jvm, ip) {
            break;
        }
        let further = caller_sp.wrapping_add(u64::from(pushed) * 8);
        if let Some(other) = stack.read(further.wrapping_sub(8))
            && is_generated(jvm, other)
        {
            ip = other;
            caller_sp = further;
        }
    }
    let Some(bp) = stack.read(caller_sp.wrapping_sub(16)) else {
        return outcome::UNREADABLE;
    };
    *registers = Registers {
        ip,
        sp: caller_sp,
        bp,
    };
    outcome::CALLER
}

/// Steps from a frame of the interpreter, which keeps a frame pointer. Its caller may have another stack pointer than the frame
/// pointer tells: arguments are extended to local variables in place.
#[inline(always)]
fn step_interpreted<S: Memory, M: Memory>(
    jvm: &Jvm,
    registers: &mut Registers,
    stack: &mut S,
    memory: &mut M,
    frame: &mut JavaFrame,
) -> u32 {
    let bp = registers.bp;
    if bp == LOST_BP {
        return outcome::LOST_FRAME_POINTER;
    }
    let layout = &jvm.layout;
    // The kernel's verifier refuses to pass on the value that an empty option does not have.
    let mut word = |below: u64| stack.read(bp.wrapping_sub(below)).unwrap_or(0);
    let instruction = word(layout.frame_instruction.into());
    let method = word(METHOD);
    let sender = word(SENDER_SP);
    let outcome = step_frame_pointer(registers, stack);
    if outcome != outcome::CALLER {
        return outcome;
    }
    if sender & 7 == 0
        && sender >= registers.sp
        && sender.wrapping_sub(registers.sp) < MAX_LOCALS_BYTES
    {
        registers.sp = sender;
    }
    let Some(constant) = memory.read(method.wrapping_add(layout.method_constant.into())) else {
        return outcome;
    };
    let first = constant.wrapping_add(layout.constant_bytes.into());
    frame.code = method & !JavaFrame::BLOB;
    frame.place = constant >> 3 << 32 | u64::from(instruction.wrapping_sub(first) as u32);
    outcome
}

/// Most bytes of a method's local variables.
const MAX_LOCALS_BYTES: u64 = 8 << 16;

/// Whether an address is in the code cache.
#[inline(always)]
pub fn is_generated(jvm: &Jvm, address: u64) -> bool {
    heap_of(jvm, address).is_some()
}

/// The part of the code cache with an address.
#[inline(always)]
fn heap_of(jvm: &Jvm, address: u64) -> Option<CodeHeap> {
    for index in 0..CODE_HEAPS {
        let heap = jvm.heaps[index];
        if address >= heap.start && address < heap.end {
            return Some(heap);
        }
    }
    None
}

/// The address of the segments of the blob with the code at an address.
#[inline(always)]
fn block_at<M: Memory>(heap: CodeHeap, address: u64, memory: &mut M) -> Option<u64> {
    let shift = heap.shift & 63;
    let mut segment = address.wrapping_sub(heap.start) >> shift;
    for _ in 0..MAX_STEPS {
        let at = heap.segments.wrapping_add(segment);
        let step = memory.read(at & !7)? >> (8 * (at & 7)) & 0xff;
        if step == 0 {
            return Some(heap.start.wrapping_add(segment << shift));
        }
        if step == FREE || step > segment {
            return None;
        }
        segment = segment.wrapping_sub(step);
    }
    None
}

/// The four bytes at an address.
#[inline(always)]
fn half<M: Memory>(memory: &mut M, at: u64) -> Option<u32> {
    let word = memory.read(at & !7)?;
    Some((word >> (8 * (at & 4))) as u32)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::wire::{CodeRange, JvmLayout, jvm};

    const TOP: u64 = 0x7fff_0000_0000;
    const HEAP: u64 = 0x7f00_0000_0000;
    const SEGMENTS: u64 = 0x7e00_0000_0000;

    /// Words at addresses; any other word of the same part of memory is 0.
    struct Words(Vec<(u64, u64)>);

    impl Memory for Words {
        fn read(&mut self, address: u64) -> Option<u64> {
            (address >= SEGMENTS).then_some(())?;
            let found = self.0.iter().find(|(at, _)| *at == address);
            Some(found.map_or(0, |(_, word)| *word))
        }
    }

    /// Java 17, with an interpreter at the beginning of its only heap, and a compiled method in the segments from 8 on.
    fn machine() -> (Jvm, Words) {
        let jvm = Jvm {
            state: jvm::READY,
            interpreter: CodeRange {
                start: HEAP,
                end: HEAP + 0x200,
            },
            heaps: [
                CodeHeap {
                    start: HEAP,
                    end: HEAP + 0x10_0000,
                    segments: SEGMENTS,
                    shift: 7,
                },
                CodeHeap::default(),
                CodeHeap::default(),
            ],
            archive: CodeRange::default(),
            layout: JvmLayout {
                block_head: 16,
                blob_size: 12,
                blob_frame_size: 28,
                blob_compile_id: 304,
                method_constant: 8,
                constant_bytes: 48,
                frame_instruction: 64,
                ..JvmLayout::default()
            },
            pad: 0,
        };
        let blob = HEAP + 8 * 128 + 16;
        let words = Words(Vec::from([
            // Segments 8 to 15: the blob, a step of one, and steps that lead over others.
            (SEGMENTS + 8, 0x02_02_04_03_02_02_01_00),
            // Segments 16 to 23: free.
            (SEGMENTS + 16, u64::MAX),
            (blob + 8, 4000 << 32),
            (blob + 24, 4 << 32),
            (blob + 304, 77),
        ]));
        (jvm, words)
    }

    fn stepped(pc: u64, stack: &[(u64, u64)]) -> (u32, Registers, JavaFrame) {
        let (jvm, mut memory) = machine();
        memory.0.push((0x7e00_1000_0008, 0x7e00_2000_0000));
        let words = stack.iter().map(|(at, word)| (TOP + at, *word));
        let mut stack = Words(words.collect());
        let mut registers = Registers {
            ip: pc,
            sp: TOP,
            bp: TOP + 128,
        };
        let mut frame = JavaFrame::default();
        let outcome = step(
            &jvm,
            pc - 1,
            &mut registers,
            &mut stack,
            &mut memory,
            &mut frame,
        );
        (outcome, registers, frame)
    }

    /// Check that compiled code is left by the size of its frame, from each of its segments, and that the saved frame pointer is
    /// restored.
    #[test]
    fn compiled_code_is_left_by_the_size_of_its_frame() {
        let blob = HEAP + 8 * 128 + 16;
        for pc in [blob + 400, blob + 7 * 128] {
            let (outcome, registers, frame) = stepped(pc, &[(24, HEAP + 9), (16, 5)]);
            assert_eq!(outcome, outcome::CALLER, "{pc:x}");
            let expected = Registers {
                ip: HEAP + 9,
                sp: TOP + 32,
                bp: 5,
            };
            assert_eq!(registers, expected, "{pc:x}");
            assert_eq!(frame.code, blob | JavaFrame::BLOB);
            assert_eq!(frame.place, 77 << 32 | (pc - blob));
        }
    }

    /// Check that a word which was pushed for a call is passed over: the caller of generated code is generated, too.
    #[test]
    fn pushed_words_are_passed_over() {
        let pc = HEAP + 8 * 128 + 400;
        let (outcome, registers, _) = stepped(pc, &[(24, 5), (40, HEAP + 9), (32, 6)]);
        let expected = Registers {
            ip: HEAP + 9,
            sp: TOP + 48,
            bp: 6,
        };
        assert_eq!((outcome, registers), (outcome::CALLER, expected));
        // Without such a caller, the first word counts.
        let (outcome, registers, _) = stepped(pc, &[(24, 5)]);
        assert_eq!(
            (outcome, registers.ip, registers.sp),
            (outcome::CALLER, 5, TOP + 32)
        );
    }

    /// Check that the interpreter's frames lead to their caller's stack pointer, and tell method and position.
    #[test]
    fn interpreted_frames_are_left_by_their_frame_pointer() {
        let method = 0x7e00_1000_0000;
        let constant = 0x7e00_2000_0000;
        let words = [
            (136, HEAP + 9),
            (128, TOP + 400),
            (120, TOP + 176),
            (104, method),
            (64, constant + 48 + 13),
        ];
        let (outcome, registers, frame) = stepped(HEAP + 0x101, &words);
        let expected = Registers {
            ip: HEAP + 9,
            sp: TOP + 176,
            bp: TOP + 400,
        };
        assert_eq!((outcome, registers), (outcome::CALLER, expected));
        assert_eq!(
            (frame.code, frame.place),
            (method, constant >> 3 << 32 | 13)
        );
    }

    /// Check that free segments, and code of others, are left to other rules.
    #[test]
    fn other_code_is_none_of_its_own() {
        for pc in [HEAP + 17 * 128, HEAP + 0x10_0001, TOP] {
            let (outcome, registers, frame) = stepped(pc, &[]);
            assert_eq!(outcome, outcome::NO_RULE, "{pc:x}");
            assert_eq!((registers.sp, frame), (TOP, JavaFrame::default()), "{pc:x}");
        }
    }
}
