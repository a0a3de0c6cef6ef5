//! Functions written by hand. Without one of the rules, the calls of each would be counted wrong.

use super::super::Reason;
use super::*;

/// Fails unless the function is probed at its entry, for this reason.
#[track_caller]
fn stays_at_entry(code: &[u8], program: &str, reason: Reason) {
    let placement = place_whole(code, program);
    assert_eq!((placement.offset, placement.reason), (0, reason));
    assert_eq!(placement.registers, Register::PASSED);
    assert!(placement.is_stepped());
}

/// Check that a location is refused if a loop jumps to it or before it: each turn would count as a call.
#[test]
fn a_loop_into_the_prologue_is_refused() {
    // mov rbx, rdi; push rbp; pop rbp; jmp to the push.
    let to_the_place = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0xeb, 0xfc];
    stays_at_entry(&to_the_place, "malloc_entry", Reason::JumpedTo);
    // mov rbx, rdi; xor eax, eax; push rbp; pop rbp; jne to the xor; ret.
    let before_it = [0x48, 0x89, 0xfb, 0x31, 0xc0, 0x55, 0x5d, 0x75, 0xfa, 0xc3];
    stays_at_entry(&before_it, "malloc_entry", Reason::JumpedTo);
    // The same with a stored address: lea rax, [rip - 10].
    let address = [
        0x48, 0x89, 0xfb, 0x55, 0x5d, 0x48, 0x8d, 0x05, 0xf7, 0xff, 0xff, 0xff, 0xc3,
    ];
    stays_at_entry(&address, "malloc_entry", Reason::JumpedTo);
}

/// Check that a jump back to the entry does not matter: a probe at the entry would see it, too.
#[test]
fn a_jump_to_the_entry_does_not_matter() {
    // mov rbx, rdi; push rbp; pop rbp; je to the entry; ret.
    let code = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0x74, 0xf9, 0xc3];
    assert_eq!(place_whole(&code, "malloc_entry").offset, 3);
}

/// Check that jumps past the location, and out of the function, don't matter.
#[test]
fn branches_past_the_location_do_not_matter() {
    // mov rbx, rdi; push rbp; pop rbp; je to the pop; jmp far away.
    let code = [
        0x48, 0x89, 0xfb, 0x55, 0x5d, 0x74, 0xfd, 0xe9, 0, 0xff, 0xff, 0xff,
    ];
    assert_eq!(place_whole(&code, "malloc_entry").offset, 3);
}

/// Check that the search ends when a needed argument is overwritten, even if it was spilled before.
#[test]
fn overwritten_arguments_end_the_search() {
    // mov [rsp - 8], rdi; xor edi, edi; push rbp.
    let spilled = [0x48, 0x89, 0x7c, 0x24, 0xf8, 0x31, 0xff, 0x55, 0xc3];
    stays_at_entry(&spilled, "malloc_entry", Reason::NoneInTime);
    // An unneeded argument may be overwritten: the size is still in rsi.
    assert_eq!(place_whole(&spilled, "aligned_entry").offset, 7);
    // Exchanged registers still hold the arguments, but exchanges are not followed: xchg rdi, rax; push rbp.
    let exchanged = [0x48, 0x97, 0x90, 0x55, 0xc3];
    stays_at_entry(&exchanged, "malloc_entry", Reason::NoneInTime);
    // Overwritten under a condition: test eax, eax; cmove rdi, rax; push rbp.
    let perhaps = [0x85, 0xc0, 0x48, 0x0f, 0x44, 0xf8, 0x55, 0xc3];
    stays_at_entry(&perhaps, "malloc_entry", Reason::NoneInTime);
}

/// Check that a move of 32 bits is not followed: half of a size is another size.
#[test]
fn half_a_size_is_not_followed() {
    // mov eax, edi; mov rdi, [rip]; push rbp.
    let copy = [0x89, 0xf8, 0x48, 0x8b, 0x3d, 0, 0, 0, 0, 0x55, 0xc3];
    stays_at_entry(&copy, "malloc_entry", Reason::NoneInTime);
    // mov edi, edi; push rbp: the register loses its upper half.
    stays_at_entry(
        &[0x89, 0xff, 0x55, 0xc3],
        "malloc_entry",
        Reason::NoneInTime,
    );
}

