//! Functions by hand, each of which would be counted wrong by a rule less.

use super::super::Reason;
use super::*;

/// Check that the function gets its entry, for this reason.
#[track_caller]
fn stays_at_entry(code: &[u8], program: &str, reason: Reason) {
    let placement = place_whole(code, program);
    assert_eq!((placement.offset, placement.reason), (0, reason));
    assert_eq!(placement.registers, Register::PASSED);
    assert!(placement.is_stepped());
}

/// Check that a loop back to a place, or to before it, makes it none: each turn would be a call.
#[test]
fn a_loop_back_into_the_prologue() {
    // mov rbx, rdi; push rbp; pop rbp; jmp to the push.
    let to_the_place = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0xeb, 0xfc];
    stays_at_entry(&to_the_place, "malloc_entry", Reason::JumpedTo);
    // mov rbx, rdi; xor eax, eax; push rbp; pop rbp; jne to the xor; ret.
    let before_it = [0x48, 0x89, 0xfb, 0x31, 0xc0, 0x55, 0x5d, 0x75, 0xfa, 0xc3];
    stays_at_entry(&before_it, "malloc_entry", Reason::JumpedTo);
    // The same by an address that is kept: lea rax, [rip - 10].
    let address = [
        0x48, 0x89, 0xfb, 0x55, 0x5d, 0x48, 0x8d, 0x05, 0xf7, 0xff, 0xff, 0xff, 0xc3,
    ];
    stays_at_entry(&address, "malloc_entry", Reason::JumpedTo);
}

/// Check that a jump back to the entry itself harms nothing: a probe there would see it, too.
#[test]
fn a_jump_to_the_entry() {
    // mov rbx, rdi; push rbp; pop rbp; je to the entry; ret.
    let code = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0x74, 0xf9, 0xc3];
    assert_eq!(place_whole(&code, "malloc_entry").offset, 3);
}

/// Check that jumps past the place, and out of the function, don't matter.
#[test]
fn branches_past_the_place() {
    // mov rbx, rdi; push rbp; pop rbp; je to the pop; jmp far away.
    let code = [
        0x48, 0x89, 0xfb, 0x55, 0x5d, 0x74, 0xfd, 0xe9, 0, 0xff, 0xff, 0xff,
    ];
    assert_eq!(place_whole(&code, "malloc_entry").offset, 3);
}

/// Check that an argument that is overwritten ends the search, also where it was spilled before.
#[test]
fn arguments_that_are_gone() {
    // mov [rsp - 8], rdi; xor edi, edi; push rbp.
    let spilled = [0x48, 0x89, 0x7c, 0x24, 0xf8, 0x31, 0xff, 0x55, 0xc3];
    stays_at_entry(&spilled, "malloc_entry", Reason::NoneInTime);
    // An argument that isn't needed may go: the size is still in rsi.
    assert_eq!(place_whole(&spilled, "aligned_entry").offset, 7);
    // Exchanged registers hold what they held, but nobody follows that: xchg rdi, rax; push rbp.
    let exchanged = [0x48, 0x97, 0x90, 0x55, 0xc3];
    stays_at_entry(&exchanged, "malloc_entry", Reason::NoneInTime);
    // By a condition: test eax, eax; cmove rdi, rax; push rbp.
    let perhaps = [0x85, 0xc0, 0x48, 0x0f, 0x44, 0xf8, 0x55, 0xc3];
    stays_at_entry(&perhaps, "malloc_entry", Reason::NoneInTime);
}

/// Check that a move of 32 bits isn't followed: half of a size is another size.
#[test]
fn half_a_size() {
    // mov eax, edi; mov rdi, [rip]; push rbp.
    let copy = [0x89, 0xf8, 0x48, 0x8b, 0x3d, 0, 0, 0, 0, 0x55, 0xc3];
    stays_at_entry(&copy, "malloc_entry", Reason::NoneInTime);
    // mov edi, edi; push rbp: the register keeps its name and loses its upper half.
    stays_at_entry(
        &[0x89, 0xff, 0x55, 0xc3],
        "malloc_entry",
        Reason::NoneInTime,
    );
}

