//! One step up a stack by a compact unwind rule. The kernel program runs this code, and the host tests it.
//!
//! No stage of the flow; x86-64 only. It must not know tables or maps: its caller finds the rule, and gives
//! access to the stack's memory. Written for the kernel's verifier: no slices, no division, no panics,
//! wrapping arithmetic only.

/// How to find a frame's canonical frame address: the value of its caller's stack pointer.
pub mod cfa {
    /// No unwind information covers this code.
    pub const NONE: u8 = 0;
    /// The stack pointer plus the offset.
    pub const SP: u8 = 1;
    /// The frame pointer plus the offset.
    pub const BP: u8 = 2;
    /// A stub of the procedure linkage table: the stack pointer plus 8, and 8 more after the stub has pushed
    /// its index. In the 16 bytes of the stub, that is from the offset on.
    pub const PLT: u8 = 3;
    /// The word at the frame pointer plus the offset: a frame that realigned the stack.
    pub const DEREF_BP: u8 = 4;
    /// The word at the stack pointer plus the offset.
    pub const DEREF_SP: u8 = 5;
    /// The kernel's frame below a signal handler, which holds all registers.
    pub const SIGNAL: u8 = 6;
    /// The first frame of a thread: it has no caller.
    pub const OUTERMOST: u8 = 7;
    /// There is unwind information, but a rule can't express it.
    pub const UNSUPPORTED: u8 = 8;
}

/// How to find the caller's frame pointer.
pub mod bp {
    /// It is still in its register.
    pub const SAME: u8 = 0;
    /// It was saved at the canonical frame address plus the offset.
    pub const AT_CFA: u8 = 1;
    /// It is lost, or a rule can't express its location.
    pub const UNDEFINED: u8 = 2;
    /// It was saved at the frame pointer plus the offset.
    pub const AT_BP: u8 = 3;
}

/// Results of a step.
pub mod outcome {
    /// The registers are the caller's. Its `ip` is a return address: the call is before it.
    pub const CALLER: u32 = 0;
    /// The registers are the caller's. Its `ip` is the instruction that was interrupted.
    pub const CALLER_EXACT: u32 = 1;
    /// There is no caller: the stack is complete.
    pub const OUTERMOST: u32 = 2;
    /// No unwind information covers the code. This and the following results are the reasons why a stack is
    /// incomplete.
    pub const NO_RULE: u32 = 3;
    /// There is unwind information that a rule can't express.
    pub const UNSUPPORTED: u32 = 4;
    /// The stack's memory can't be read.
    pub const UNREADABLE: u32 = 5;
    /// The caller's stack pointer isn't above the frame's.
    pub const STUCK: u32 = 6;
    /// The step needs the frame pointer, and an earlier frame lost it.
    pub const LOST_FRAME_POINTER: u32 = 7;
    /// The frame pointer is no address in the stack above.
    pub const NO_FRAME_POINTER: u32 = 8;
    /// Number of results.
    pub const COUNT: u32 = 9;
}

/// Compact form of the unwind information of a position in the code. The return address is always in the 8
/// bytes below the canonical frame address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Rule {
    /// A constant of [`cfa`].
    pub cfa: u8,
    /// A constant of [`bp`].
    pub bp: u8,
    /// Where the frame pointer was saved.
    pub bp_offset: i16,
    /// Offset that is added to find the canonical frame address.
    pub cfa_offset: i32,
}

const _: () = {
    assert!(size_of::<Rule>() == 8);
    assert!(align_of::<Rule>() == 4);
    assert!(core::mem::offset_of!(Rule, bp) == 1);
    assert!(core::mem::offset_of!(Rule, bp_offset) == 2);
    assert!(core::mem::offset_of!(Rule, cfa_offset) == 4);
};

impl Rule {
    /// No unwind information.
    pub const NONE: Self = Self::of_kind(cfa::NONE);
    /// The kernel's frame below a signal handler.
    pub const SIGNAL: Self = Self::of_kind(cfa::SIGNAL);
    /// The first frame of a thread.
    pub const OUTERMOST: Self = Self::of_kind(cfa::OUTERMOST);
    /// Unwind information that a rule can't express.
    pub const UNSUPPORTED: Self = Self::of_kind(cfa::UNSUPPORTED);

    const fn of_kind(cfa: u8) -> Self {
        Self {
            cfa,
            bp: bp::SAME,
            bp_offset: 0,
            cfa_offset: 0,
        }
    }
}

/// The registers that a walk up the stack follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, or [`LOST_BP`].
    pub bp: u64,
}

