//! Which registers and slots of the frame hold the result of a call.
//!
//! Stage: types. Runs in a reader. x86-64 alone. Must not know instructions' meaning.

use iced_x86::{Instruction, Register};

use super::units::Place;
use crate::probes::allocators::CHANGED_BY_CALLS;

/// Most slots that are noted.
const MAX_SLOTS: usize = 16;

/// Something else that is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known<'d> {
    /// It has this address.
    Address(u64),
    /// It has the address of a symbol of another file, or one near it.
    Name(&'d str),
    /// It has a value of this type.
    Value(Place),
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Content<'d> {
    #[default]
    Unknown,
    Result,
    /// The address of a place in the block, behind its beginning.
    Behind,
    Other(Known<'d>),
}

/// The state of registers and slots.
#[derive(Debug, Default)]
pub(super) struct State<'d> {
    registers: [Content<'d>; 16],
    slots: Vec<(Register, u64)>,
}

/// A register in all its bits.
pub(super) fn full(register: Register) -> Register {
    match register.is_gpr() {
        true => register.full_register(),
        false => register,
    }
}

/// The number of a register in DWARF.
pub(super) fn number_in_dwarf(register: Register) -> Option<u16> {
    const ORDER: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let register = full(register);
    let number = register.is_gpr().then(|| register.number())?;
    ORDER.get(number).copied()
}

impl<'d> State<'d> {
    fn slot_of(instruction: &Instruction) -> Option<(Register, u64)> {
        let base = full(instruction.memory_base());
        let is_frame = matches!(base, Register::RSP | Register::RBP);
        let has_index = instruction.memory_index() != Register::None;
        (is_frame && !has_index).then(|| (base, instruction.memory_displacement64()))
    }

    fn content(&self, register: Register) -> Content<'d> {
        let register = full(register);
        let found = register
            .is_gpr()
            .then(|| self.registers.get(register.number()));
        found.flatten().copied().unwrap_or_default()
    }

    fn set(&mut self, register: Register, content: Content<'d>) {
        let register = full(register);
        if register.is_gpr()
            && let Some(place) = self.registers.get_mut(register.number())
        {
            *place = content;
        }
    }

    pub(super) fn holds(&self, register: Register) -> bool {
        self.content(register) == Content::Result
    }

    /// Whether a register has the address of a place behind the block's beginning.
    pub(super) fn is_behind(&self, register: Register) -> bool {
        self.content(register) == Content::Behind
    }

    pub(super) fn be_behind(&mut self, register: Register) {
        self.set(register, Content::Behind);
    }

    /// Whether a register holds the result, by its number in DWARF.
    pub(super) fn holds_number(&self, number: u16) -> bool {
        let held = self.registers.iter().enumerate();
        let mut held = held.filter(|(_, it)| **it == Content::Result);
        held.any(|(index, _)| {
            let register = Register::RAX as usize + index;
            let register = Register::try_from(register).unwrap_or_default();
            number_in_dwarf(register) == Some(number)
        })
    }

    pub(super) fn hold(&mut self, register: Register) {
        self.set(register, Content::Result);
    }

    pub(super) fn forget(&mut self, register: Register) {
        self.set(register, Content::Unknown);
        if full(register) == Register::RSP {
            self.moved_stack();
        }
    }

    pub(super) fn know(&mut self, register: Register, known: Known<'d>) {
        self.set(register, Content::Other(known));
    }

    pub(super) fn known(&self, register: Register) -> Option<Known<'d>> {
        match self.content(register) {
            Content::Other(known) => Some(known),
            _ => None,
        }
    }

    /// Whether a register has an address of a symbol.
    pub(super) fn is_known(&self, register: Register) -> bool {
        matches!(self.known(register), Some(Known::Name(_)))
    }

    pub(super) fn copy(&mut self, from: Register, to: Register) {
        self.set(to, self.content(from));
    }

    /// Notes that the result was stored.
    pub(super) fn put(&mut self, instruction: &Instruction) {
        if let Some(slot) = Self::slot_of(instruction)
            && self.slots.len() < MAX_SLOTS
            && !self.slots.contains(&slot)
        {
            self.slots.push(slot);
        }
    }

    /// Notes that something else was stored.
    pub(super) fn overwrite(&mut self, instruction: &Instruction) {
        if let Some(slot) = Self::slot_of(instruction) {
            self.slots.retain(|it| *it != slot);
        }
    }

    /// Whether memory holds the result.
    pub(super) fn has_slot(&self, instruction: &Instruction) -> bool {
        Self::slot_of(instruction).is_some_and(|slot| self.slots.contains(&slot))
    }

    /// Whether an instruction writes the first word of the block.
    pub(super) fn is_first_word(&self, instruction: &Instruction) -> bool {
        instruction.memory_displacement64() == 0
            && instruction.memory_index() == Register::None
            && self.holds(full(instruction.memory_base()))
    }

    /// Slots are relative to the stack pointer.
    pub(super) fn moved_stack(&mut self) {
        self.slots.retain(|(base, _)| *base != Register::RSP);
    }

    pub(super) fn after_call(&mut self) {
        for register in CHANGED_BY_CALLS {
            self.set(register, Content::Unknown);
        }
    }

    /// Whether nothing holds the result any more.
    pub(super) fn is_lost(&self) -> bool {
        let is_held = |it: &Content<'_>| matches!(it, Content::Result | Content::Behind);
        self.slots.is_empty() && !self.registers.iter().any(is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the result is followed through registers, and lost where a callee may change them.
    #[test]
    fn results_are_followed() {
        let mut state = State::default();
        state.hold(Register::RAX);
        state.copy(Register::RAX, Register::RBX);
        assert!(state.holds(Register::EBX) && state.holds_number(3) && state.holds_number(0));
        state.after_call();
        assert!(!state.holds(Register::RAX) && state.holds(Register::RBX));
        state.forget(Register::BL);
        assert!(state.is_lost());
    }

    /// Check that numbers of registers are those of DWARF.
    #[test]
    fn registers_have_numbers() {
        let numbers = [
            (Register::RAX, 0),
            (Register::RDX, 1),
            (Register::RCX, 2),
            (Register::RBX, 3),
            (Register::RSI, 4),
            (Register::RDI, 5),
            (Register::RBP, 6),
            (Register::RSP, 7),
            (Register::R15, 15),
        ];
        for (register, number) in numbers {
            assert_eq!(number_in_dwarf(register), Some(number));
        }
        assert_eq!(number_in_dwarf(Register::XMM0), None);
    }
}
