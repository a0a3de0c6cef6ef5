//! Follows a function's code: finds its return instructions, and the functions that it calls and jumps to.
//!
//! Stage: probes. Runs in a reader. Follows every jump from a function's entry, through stubs of the linkage table and
//! into tail calls, and steps over calls. The code may contain anything, so everything has a bound. Must not know
//! allocators.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection as _};
use iced_x86::{Code as Op, Decoder, DecoderOptions, FlowControl, Instruction};
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, ObjectSymbolTable as _,
    ReadRef, RelocationFlags, RelocationTarget,
};
use thiserror::Error;

use super::loads::{Loads, Skipped};

/// Most relocations that are read.
const MAX_SLOTS: usize = 4 << 20;

/// Most instructions of a function, including all code that it jumps to.
const MAX_INSTRUCTIONS: usize = 20_000;

/// Most return instructions.
const MAX_RETURNS: usize = 64;

/// Most bytes of a function.
const MAX_FUNCTION: u64 = 1 << 20;

/// Largest section of unwind information that is read.
const MAX_SECTION: u64 = 256 << 20;

/// Longest chain of functions that only jump to each other.
const MAX_CHAIN: usize = 8;

/// Reason why a function's code can't be followed. Completes the sentence "… because …".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum CodeError {
    #[error("its end is unknown")]
    NoEnd,
    #[error("it can't be decoded")]
    Undecodable,
    #[error("it jumps to an address in a register or in memory")]
    IndirectJump,
    #[error("it ends with a jump to {0} of another file")]
    Leaves(String),
    #[error("it is too long")]
    TooLong,
}

/// Target of a jump or call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// An address in this file.
    Here(u64),
    /// A function of another file.
    Elsewhere(String),
}

/// Decision at a call or a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Follow a jump, or continue behind a call.
    Follow,
    /// Ignore the code from here on.
    Stop,
}

/// The code of a file.
pub(super) struct Code<'i, 'a, R: ReadRef<'a>> {
    image: &'i object::File<'a, R>,
    /// Targets of the linkage table's slots.
    slots: HashMap<u64, Slot>,
    frames: Option<Frames<'a>>,
}

/// A slot that the dynamic linker fills.
struct Slot {
    target: Target,
    /// Whether it belongs to the linkage table. Else it may be a variable.
    is_constant: bool,
}

/// Unwind information, which has the ends of functions.
struct Frames<'a> {
    header: gimli::ParsedEhFrameHdr<gimli::EndianSlice<'a, LittleEndian>>,
    frames: EhFrame<gimli::EndianSlice<'a, LittleEndian>>,
    bases: BaseAddresses,
}