/// Check that a copy is found where the argument itself is gone, and copies of copies.
#[test]
fn copies_are_followed() {
    // mov r8, rdi; mov rax, r8; xor edi, edi; xor r8d, r8d; push rbp.
    let code = [
        0x49, 0x89, 0xf8, 0x4c, 0x89, 0xc0, 0x31, 0xff, 0x45, 0x31, 0xc0, 0x55, 0xc3,
    ];
    let placement = place_whole(&code, "malloc_entry");
    assert_eq!(placement.offset, 11);
    assert_eq!(placement.registers[0], register(RAX));
    // The same without the second copy's loss of its source.
    let code = [0x49, 0x89, 0xf8, 0x31, 0xff, 0x55, 0xc3];
    assert_eq!(
        place_whole(&code, "malloc_entry").registers[0],
        register(R8)
    );
    // mov rbx, rdi; mov rbx, rsi: the copy is another argument's now.
    let code = [0x48, 0x89, 0xfb, 0x48, 0x89, 0xf3, 0x55, 0xc3];
    let placement = place_whole(&code, "calloc_entry");
    assert_eq!(placement.registers[0], register(RDI));
    let code = [0x48, 0x89, 0xfb, 0x31, 0xff, 0x55, 0xc3];
    assert_eq!(
        place_whole(&code, "malloc_entry").registers[0],
        register(RBX)
    );
}

/// Check that no place lies behind a change of the stack pointer, of the return address or of the
/// caller's frame pointer.
#[test]
fn the_stack_moves_first() {
    // sub rsp, 8; push rbp.
    let stack = [0x48, 0x83, 0xec, 8, 0x55, 0xc3];
    stays_at_entry(&stack, "malloc_entry", Reason::NoneInTime);
    // mov [rsp], rax; push rbp.
    let address = [0x48, 0x89, 0x04, 0x24, 0x55, 0xc3];
    stays_at_entry(&address, "malloc_entry", Reason::NoneInTime);
    // mov rax, rsp; push rbp: who knows what is written there.
    let leaked = [0x48, 0x89, 0xe0, 0x55, 0xc3];
    stays_at_entry(&leaked, "malloc_entry", Reason::NoneInTime);
    // xor ebp, ebp; push rbx.
    stays_at_entry(
        &[0x31, 0xed, 0x53, 0xc3],
        "malloc_entry",
        Reason::NoneInTime,
    );
}

/// Check that no place lies behind the first thing that others can see: the block may be another's by
/// then.
#[test]
fn work_has_begun() {
    // lock xadd [rsi], rdi with a copy of rdi; push rbp.
    let handed_on = [0x48, 0x89, 0xf8, 0xf0, 0x48, 0x0f, 0xc1, 0x06, 0x55, 0xc3];
    stays_at_entry(&handed_on, "free_entry", Reason::NoneInTime);
    // mov [rip], rdi; push rbp.
    let stored = [0x48, 0x89, 0x3d, 0, 1, 0, 0, 0x55, 0xc3];
    stays_at_entry(&stored, "free_entry", Reason::NoneInTime);
}

/// Check that `endbr64` is gone past: it is where indirect calls land, and isn't emulated.
#[test]
fn endbr64_first() {
    let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xc3];
    let placement = place_whole(&code, "malloc_entry");
    assert_eq!((placement.offset, placement.is_stepped()), (4, false));
}

/// Check functions of one instruction: emulated, or executed out of line.
#[test]
fn one_instruction() {
    let jump = place_whole(&[0xe9, 0, 1, 0, 0], "free_entry");
    assert_eq!((jump.offset, jump.is_stepped()), (0, false));
    stays_at_entry(&[0xc3], "free_entry", Reason::NoneInTime);
    // A call ends the search; at the entry it is where the probe would stand anyhow.
    let call = [0xe8, 0, 1, 0, 0, 0xc3];
    assert!(!place_whole(&call, "malloc_entry").is_stepped());
    let later = [0x31, 0xc0, 0xe8, 0, 1, 0, 0, 0xc3];
    stays_at_entry(&later, "malloc_entry", Reason::NoneInTime);
}

/// Check that a jump table makes everything but the entry unknown, and a jump through one pointer
/// doesn't.
#[test]
fn jump_tables() {
    let untold = Reason::Untold("it jumps by a table or to an address in a register");
    // mov rbx, rdi; push rbp; pop rbp; jmp by rax, or by [rdx + rax * 8].
    for jump in [&[0xff, 0xe0][..], &[0x3e, 0xff, 0xe0], &[0xff, 0x24, 0xc2]] {
        let code = [&[0x48, 0x89, 0xfb, 0x55, 0x5d], jump].concat();
        stays_at_entry(&code, "malloc_entry", untold);
    }
    // With the push at the entry, nothing has to be known.
    assert!(!place_whole(&[0x55, 0x5d, 0xff, 0xe0], "malloc_entry").is_stepped());
    // mov rbx, rdi; push rbp; pop rbp; jmp [rip].
    let pointer = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0xff, 0x25, 0, 0, 0, 0];
    assert_eq!(place_whole(&pointer, "malloc_entry").offset, 3);
}

