//! The targets of a function's own branches.
//!
//! Stage: probes. Decodes the whole function in order. If the code does not tell the targets, they are
//! reported as unknown, never guessed.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use super::model::Function;

/// The address that decoding assigns to the entry, so that no branch points below zero.
pub(super) const BASE: u64 = 1 << 40;

/// The lowest offset after its entry that a function may jump to; `u64::MAX` if there is none. An error says
/// why it is unknown.
pub(super) fn lowest_target(function: Function<'_>) -> Result<u64, &'static str> {
    let sweep = Sweep::of(function)?;
    let inside = |target: &&u64| **target > 0 && **target < sweep.size;
    for target in sweep.targets.iter().filter(inside) {
        // The target of a jump begins an instruction, unless there is data between the instructions.
        if sweep.starts.binary_search(target).is_err() {
            return Err("it has data between its instructions");
        }
    }
    Ok(sweep
        .targets
        .iter()
        .filter(inside)
        .min()
        .copied()
        .unwrap_or(u64::MAX))
}

/// A function, decoded from its entry to its end.
struct Sweep {
    size: u64,
    /// Offsets of its instructions.
    starts: Vec<u64>,
    /// Offsets that they may jump to. A target before the entry has become a very large number.
    targets: Vec<u64>,
}

impl Sweep {
    fn of(function: Function<'_>) -> Result<Self, &'static str> {
        let code = match function.size.map(usize::try_from) {
            Some(Ok(size)) => function
                .code
                .get(..size)
                .ok_or("it is too long, or its end can't be read")?,
            Some(Err(_)) => return Err("it is too long"),
            None => function.code,
        };
        let mut decoder = Decoder::with_ip(64, code, BASE, DecoderOptions::NONE);
        let mut sweep = Self {
            size: code.len() as u64,
            starts: Vec::new(),
            targets: Vec::new(),
        };
        let mut farthest = 0;
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return Err("it has something else than code in it, or ends unexpectedly");
            }
            sweep.starts.push(instruction.ip().wrapping_sub(BASE));
            if let Some(target) = target(&instruction)? {
                sweep.targets.push(target);
                if target < sweep.size {
                    farthest = farthest.max(target);
                }
            }
            let next = instruction.next_ip().wrapping_sub(BASE);
            let is_end = function.size.is_none() && ends(&instruction) && next > farthest;
            if is_end {
                sweep.size = next;
                return Ok(sweep);
            }
        }
        match function.size {
            Some(_) => Ok(sweep),
            None => Err("its symbol has no size, and its end can't be found"),
        }
    }
}

/// Whether execution never continues with the next instruction.
fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Exception
    )
}

/// The target of an instruction, other than the next one, as an offset in the function.
fn target(instruction: &Instruction) -> Result<Option<u64>, &'static str> {
    let is_near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    if is_near {
        return Ok(Some(instruction.near_branch_target().wrapping_sub(BASE)));
    }
    // If the function stores an address of its code, any code may jump there.
    if instruction.code() == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand() {
        let address = instruction.ip_rel_memory_address();
        return Ok(Some(address.wrapping_sub(BASE)));
    }
    if instruction.flow_control() == FlowControl::IndirectBranch && !is_through_pointer(instruction)
    {
        return Err("it jumps by a table or to an address in a register");
    }
    Ok(None)
}

/// Whether an indirect jump reads its target from one fixed word of memory: another function's address, not a
/// table.
fn is_through_pointer(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        && matches!(instruction.memory_base(), Register::RIP | Register::None)
        && instruction.memory_index() == Register::None
}