impl<'i, 'a, R: ReadRef<'a>> Code<'i, 'a, R> {
    pub(super) fn new(image: &'i object::File<'a, R>) -> Self {
        Self {
            slots: slots(image),
            frames: Frames::new(image),
            image,
        }
    }

    /// The last target of a function that only jumps.
    pub(super) fn only_jumps_to(&self, entry: u64) -> Option<Target> {
        let mut at = entry;
        let mut last = None;
        for _ in 0..MAX_CHAIN {
            match self.jump_at(at) {
                Some(Target::Here(next)) => {
                    at = next;
                    last = Some(Target::Here(next));
                }
                Some(elsewhere) => return Some(elsewhere),
                None => break,
            }
        }
        last
    }

    /// The target of a function whose first instruction is a jump.
    pub(super) fn jump_at(&self, address: u64) -> Option<Target> {
        let bytes = self.bytes(address, 16)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut instruction = decoder.decode();
        if instruction.code() == Op::Endbr64 {
            instruction = decoder.decode();
        }
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                Some(Target::Here(instruction.near_branch_target()))
            }
            FlowControl::IndirectBranch => self.slot(&instruction),
            _ => None,
        }
    }

    /// The return instructions that a function can end with. `decide` is called at each jump out of
    /// known code (with `false`) and at each call (with `true`).
    pub(super) fn returns(
        &self,
        entry: u64,
        size_of: impl Fn(u64) -> Option<u64>,
        mut decide: impl FnMut(&Target, bool) -> Step,
    ) -> Result<Vec<u64>, CodeError> {
        let mut returns = Vec::new();
        let mut extents: Vec<Range<u64>> = Vec::new();
        let mut seen = HashSet::new();
        let mut left = MAX_INSTRUCTIONS;
        let mut loads = Loads::new();
        let mut open = vec![entry];
        while let Some(start) = open.pop() {
            loads.jump();
            if seen.contains(&start) {
                for skipped in loads.skipped(start) {
                    match skipped {
                        Skipped::Call(behind) => open.push(behind),
                        Skipped::Jump => return Err(CodeError::IndirectJump),
                    }
                }
                continue;
            }
            let known = extents.iter().find(|extent| extent.contains(&start));
            let extent = match known {
                Some(extent) => extent.clone(),
                None => {
                    // Either a stub of the linkage table, or the beginning of more code.
                    if start != entry
                        && let Some(target) = self.jump_at(start)
                    {
                        seen.insert(start);
                        follow(&target, &mut decide, &mut open)?;
                        continue;
                    }
                    let extent = self
                        .extent(start)
                        .or_else(|| Some(start..start.checked_add(size_of(start)?)?))
                        .filter(|extent| extent.end - extent.start <= MAX_FUNCTION)
                        .ok_or(CodeError::NoEnd)?;
                    extents.push(extent.clone());
                    extent
                }
            };
            let bytes = self
                .bytes(start, extent.end - start)
                .ok_or(CodeError::Undecodable)?;
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            while decoder.can_decode() {
                if !seen.insert(decoder.ip()) {
                    break;
                }
                let instruction = decoder.decode();
                left = left.checked_sub(1).ok_or(CodeError::TooLong)?;
                if instruction.is_invalid() {
                    return Err(CodeError::Undecodable);
                }
                match instruction.flow_control() {
                    FlowControl::Next => {}
                    FlowControl::Return => {
                        returns.push(instruction.ip());
                        if returns.len() > MAX_RETURNS {
                            return Err(CodeError::TooLong);
                        }
                        break;
                    }
                    FlowControl::ConditionalBranch => {
                        let target = instruction.near_branch_target();
                        self.branch(target, &extents, &mut decide, &mut open)?;
                    }
                    FlowControl::UnconditionalBranch => {
                        let target = instruction.near_branch_target();
                        self.branch(target, &extents, &mut decide, &mut open)?;
                        break;
                    }
                    FlowControl::IndirectBranch => {
                        let target = self.slot(&instruction);
                        let target = target.or_else(|| loads.target(&instruction));
                        let target = target.ok_or(CodeError::IndirectJump)?;
                        follow(&target, &mut decide, &mut open)?;
                        break;
                    }
                    FlowControl::Call => {
                        let target = self.resolve(instruction.near_branch_target());
                        if decide(&target, true) == Step::Stop {
                            break;
                        }
                    }
                    FlowControl::IndirectCall => {
                        let target = self.slot(&instruction);
                        if let Some(target) = target.or_else(|| loads.target(&instruction))
                            && decide(&target, true) == Step::Stop
                        {
                            break;
                        }
                    }
                    // Execution does not continue after a trap.
                    FlowControl::Exception => break,
                    FlowControl::Interrupt | FlowControl::XbeginXabortXend => {}
                }
                loads.step(&instruction, self.constant(&instruction));
            }
        }
        returns.sort_unstable();
        Ok(returns)
    }

    fn branch(
        &self,
        target: u64,
        extents: &[Range<u64>],
        decide: &mut impl FnMut(&Target, bool) -> Step,
        open: &mut Vec<u64>,
    ) -> Result<(), CodeError> {
        if extents.iter().any(|extent| extent.contains(&target)) {
            open.push(target);
            return Ok(());
        }
        follow(&self.resolve(target), decide, open)
    }

    /// The target at an address, or the target behind the address if that is a stub.
    fn resolve(&self, address: u64) -> Target {
        match self.jump_at(address) {
            Some(Target::Elsewhere(name)) => Target::Elsewhere(name),
            Some(Target::Here(behind)) if self.is_stub(address) => Target::Here(behind),
            _ => Target::Here(address),
        }
    }

    /// Whether the jump at an address goes through the linkage table.
    fn is_stub(&self, address: u64) -> bool {
        let Some(bytes) = self.bytes(address, 16) else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut instruction = decoder.decode();
        if instruction.code() == Op::Endbr64 {
            instruction = decoder.decode();
        }
        instruction.flow_control() == FlowControl::IndirectBranch
    }

    fn slot(&self, instruction: &Instruction) -> Option<Target> {
        Some(self.slot_of(instruction)?.target.clone())
    }

    /// The target of an instruction's memory operand, if that can't change while the program runs.
    fn constant(&self, instruction: &Instruction) -> Option<Target> {
        let slot = self.slot_of(instruction)?;
        slot.is_constant.then(|| slot.target.clone())
    }

    fn slot_of(&self, instruction: &Instruction) -> Option<&Slot> {
        if !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        self.slots.get(&instruction.ip_rel_memory_address())
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        self.frames.as_ref()?.extent(address)
    }

    /// The code at an address, up to this size or the end of the segment.
    fn bytes(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        self.image.segments().find_map(|segment| {
            let within = address.checked_sub(segment.address())?;
            let (_, in_file) = segment.file_range();
            let size = size.min(in_file.checked_sub(within)?);
            segment.data_range(address, size).ok().flatten()
        })
    }
}

