//! Decodes the first instructions of a function, so that a copy of them runs at another address.
//!
//! Stage: probes. A call that is not sampled runs such a copy and continues behind the probe, so that it meets no trap. The
//! code comes from files of traced processes and may be anything, so this is decoded in a reader. What can't be copied
//! without doubt is refused: the calls of that function then meet the probe. Must not know where a copy is put.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use super::branches::BASE;
use super::skipped::{Fix, MAX_BYTES, Skipped, WIDTH};

/// The instructions from a function's entry up to and with the one at `probed`. `None` if they can't be copied.
pub(super) fn skipped(code: &[u8], probed: u64) -> Option<Skipped> {
    let mut decoder = Decoder::with_ip(64, code, BASE, DecoderOptions::NONE);
    let mut copy = Copy::default();
    loop {
        let instruction = decoder.decode();
        let offset = instruction.ip().wrapping_sub(BASE);
        if instruction.is_invalid() || offset > probed {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        let bytes = code.get(start..)?.get(..instruction.len())?;
        let is_last = offset == probed;
        copy.add(&instruction, bytes, &decoder, is_last)?;
        if copy.skipped.bytes.len() > MAX_BYTES {
            return None;
        }
        if is_last {
            return copy.finish(instruction.next_ip().wrapping_sub(BASE));
        }
    }
}

/// A copy in the making.
#[derive(Default)]
struct Copy {
    skipped: Skipped,
    /// Targets of the jumps, as offsets in the function.
    jumps: Vec<u64>,
}

impl Copy {
    fn add(
        &mut self,
        instruction: &Instruction,
        bytes: &[u8],
        decoder: &Decoder<'_>,
        is_last: bool,
    ) -> Option<()> {
        match instruction.flow_control() {
            FlowControl::Next => self.add_plain(instruction, bytes, decoder),
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                // iced numbers the conditions as the processor does, from 1 on.
                let condition = (instruction.condition_code() as u8).checked_sub(1)?;
                self.add_jump(instruction, &[0x0f, 0x80 | condition])
            }
            FlowControl::UnconditionalBranch if is_last && instruction.is_jmp_short_or_near() => {
                self.add_jump(instruction, &[0xe9])
            }
            FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
                if is_last =>
            {
                self.add_plain(instruction, bytes, decoder)
            }
            // A call, also one of the kernel, passes on the address behind it. `loop` has no longer form.
            _ => None,
        }
    }

    /// Adds an instruction as it is, with a fix if its operand is addressed from the instruction pointer.
    fn add_plain(
        &mut self,
        instruction: &Instruction,
        bytes: &[u8],
        decoder: &Decoder<'_>,
    ) -> Option<()> {
        let start = self.skipped.bytes.len();
        self.skipped.bytes.extend(bytes);
        if !instruction.is_ip_rel_memory_operand() {
            return Some(());
        }
        // With a 32-bit address the result would be cut, and with a segment's base it is no distance from the entry.
        let has_segment = !matches!(
            instruction.segment_prefix(),
            Register::None | Register::CS | Register::DS | Register::ES | Register::SS
        );
        if instruction.memory_base() != Register::RIP || has_segment {
            return None;
        }
        let places = decoder.get_constant_offsets(instruction);
        if !places.has_displacement() || places.displacement_size() != WIDTH {
            return None;
        }
        let at = start + places.displacement_offset();
        self.fix(at, instruction.ip_rel_memory_address())
    }

    /// Adds a jump in its long form.
    fn add_jump(&mut self, instruction: &Instruction, opcode: &[u8]) -> Option<()> {
        // With an operand-size prefix, processors disagree on the target.
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return None;
        }
        let target = instruction.near_branch_target();
        self.jumps.push(target.wrapping_sub(BASE));
        self.skipped.bytes.extend(opcode);
        let at = self.skipped.bytes.len();
        self.skipped.bytes.extend([0; WIDTH]);
        self.fix(at, target)
    }

    /// Notes a displacement of the instruction that was added last.
    fn fix(&mut self, at: usize, target: u64) -> Option<()> {
        self.skipped.fixes.push(Fix {
            at: u8::try_from(at).ok()?,
            end: u8::try_from(self.skipped.bytes.len()).ok()?,
            target: target.wrapping_sub(BASE).cast_signed(),
        });
        Some(())
    }

    fn finish(mut self, resume: u64) -> Option<Skipped> {
        // Such a jump would leave the copy, and meet the probe in the original.
        if self.jumps.iter().any(|target| *target < resume) {
            return None;
        }
        self.skipped.resume = resume;
        Some(self.skipped)
    }
}