/// Check that code that is cut short, has data in it or can't be decoded keeps the entry.
#[test]
fn code_that_cannot_be_read() {
    let whole = [0x48, 0x89, 0xfb, 0x55, 0x48, 0x83, 0xec, 8, 0xc3];
    assert_eq!(place_whole(&whole, "malloc_entry").offset, 3);
    for length in 0..whole.len() {
        let code = &whole[..length];
        let cut = place(code, Some(whole.len() as u64), needs("malloc_entry"));
        assert_eq!(cut.offset, 0, "{length} bytes");
        assert!(cut.is_stepped());
    }
    // Behind the place a byte that no instruction begins with; a jump into an instruction.
    for rest in [&[0x06, 0xc3][..], &[0x48, 0x83, 0xec, 8, 0xeb, 0xfb, 0xc3]] {
        let code = [&whole[..4], rest].concat();
        let placement = place_whole(&code, "malloc_entry");
        assert_eq!(placement.offset, 0, "{rest:x?}");
    }
}

/// Check that without a size, the function ends where nothing in it goes on, and is given up where that
/// can't be found.
#[test]
fn no_size() {
    let needs = needs("malloc_entry");
    // mov rbx, rdi; push rbp; je over a ret; ret; ret; and what is none of it.
    let code = [
        0x48, 0x89, 0xfb, 0x55, 0x74, 1, 0xc3, 0xc3, 0xeb, 0xf9, 0x06,
    ];
    assert_eq!(place(&code, None, needs).offset, 3);
    // The branch makes the jump back a part of it.
    let code = [
        0x48, 0x89, 0xfb, 0x55, 0x74, 2, 0xc3, 0xc3, 0xeb, 0xf9, 0x06,
    ];
    assert_eq!(place(&code, None, needs).reason, Reason::JumpedTo);
    let endless = [0x48, 0x89, 0xfb, 0x55, 0x90, 0x90];
    assert!(matches!(
        place(&endless, None, needs).reason,
        Reason::Untold(_)
    ));
}

/// Check that only the check that the pointer is NULL is gone past, only for `free`, and that the
/// branch itself is the place where nothing comes behind it.
#[test]
fn null_checks() {
    // test rdi, rdi; je over the push and ret; push rbp; ret; ret.
    let check = [0x48, 0x85, 0xff, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&check, "free_entry").offset, 5);
    assert_eq!(place_whole(&check, "malloc_entry").offset, 3);
    // cmp rdi, 0 does the same; cmp rdi, 1 doesn't.
    let compare = |byte| [0x48, 0x83, 0xff, byte, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&compare(0), "free_entry").offset, 6);
    assert_eq!(place_whole(&compare(1), "free_entry").offset, 4);
    // test edi, edi: a pointer of which half is zero isn't NULL.
    let half = [0x85, 0xff, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&half, "free_entry").offset, 2);
    // test rdi, rsi: zero where they have no bit in common.
    let other = [0x48, 0x85, 0xf7, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&other, "free_entry").offset, 3);
    // test rdi, rdi; xor eax, eax; je: the flags are of something else by then.
    let stale = [0x48, 0x85, 0xff, 0x31, 0xc0, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&stale, "free_entry").offset, 5);
    // test rdi, rdi; loope: it goes by a counter, too.
    let loops = [0x48, 0x85, 0xff, 0xe1, 2, 0x55, 0xc3, 0xc3];
    stays_at_entry(&loops, "free_entry", Reason::NoneInTime);
    // test rdi, rdi; jne: those that count branch off.
    let inverted = [0x48, 0x85, 0xff, 0x75, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&inverted, "free_entry").offset, 3);
    // test rdi, rdi; je; sub rsp, 8: nothing behind it is emulated in time.
    let bare = [0x48, 0x85, 0xff, 0x74, 4, 0x48, 0x83, 0xec, 8, 0xc3];
    assert_eq!(place_whole(&bare, "free_entry").offset, 3);
    // With a loop back to the push, the branch is still good.
    let looped = [0x48, 0x85, 0xff, 0x74, 4, 0x55, 0x5d, 0xeb, 0xfc, 0xc3];
    assert_eq!(place_whole(&looped, "free_entry").offset, 3);
}