/// The value of a lost frame pointer. It is no pointer, because it isn't aligned, and it differs from the 0
/// that ends a chain of frame pointers.
pub const LOST_BP: u64 = 1;

/// Access to the memory of the thread whose stack is walked.
pub trait Memory {
    /// The 8 bytes at an address.
    fn read(&mut self, address: u64) -> Option<u64>;
}

/// Offsets of the registers that the kernel saves in a signal's frame, from the stack pointer of the code
/// that returns from the handler.
mod signal_frame {
    pub(super) const BP: u64 = 120;
    pub(super) const SP: u64 = 160;
    pub(super) const IP: u64 = 168;
}

/// Steps from a frame to its caller by the rule of the frame's code. Returns a constant of [`outcome`]. The
/// registers change only if there is a caller.
#[inline(always)]
pub fn step<M: Memory>(rule: Rule, registers: &mut Registers, memory: &mut M) -> u32 {
    let offset = rule.cfa_offset as i64 as u64;
    let needs_bp = rule.cfa == cfa::BP || rule.cfa == cfa::DEREF_BP || rule.bp == bp::AT_BP;
    if needs_bp && registers.bp == LOST_BP {
        return outcome::LOST_FRAME_POINTER;
    }
    let caller_sp = match rule.cfa {
        cfa::SP => registers.sp.wrapping_add(offset),
        cfa::BP => registers.bp.wrapping_add(offset),
        cfa::PLT => {
            let pushed = if registers.ip & 15 >= offset { 8 } else { 0 };
            registers.sp.wrapping_add(8).wrapping_add(pushed)
        }
        cfa::DEREF_BP | cfa::DEREF_SP => {
            let base = if rule.cfa == cfa::DEREF_BP {
                registers.bp
            } else {
                registers.sp
            };
            match memory.read(base.wrapping_add(offset)) {
                Some(value) => value,
                None => return outcome::UNREADABLE,
            }
        }
        cfa::SIGNAL => return step_signal(registers, memory),
        cfa::OUTERMOST => return outcome::OUTERMOST,
        cfa::NONE => return outcome::NO_RULE,
        _ => return outcome::UNSUPPORTED,
    };
    if caller_sp <= registers.sp {
        return outcome::STUCK;
    }
    let Some(ip) = memory.read(caller_sp.wrapping_sub(8)) else {
        return outcome::UNREADABLE;
    };
    if ip == 0 {
        return outcome::OUTERMOST;
    }
    let bp_offset = rule.bp_offset as i64 as u64;
    let caller_bp = match rule.bp {
        bp::SAME => registers.bp,
        bp::AT_CFA | bp::AT_BP => {
            let base = if rule.bp == bp::AT_CFA {
                caller_sp
            } else {
                registers.bp
            };
            match memory.read(base.wrapping_add(bp_offset)) {
                Some(value) => value,
                None => return outcome::UNREADABLE,
            }
        }
        _ => LOST_BP,
    };
    registers.ip = ip;
    registers.sp = caller_sp;
    registers.bp = caller_bp;
    outcome::CALLER
}

/// Steps from a frame to its caller by a rule, or by the frame pointer if no rule covers the code. Returns a constant of
/// [`outcome`], and whether a rule led there.
#[inline(always)]
pub fn step_either<M: Memory>(
    rule: Rule,
    registers: &mut Registers,
    memory: &mut M,
) -> (u32, bool) {
    match step(rule, registers, memory) {
        outcome::NO_RULE => (step_frame_pointer(registers, memory), false),
        outcome => (outcome, true),
    }
}

/// Steps from a signal's frame to the interrupted frame, which can be on another stack, below or above.
#[inline(always)]
fn step_signal<M: Memory>(registers: &mut Registers, memory: &mut M) -> u32 {
    let at = registers.sp;
    let Some(ip) = memory.read(at.wrapping_add(signal_frame::IP)) else {
        return outcome::UNREADABLE;
    };
    let Some(sp) = memory.read(at.wrapping_add(signal_frame::SP)) else {
        return outcome::UNREADABLE;
    };
    let Some(bp) = memory.read(at.wrapping_add(signal_frame::BP)) else {
        return outcome::UNREADABLE;
    };
    registers.ip = ip;
    registers.sp = sp;
    registers.bp = bp;
    outcome::CALLER_EXACT
}