/// Check that a copy of an argument is used if the argument itself is overwritten, and a copy of a copy, too.
#[test]
fn copies_are_followed() {
    // mov r8, rdi; mov rax, r8; xor edi, edi; xor r8d, r8d; push rbp.
    let code = [
        0x49, 0x89, 0xf8, 0x4c, 0x89, 0xc0, 0x31, 0xff, 0x45, 0x31, 0xc0, 0x55, 0xc3,
    ];
    let placement = place_whole(&code, "malloc_entry");
    assert_eq!(placement.offset, 11);
    assert_eq!(placement.registers[0], register(RAX));
    // The same with one copy.
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

/// Check that no location is after a change of the stack pointer, the return address or the caller's frame
/// pointer.
#[test]
fn stack_changes_end_the_search() {
    // sub rsp, 8; push rbp.
    let stack = [0x48, 0x83, 0xec, 8, 0x55, 0xc3];
    stays_at_entry(&stack, "malloc_entry", Reason::NoneInTime);
    // mov [rsp], rax; push rbp.
    let address = [0x48, 0x89, 0x04, 0x24, 0x55, 0xc3];
    stays_at_entry(&address, "malloc_entry", Reason::NoneInTime);
    // mov rax, rsp; push rbp: the function may write to the stack through the copy.
    let leaked = [0x48, 0x89, 0xe0, 0x55, 0xc3];
    stays_at_entry(&leaked, "malloc_entry", Reason::NoneInTime);
    // xor ebp, ebp; push rbx.
    stays_at_entry(
        &[0x31, 0xed, 0x53, 0xc3],
        "malloc_entry",
        Reason::NoneInTime,
    );
}

/// Check that no location is after the first write that other code can see: the block may be freed by then.
#[test]
fn visible_writes_end_the_search() {
    // lock xadd [rsi], rdi with a copy of rdi; push rbp.
    let handed_on = [0x48, 0x89, 0xf8, 0xf0, 0x48, 0x0f, 0xc1, 0x06, 0x55, 0xc3];
    stays_at_entry(&handed_on, "free_entry", Reason::NoneInTime);
    // mov [rip], rdi; push rbp.
    let stored = [0x48, 0x89, 0x3d, 0, 1, 0, 0, 0x55, 0xc3];
    stays_at_entry(&stored, "free_entry", Reason::NoneInTime);
}

/// Check that the search steps over `endbr64`, which is the target of indirect calls and is not emulated.
#[test]
fn endbr64_is_passed() {
    let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xc3];
    let placement = place_whole(&code, "malloc_entry");
    assert_eq!((placement.offset, placement.is_stepped()), (4, false));
}

/// Check that a function of one instruction is probed at its entry, emulated or executed out of line.
#[test]
fn functions_of_one_instruction_are_placed() {
    let jump = place_whole(&[0xe9, 0, 1, 0, 0], "free_entry");
    assert_eq!((jump.offset, jump.is_stepped()), (0, false));
    stays_at_entry(&[0xc3], "free_entry", Reason::NoneInTime);
    // A call ends the search; at the entry the probe would be there anyway.
    let call = [0xe8, 0, 1, 0, 0, 0xc3];
    assert!(!place_whole(&call, "malloc_entry").is_stepped());
    let later = [0x31, 0xc0, 0xe8, 0, 1, 0, 0, 0xc3];
    stays_at_entry(&later, "malloc_entry", Reason::NoneInTime);
}

/// Check that only the entry is probed in a function with a jump table, and that a jump through one pointer
/// does not matter.
#[test]
fn jump_tables_keep_the_entry() {
    let untold = Reason::Untold("it jumps by a table or to an address in a register");
    // mov rbx, rdi; push rbp; pop rbp; jmp by rax, or by [rdx + rax * 8].
    for jump in [&[0xff, 0xe0][..], &[0x3e, 0xff, 0xe0], &[0xff, 0x24, 0xc2]] {
        let code = [&[0x48, 0x89, 0xfb, 0x55, 0x5d], jump].concat();
        stays_at_entry(&code, "malloc_entry", untold);
    }
    // With a push at the entry, the targets of jumps don't matter.
    assert!(!place_whole(&[0x55, 0x5d, 0xff, 0xe0], "malloc_entry").is_stepped());
    // mov rbx, rdi; push rbp; pop rbp; jmp [rip].
    let pointer = [0x48, 0x89, 0xfb, 0x55, 0x5d, 0xff, 0x25, 0, 0, 0, 0];
    assert_eq!(place_whole(&pointer, "malloc_entry").offset, 3);
}

