//! Placement on x86-64: follows a function's first instructions.
//!
//! Stage: probes. A location is correct if every call passes it exactly once, and if there:
//!
//! - the stack pointer is the one at the entry, because a return probe finds the return address by it
//! - `rbp` is the caller's, because the walk of the stack starts with it
//! - each argument is complete in a known register
//! - the function has not changed anything that other code can see
//!
//! Only the function itself is read. If other code jumped to its first instructions, that would count as a
//! call. Compilers write no such code: a part that is split off is entered from after the location, and
//! returns after it.

use heaptrace_common::cookie::{ARGUMENTS, Register as Slot};
use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    OpAccess, OpKind, Register, UsedMemory,
};

use super::branches::{self, BASE};
use super::emulated::{self, KernelVersion};
use super::model::{Architecture, Function, Needs, Placement, Reason};
use super::relocate;
use super::skipped::Skipped;

/// Maximum offset of a location from the entry.
const MAX_OFFSET: u64 = 128;

/// The rules of x86-64 on a kernel.
pub(super) struct X86 {
    /// The kernel's version.
    pub(super) kernel: KernelVersion,
}

impl Architecture for X86 {
    fn place(&self, function: Function<'_>, needs: Needs) -> Placement {
        let mut found = candidates(self.kernel, function.code, needs);
        let Some(first) = found.candidates.first() else {
            let reason = if found.entry.is_empty() {
                Reason::Unreadable
            } else {
                Reason::NoneInTime
            };
            return Placement::entry(found.entry, reason);
        };
        // At the entry nothing has moved yet, and a jump back to the entry would hit any probe there.
        if first.offset == 0 && found.candidates.len() == 1 {
            return found.candidates.remove(0);
        }
        match branches::lowest_target(function) {
            Ok(target) => found
                .candidates
                .into_iter()
                .rfind(|candidate| candidate.offset < target)
                .unwrap_or_else(|| Placement::entry(found.entry, Reason::JumpedTo)),
            Err(_) if first.offset == 0 => found.candidates.remove(0),
            Err(why) => Placement::entry(found.entry, Reason::Untold(why)),
        }
    }

    fn skipped(&self, code: &[u8], probed: u64) -> Option<Skipped> {
        relocate::skipped(code, probed)
    }
}

/// The emulated instructions that every call executes; the last one is the best.
struct Candidates {
    /// The function's first instruction.
    entry: String,
    candidates: Vec<Placement>,
}

fn candidates(kernel: KernelVersion, code: &[u8], needs: Needs) -> Candidates {
    let mut decoder = Decoder::with_ip(64, code, BASE, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut state = State::at_entry(needs);
    let mut found = Candidates {
        entry: String::new(),
        candidates: Vec::new(),
    };
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let offset = decoder.ip().wrapping_sub(BASE);
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() || offset > MAX_OFFSET {
            break;
        }
        if offset == 0 {
            found.entry = text(&instruction);
        }
        // When the kernel emulates a call, it may not update the processor's shadow stack. So calls are not
        // probed, except at the entry, where the probe would be anyway.
        let is_call = instruction.flow_control() == FlowControl::Call;
        let bytes = code.get(offset as usize..).unwrap_or_default();
        let bytes = bytes.get(..instruction.len()).unwrap_or_default();
        if (offset == 0 || !is_call)
            && let Some(rule) = emulated::rule(kernel, bytes)
            && let Some(registers) = state.arguments(needs)
        {
            found.candidates.push(Placement {
                offset,
                registers,
                instruction: text(&instruction),
                reason: Reason::Emulated(rule.name),
            });
            // A later one is better only if calls with a NULL pointer branch off here.
            if !state.is_null_check(&instruction) {
                break;
            }
        }
        if !state.step(&instruction, &mut info) {
            break;
        }
    }
    found
}

/// What is known before an instruction. The sixteen general registers are indexed by their numbers.
struct State {
    /// The argument that each register holds.
    holds: [Option<usize>; 16],
    /// The argument for which calls need not be seen if it is NULL.
    pointer: Option<usize>,
    /// Whether the flags tell if it is NULL.
    flags_tell_null: bool,
}

impl State {
    fn at_entry(needs: Needs) -> Self {
        let mut holds = [None; 16];
        for (argument, register) in Slot::PASSED.into_iter().enumerate() {
            if let Some(held) = holds.get_mut(usize::from(register.encoding())) {
                *held = Some(argument);
            }
        }
        Self {
            holds,
            pointer: needs.ignores_null,
            flags_tell_null: false,
        }
    }