fn follow(
    target: &Target,
    decide: &mut impl FnMut(&Target, bool) -> Step,
    open: &mut Vec<u64>,
) -> Result<(), CodeError> {
    match (decide(target, false), target) {
        (Step::Stop, _) => Ok(()),
        (Step::Follow, Target::Here(address)) => {
            open.push(*address);
            Ok(())
        }
        (Step::Follow, Target::Elsewhere(name)) => Err(CodeError::Leaves(name.clone())),
    }
}

impl<'a> Frames<'a> {
    fn new<R: ReadRef<'a>>(image: &object::File<'a, R>) -> Option<Self> {
        let section = |name| {
            let section = image.section_by_name(name)?;
            if section.size() > MAX_SECTION {
                return None;
            }
            Some((section.address(), section.data().ok()?))
        };
        let (header_at, header) = section(".eh_frame_hdr")?;
        let (frames_at, frames) = section(".eh_frame")?;
        // Every linker writes a count of four bytes. gimli multiplies a longer count without an overflow check.
        if header.get(2) != Some(&gimli::DW_EH_PE_udata4.0) {
            return None;
        }
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header_at)
            .set_eh_frame(frames_at);
        let header = EhFrameHdr::new(header, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        Some(Self {
            header,
            frames: EhFrame::new(frames, LittleEndian),
            bases,
        })
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let table = self.header.table()?;
        let entry = table.lookup(address, &self.bases).ok()?;
        // gimli subtracts without a check, and the table may contain anything.
        let first = self.header.eh_frame_ptr().direct().ok()?;
        entry.direct().ok()?.checked_sub(first)?;
        let offset = table.pointer_to_offset(entry).ok()?;
        let found = self
            .frames
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        if !found.contains(address) {
            return None;
        }
        let start = found.initial_address();
        Some(start..start.checked_add(found.len())?)
    }
}

/// Targets of the slots that the dynamic linker fills.
fn slots<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> HashMap<u64, Slot> {
    let mut slots = HashMap::new();
    let (Some(relocations), Some(symbols)) =
        (image.dynamic_relocations(), image.dynamic_symbol_table())
    else {
        return slots;
    };
    for (at, relocation) in relocations.take(MAX_SLOTS) {
        let target = match (relocation.target(), relocation.flags()) {
            (RelocationTarget::Symbol(index), _) => {
                let Ok(symbol) = symbols.symbol_by_index(index) else {
                    continue;
                };
                if symbol.is_definition() {
                    Target::Here(symbol.address())
                } else {
                    Target::Elsewhere(symbol.name().unwrap_or("?").to_owned())
                }
            }
            (
                _,
                RelocationFlags::Elf {
                    r_type: object::elf::R_X86_64_RELATIVE,
                },
            ) => Target::Here(relocation.addend() as u64),
            _ => continue,
        };
        let is_constant = matches!(
            relocation.flags(),
            RelocationFlags::Elf {
                r_type: object::elf::R_X86_64_GLOB_DAT | object::elf::R_X86_64_JUMP_SLOT,
            }
        );
        slots.insert(
            at,
            Slot {
                target,
                is_constant,
            },
        );
    }
    slots
}
