//! Knows which registers hold the address of a function, loaded from a slot that only the dynamic linker writes.
//!
//! Stage: probes. Runs in a reader. Without optimization, compilers load such an address first, and call it through the
//! register. Must not know allocators.

use iced_x86::{
    Code as Op, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

/// Registers that a called function may change.
pub(crate) const CHANGED_BY_CALLS: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// A register with the address of a known target, and the position of the instruction that loaded it.
struct Load<T> {
    register: Register,
    target: T,
    at: u64,
}

/// A call or jump through a register with a known address.
struct Use {
    /// The position of the load.
    from: u64,
    /// The position of the call or jump.
    to: u64,
    /// The position behind a call; `None` for a jump.
    behind: Option<u64>,
}

/// What is known while a function's code is followed.
pub(super) struct Loads<T> {
    held: Vec<Load<T>>,
    uses: Vec<Use>,
    info: InstructionInfoFactory,
}

/// The code that follows where a jump skips the load of an address that was taken for known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    /// The code behind this call, through an unknown address.
    Call(u64),
    /// Unknown code.
    Jump,
}

impl<T: Clone> Loads<T> {
    pub(super) fn new() -> Self {
        Self {
            held: Vec::new(),
            uses: Vec::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Forgets all registers: code is followed from another position.
    pub(super) fn jump(&mut self) {
        self.held.clear();
    }

    /// The target of a call or jump through a register with a known address.
    pub(super) fn target(&mut self, instruction: &Instruction) -> Option<T> {
        if instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let register = instruction.op0_register();
        let load = self.held.iter().find(|load| load.register == register)?;
        let is_call = instruction.flow_control() == FlowControl::IndirectCall;
        self.uses.push(Use {
            from: load.at,
            to: instruction.ip(),
            behind: is_call.then(|| instruction.next_ip()),
        });
        Some(load.target.clone())
    }

    /// Follows one instruction, which reads its memory operand from a slot with this target, if it has one.
    pub(super) fn step(&mut self, instruction: &Instruction, slot: Option<T>) {
        let used = self.info.info(instruction).used_registers();
        for used in used {
            if !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            ) {
                let written = used.register().full_register();
                self.held.retain(|load| load.register != written);
            }
        }
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            let is_kept = |load: &Load<T>| !CHANGED_BY_CALLS.contains(&load.register);
            self.held.retain(is_kept);
        }
        if let Some(target) = slot.filter(|_| instruction.code() == Op::Mov_r64_rm64) {
            self.held.push(Load {
                register: instruction.op0_register(),
                target,
                at: instruction.ip(),
            });
        }
    }

    /// What follows the uses of addresses whose loads a jump to a position skips, once for each use.
    pub(super) fn skipped(&mut self, to: u64) -> impl Iterator<Item = Skipped> {
        let skipped = self
            .uses
            .extract_if(.., move |it| it.from < to && to <= it.to);
        skipped.map(|it| it.behind.map_or(Skipped::Jump, Skipped::Call))
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// `mov rax, [rip+…]`: seven bytes.
    const LOAD_RAX: [u8; 7] = [0x48, 0x8b, 0x05, 0, 1, 0, 0];
    /// `mov rbx, [rip+…]`.
    const LOAD_RBX: [u8; 7] = [0x48, 0x8b, 0x1d, 0, 1, 0, 0];
    /// `lea rdi, [rbp-8]`.
    const ADDRESS_TO_RDI: [u8; 4] = [0x48, 0x8d, 0x7d, 0xf8];
    const CALL_RAX: [u8; 2] = [0xff, 0xd0];
    const CALL_RBX: [u8; 2] = [0xff, 0xd3];
    const JUMP_RAX: [u8; 2] = [0xff, 0xe0];
    /// `xor eax, eax`.
    const CLEAR_EAX: [u8; 2] = [0x31, 0xc0];

    const MALLOC: &str = "malloc";

    /// Follows code in which every load is from the slot of `malloc`; the number of known calls and jumps.
    fn follow(code: &[&[u8]]) -> (usize, Loads<&'static str>) {
        let bytes = code.concat();
        let mut loads = Loads::new();
        let mut known = 0;
        for instruction in &mut Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE) {
            if instruction.flow_control() != FlowControl::Next {
                known += usize::from(loads.target(&instruction) == Some(MALLOC));
            }
            let slot = instruction.is_ip_rel_memory_operand().then_some(MALLOC);
            loads.step(&instruction, slot);
        }
        (known, loads)
    }

    /// Check that a call and a jump through a register reach the function whose address was loaded into it.
    #[test]
    fn calls_through_registers_are_known() {
        assert_eq!(follow(&[&LOAD_RAX, &ADDRESS_TO_RDI, &CALL_RAX]).0, 1);
        assert_eq!(follow(&[&LOAD_RAX, &JUMP_RAX]).0, 1);
        assert_eq!(follow(&[&CALL_RAX]).0, 0);
    }

    /// Check that a register is forgotten when an instruction or a called function may change it.
    #[test]
    fn changed_registers_are_forgotten() {
        assert_eq!(follow(&[&LOAD_RAX, &CLEAR_EAX, &CALL_RAX]).0, 0);
        assert_eq!(follow(&[&LOAD_RAX, &CALL_RAX, &CALL_RAX]).0, 1);
        assert_eq!(follow(&[&LOAD_RBX, &CALL_RBX, &CALL_RBX]).0, 2);
    }

    /// Check that a jump between a load and the call through the register is found: the register may hold another address.
    #[test]
    fn jumps_behind_a_load_are_found() {
        let skipped = |code: &[&[u8]], to| follow(code).1.skipped(to).collect::<Vec<_>>();
        let call: [&[u8]; 3] = [&LOAD_RAX, &ADDRESS_TO_RDI, &CALL_RAX];
        assert_eq!(skipped(&call, 0), []);
        assert_eq!(skipped(&call, 7), [Skipped::Call(13)]);
        assert_eq!(skipped(&call, 11), [Skipped::Call(13)]);
        assert_eq!(skipped(&call, 13), []);
        assert_eq!(skipped(&[&LOAD_RAX, &JUMP_RAX], 7), [Skipped::Jump]);
    }
}