/// Steps from a frame to its caller by the frame pointer, for code without unwind information, such as code
/// of a just-in-time compiler. By convention, a frame pointer of 0 ends the stack.
#[inline(always)]
pub fn step_frame_pointer<M: Memory>(registers: &mut Registers, memory: &mut M) -> u32 {
    let bp = registers.bp;
    // Boost.Context begins a coroutine with the address that its function returns to in the frame pointer.
    if bp == 0 || bp == registers.ip {
        return outcome::OUTERMOST;
    }
    if bp == LOST_BP {
        return outcome::LOST_FRAME_POINTER;
    }
    // A value below the stack pointer belongs to a frame that has returned, or is no frame pointer.
    if bp & 7 != 0 || bp < registers.sp || bp > u64::MAX - 16 {
        return outcome::NO_FRAME_POINTER;
    }
    let Some(ip) = memory.read(bp.wrapping_add(8)) else {
        return outcome::UNREADABLE;
    };
    let Some(caller_bp) = memory.read(bp) else {
        return outcome::UNREADABLE;
    };
    if ip == 0 {
        return outcome::OUTERMOST;
    }
    registers.ip = ip;
    registers.sp = bp.wrapping_add(16);
    registers.bp = caller_bp;
    outcome::CALLER
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x7fff_0000_0000;

    /// A stack of words from `TOP` on.
    struct Stack([u64; 32]);

    impl Stack {
        fn new(words: &[(u64, u64)]) -> Self {
            let mut stack = [0; 32];
            for &(at, value) in words {
                stack[(at / 8) as usize] = value;
            }
            Self(stack)
        }
    }

    impl Memory for Stack {
        fn read(&mut self, address: u64) -> Option<u64> {
            let at = address.checked_sub(TOP)?;
            (at % 8 == 0).then_some(())?;
            self.0.get(usize::try_from(at / 8).ok()?).copied()
        }
    }

    const fn rule(cfa: u8, cfa_offset: i32, bp: u8, bp_offset: i16) -> Rule {
        Rule {
            cfa,
            bp,
            bp_offset,
            cfa_offset,
        }
    }

    const START: Registers = Registers {
        ip: 0x1000,
        sp: TOP,
        bp: TOP + 64,
    };

    fn stepped(rule: Rule, words: &[(u64, u64)]) -> (u32, Registers) {
        let mut registers = START;
        let code = step(rule, &mut registers, &mut Stack::new(words));
        (code, registers)
    }

    fn caller(ip: u64, sp: u64, bp: u64) -> (u32, Registers) {
        (outcome::CALLER, Registers { ip, sp, bp })
    }

    /// Check that each kind of frame leads to the caller that its words describe.
    #[test]
    fn every_kind_of_frame_is_followed() {
        let sp = rule(cfa::SP, 32, bp::SAME, 0);
        assert_eq!(
            stepped(sp, &[(24, 0x2000)]),
            caller(0x2000, TOP + 32, TOP + 64)
        );
        let saved = rule(cfa::SP, 32, bp::AT_CFA, -16);
        assert_eq!(
            stepped(saved, &[(24, 0x2000), (16, 77)]),
            caller(0x2000, TOP + 32, 77)
        );
        let frame = rule(cfa::BP, 16, bp::AT_CFA, -16);
        assert_eq!(
            stepped(frame, &[(72, 0x2000), (64, TOP + 200)]),
            caller(0x2000, TOP + 80, TOP + 200)
        );
        let realigned = rule(cfa::DEREF_BP, -8, bp::AT_BP, 0);
        assert_eq!(
            stepped(realigned, &[(56, TOP + 128), (120, 0x2000), (64, 5)]),
            caller(0x2000, TOP + 128, 5)
        );
        let through_sp = rule(cfa::DEREF_SP, 8, bp::UNDEFINED, 0);
        assert_eq!(
            stepped(through_sp, &[(8, TOP + 128), (120, 0x2000)]),
            caller(0x2000, TOP + 128, LOST_BP)
        );
    }

    /// Check that a stub of the linkage table has one word more after it has pushed its index.
    #[test]
    fn stubs_are_followed() {
        let plt = rule(cfa::PLT, 11, bp::SAME, 0);
        for (ip, size) in [(0x1000, 8), (0x100a, 8), (0x100b, 16), (0x100f, 16)] {
            let mut registers = Registers { ip, ..START };
            let mut stack = Stack::new(&[(0, 0x2000), (8, 0x2000)]);
            assert_eq!(step(plt, &mut registers, &mut stack), outcome::CALLER);
            assert_eq!(registers.sp, TOP + size, "{ip:x}");
        }
    }

    /// Check that a signal's frame restores all registers, also if the interrupted frame is on a lower stack.
    #[test]
    fn signal_frames_are_followed() {
        let words = [(168, 0x3000), (160, 0x1_0000), (120, 9)];
        let (code, registers) = stepped(Rule::SIGNAL, &words);
        assert_eq!(code, outcome::CALLER_EXACT);
        let expected = Registers {
            ip: 0x3000,
            sp: 0x1_0000,
            bp: 9,
        };
        assert_eq!(registers, expected);
    }

    /// Check that each way to end has its result, and leaves the registers unchanged.
    #[test]
    fn every_end_has_a_reason() {
        let cases = [
            (Rule::NONE, outcome::NO_RULE),
            (Rule::OUTERMOST, outcome::OUTERMOST),
            (Rule::UNSUPPORTED, outcome::UNSUPPORTED),
            (rule(200, 8, 0, 0), outcome::UNSUPPORTED),
            (rule(cfa::SP, 8, bp::SAME, 0), outcome::OUTERMOST),
            (rule(cfa::SP, 0, bp::SAME, 0), outcome::STUCK),
            (rule(cfa::SP, -8, bp::SAME, 0), outcome::STUCK),
            (rule(cfa::BP, -64, bp::SAME, 0), outcome::STUCK),
            (rule(cfa::SP, 4096, bp::SAME, 0), outcome::UNREADABLE),
            (rule(cfa::DEREF_SP, 4096, bp::SAME, 0), outcome::UNREADABLE),
            (rule(cfa::BP, i32::MIN, bp::SAME, 0), outcome::STUCK),
            (rule(cfa::BP, i32::MAX, bp::SAME, 0), outcome::UNREADABLE),
        ];
        for (rule, expected) in cases {
            assert_eq!(stepped(rule, &[]), (expected, START), "{rule:?}");
        }
        let unsaved = rule(cfa::SP, 16, bp::AT_CFA, 4096);
        let (code, registers) = stepped(unsaved, &[(8, 0x2000)]);
        assert_eq!((code, registers), (outcome::UNREADABLE, START));
    }

    /// Check that a lost frame pointer stops the walk at the first frame that needs it, and not earlier.
    #[test]
    fn a_lost_frame_pointer_is_remembered() {
        let mut registers = Registers {
            bp: LOST_BP,
            ..START
        };
        let mut stack = Stack::new(&[(24, 0x2000)]);
        let by_sp = rule(cfa::SP, 32, bp::SAME, 0);
        assert_eq!(step(by_sp, &mut registers, &mut stack), outcome::CALLER);
        let lost = outcome::LOST_FRAME_POINTER;
        for needs in [
            rule(cfa::BP, 16, bp::SAME, 0),
            rule(cfa::DEREF_BP, 16, bp::SAME, 0),
            rule(cfa::SP, 16, bp::AT_BP, 0),
        ] {
            assert_eq!(step(needs, &mut registers, &mut stack), lost, "{needs:?}");
        }
        assert_eq!(step_frame_pointer(&mut registers, &mut stack), lost);
    }

    /// Check that a chain of frame pointers is followed to its end, and that invalid frame pointers are
    /// refused.
    #[test]
    fn frame_pointers_are_followed() {
        let mut stack = Stack::new(&[(64, TOP + 96), (72, 0x2000), (96, 0), (104, 0x3000)]);
        let mut registers = START;
        let mut ips = [0; 2];
        for ip in &mut ips {
            let code = step_frame_pointer(&mut registers, &mut stack);
            assert_eq!(code, outcome::CALLER);
            *ip = registers.ip;
        }
        assert_eq!(ips, [0x2000, 0x3000]);
        assert_eq!(registers.sp, TOP + 112);
        let end = step_frame_pointer(&mut registers, &mut stack);
        assert_eq!(end, outcome::OUTERMOST);
        let mut coroutine = Registers {
            bp: START.ip,
            ..START
        };
        let end = step_frame_pointer(&mut coroutine, &mut stack);
        assert_eq!(end, outcome::OUTERMOST);

        let refused = [
            (TOP - 8, outcome::NO_FRAME_POINTER),
            (TOP + 3, outcome::NO_FRAME_POINTER),
            (u64::MAX - 7, outcome::NO_FRAME_POINTER),
            (TOP + 4096, outcome::UNREADABLE),
        ];
        for (bp, expected) in refused {
            let mut registers = Registers { bp, ..START };
            let code = step_frame_pointer(&mut registers, &mut stack);
            assert_eq!(code, expected, "{bp:x}");
            assert_eq!(registers, Registers { bp, ..START });
        }
    }
}