/// Check that the entry is probed if the code is cut, contains data or can't be decoded.
#[test]
fn unreadable_code_keeps_the_entry() {
    let whole = [0x48, 0x89, 0xfb, 0x55, 0x48, 0x83, 0xec, 8, 0xc3];
    assert_eq!(place_whole(&whole, "malloc_entry").offset, 3);
    for length in 0..whole.len() {
        let code = &whole[..length];
        let cut = place(code, Some(whole.len() as u64), needs("malloc_entry"));
        assert_eq!(cut.offset, 0, "{length} bytes");
        assert!(cut.is_stepped());
    }
    // After the location: a byte that no instruction begins with, and a jump into an instruction.
    for rest in [&[0x06, 0xc3][..], &[0x48, 0x83, 0xec, 8, 0xeb, 0xfb, 0xc3]] {
        let code = [&whole[..4], rest].concat();
        let placement = place_whole(&code, "malloc_entry");
        assert_eq!(placement.offset, 0, "{rest:x?}");
    }
}

/// Check that a function without a size ends where no instruction continues, and that the entry is probed if
/// that end is not found.
#[test]
fn functions_without_a_size_are_placed() {
    let needs = needs("malloc_entry");
    // mov rbx, rdi; push rbp; je over a ret; ret; ret; and bytes after the function.
    let code = [
        0x48, 0x89, 0xfb, 0x55, 0x74, 1, 0xc3, 0xc3, 0xeb, 0xf9, 0x06,
    ];
    assert_eq!(place(&code, None, needs).offset, 3);
    // Because of the branch, the jump back is part of the function.
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

/// Check that the search steps over a check for NULL only for `free`, and that the check's branch is the
/// location if there is no later one.
#[test]
fn null_checks_are_passed_for_free() {
    // test rdi, rdi; je over the push and ret; push rbp; ret; ret.
    let check = [0x48, 0x85, 0xff, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&check, "free_entry").offset, 5);
    assert_eq!(place_whole(&check, "malloc_entry").offset, 3);
    // cmp rdi, 0 does the same; cmp rdi, 1 doesn't.
    let compare = |byte| [0x48, 0x83, 0xff, byte, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&compare(0), "free_entry").offset, 6);
    assert_eq!(place_whole(&compare(1), "free_entry").offset, 4);
    // test edi, edi: if half of a pointer is zero, it need not be NULL.
    let half = [0x85, 0xff, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&half, "free_entry").offset, 2);
    // test rdi, rsi: zero if they have no bit in common.
    let other = [0x48, 0x85, 0xf7, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&other, "free_entry").offset, 3);
    // test rdi, rdi; xor eax, eax; je: the flags are those of the xor.
    let stale = [0x48, 0x85, 0xff, 0x31, 0xc0, 0x74, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&stale, "free_entry").offset, 5);
    // test rdi, rdi; loope: it also tests a counter.
    let loops = [0x48, 0x85, 0xff, 0xe1, 2, 0x55, 0xc3, 0xc3];
    stays_at_entry(&loops, "free_entry", Reason::NoneInTime);
    // test rdi, rdi; jne: the calls that count branch off.
    let inverted = [0x48, 0x85, 0xff, 0x75, 2, 0x55, 0xc3, 0xc3];
    assert_eq!(place_whole(&inverted, "free_entry").offset, 3);
    // test rdi, rdi; je; sub rsp, 8: no later instruction is emulated in time.
    let bare = [0x48, 0x85, 0xff, 0x74, 4, 0x48, 0x83, 0xec, 8, 0xc3];
    assert_eq!(place_whole(&bare, "free_entry").offset, 3);
    // With a loop back to the push, the branch is still correct.
    let looped = [0x48, 0x85, 0xff, 0x74, 4, 0x55, 0x5d, 0xeb, 0xfc, 0xc3];
    assert_eq!(place_whole(&looped, "free_entry").offset, 3);
}