    /// The registers of the arguments, if every needed argument is still in a register.
    fn arguments(&self, needs: Needs) -> Option<[Slot; ARGUMENTS]> {
        let mut registers = Slot::PASSED;
        let each = registers.iter_mut().zip(needs.arguments).enumerate();
        for (argument, (register, is_needed)) in each {
            let passed = usize::from(register.encoding());
            let holds = |number: &usize| self.holds.get(*number) == Some(&Some(argument));
            // The register that it was passed in, or else the first register with a copy.
            match std::iter::once(passed).chain(0..16).find(holds) {
                Some(number) => *register = Slot::of_encoding(number as u8)?,
                None if is_needed => return None,
                None => {}
            }
        }
        Some(registers)
    }

    /// Whether this instruction jumps exactly if the pointer is NULL.
    fn is_null_check(&self, instruction: &Instruction) -> bool {
        self.flags_tell_null
            && instruction.is_jcc_short_or_near()
            && instruction.condition_code() == ConditionCode::e
    }

    /// Steps over an instruction; `false` if no later location is correct for all calls.
    fn step(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
        let continues = match instruction.flow_control() {
            FlowControl::Next => true,
            FlowControl::ConditionalBranch => self.is_null_check(instruction),
            _ => false,
        };
        if !continues {
            return false;
        }
        if self.tests_pointer(instruction) {
            self.flags_tell_null = true;
        } else if instruction.rflags_modified() != 0 {
            self.flags_tell_null = false;
        }
        let copied = self.copied(instruction);
        let info = info.info(instruction);
        let mut stores = info.used_memory().iter().filter(|it| writes(it.access()));
        if leaks_stack(instruction) || !stores.all(is_below_stack) {
            return false;
        }
        for used in info.used_registers() {
            if !writes(used.access()) {
                continue;
            }
            match used.register().full_register() {
                Register::RSP | Register::RBP => return false,
                register if register.is_gpr64() => self.set(register, None),
                _ => {}
            }
        }
        if let Some((to, argument)) = copied {
            self.set(to, Some(argument));
        }
        true
    }

    fn set(&mut self, register: Register, argument: Option<usize>) {
        if let Some(held) = self.holds.get_mut(register.number()) {
            *held = argument;
        }
    }

    fn held(&self, register: Register) -> Option<usize> {
        let is_whole = register.is_gpr64();
        is_whole.then(|| self.holds.get(register.number()).copied().flatten())?
    }

    /// The register that becomes a copy of an argument, and the argument. Only copies of all 64 bits count:
    /// half of a size is another size.
    fn copied(&self, instruction: &Instruction) -> Option<(Register, usize)> {
        let is_move = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
        let is_between_registers = instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register;
        if !is_move || !is_between_registers {
            return None;
        }
        let argument = self.held(instruction.op1_register())?;
        Some((instruction.op0_register(), argument))
    }

    /// Whether the zero flag after this instruction is set exactly if the pointer is NULL.
    fn tests_pointer(&self, instruction: &Instruction) -> bool {
        let is_pointer = |register| self.pointer.is_some() && self.held(register) == self.pointer;
        if instruction.op0_kind() != OpKind::Register || !is_pointer(instruction.op0_register()) {
            return false;
        }
        match instruction.code() {
            Code::Test_rm64_r64 => is_pointer(instruction.op1_register()),
            Code::Cmp_rm64_imm8 | Code::Cmp_rm64_imm32 => instruction.immediate(1) == 0,
            _ => false,
        }
    }
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether memory is the function's own: below the stack pointer, and so below the return address. A function
/// that writes any other memory has begun its work, and may already have freed a block.
fn is_below_stack(memory: &UsedMemory) -> bool {
    let size = memory.memory_size().size() as i64;
    let end = (memory.displacement() as i64).wrapping_add(size);
    let is_fixed = memory.base() == Register::RSP && memory.index() == Register::None;
    is_fixed && size > 0 && (-4096..=0).contains(&end)
}

/// Whether the stack pointer is copied to another register.
fn leaks_stack(instruction: &Instruction) -> bool {
    let is_operand = |operand| instruction.op_register(operand).full_register() == Register::RSP;
    let is_address = instruction.code() == Code::Lea_r64_m
        && [instruction.memory_base(), instruction.memory_index()].contains(&Register::RSP);
    is_address || (0..instruction.op_count()).any(is_operand)
}

/// An instruction for reports: its name, and its operands if they are all registers.
fn text(instruction: &Instruction) -> String {
    let mut text = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let operands = 0..instruction.op_count();
    if operands
        .clone()
        .all(|operand| instruction.op_kind(operand) == OpKind::Register)
    {
        for operand in operands {
            text.push_str(if operand == 0 { " " } else { ", " });
            text.push_str(&format!("{:?}", instruction.op_register(operand)).to_lowercase());
        }
    }
    text
}
