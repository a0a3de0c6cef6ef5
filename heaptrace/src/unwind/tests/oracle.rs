//! Unwinds one frame by gimli, which searches the file's own table and evaluates every expression. Shares no code with the
//! builder.
//!
//! Stage: unwind.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, LittleEndian,
    ParsedEhFrameHdr, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    Value, X86_64,
};
use heaptrace_common::unwind::{Memory, Registers};
use object::{Object as _, ObjectSection as _};

use crate::random::Random;

type Bytes<'data> = EndianSlice<'data, LittleEndian>;

/// Memory in which every word differs, and is a high address.
pub(super) struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(Random(address).next() & 0xffff_fff8 | 0x7ff0_0000_0000)
    }
}

fn noise(address: u64) -> u64 {
    Noise.read(address).unwrap()
}

/// The result of unwinding at an address.
#[derive(Debug, PartialEq)]
pub(super) enum Opinion {
    /// The code has no unwind information.
    Nothing,
    /// The frame has no caller.
    Outermost,
    /// The caller's registers. `bp` is `None` if it can't be restored.
    Caller { ip: u64, sp: u64, bp: Option<u64> },
    /// The rule needs other registers.
    Unknowable,
}

/// A file, parsed by gimli.
pub(super) struct Oracle<'data> {
    frames: EhFrame<Bytes<'data>>,
    header: ParsedEhFrameHdr<Bytes<'data>>,
    bases: BaseAddresses,
    context: UnwindContext<usize>,
}

impl<'data> Oracle<'data> {
    pub(super) fn new(file: &object::File<'data>) -> Option<Self> {
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (frames_at, frames) = section(".eh_frame")?;
        let (header_at, header) = section(".eh_frame_hdr")?;
        let (text, _) = section(".text")?;
        let bases = BaseAddresses::default()
            .set_eh_frame(frames_at)
            .set_eh_frame_hdr(header_at)
            .set_text(text);
        let header = EhFrameHdr::new(header, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        header.table()?;
        Some(Self {
            frames: EhFrame::new(frames, LittleEndian),
            header,
            bases,
            context: UnwindContext::new(),
        })
    }

    /// The start and end addresses of functions.
    pub(super) fn edges(&self) -> Vec<u64> {
        let mut entries = self.frames.entries(&self.bases);
        let mut edges = Vec::new();
        while let Some(entry) = entries.next().unwrap() {
            if let gimli::CieOrFde::Fde(partial) = entry {
                let function = partial.parse(EhFrame::cie_from_offset).unwrap();
                edges.push(function.initial_address());
                edges.push(function.end_address());
            }
        }
        edges
    }

    pub(super) fn ask(&mut self, address: u64, from: Registers) -> Opinion {
        let table = self.header.table().unwrap();
        let row = table.unwind_info_for_address(
            &self.frames,
            &self.bases,
            &mut self.context,
            address,
            EhFrame::cie_from_offset,
        );
        let Ok(row) = row else {
            return Opinion::Nothing;
        };
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Opinion::Outermost;
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                value(*register, from).map(|value| value.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => evaluate(&self.frames, expression, None, from),
        };
        let Some(cfa) = cfa else {
            return Opinion::Unknowable;
        };
        let saved = |register: Register, default: Option<u64>| match row.register(register) {
            None | Some(RegisterRule::SameValue) => default,
            Some(RegisterRule::Offset(offset)) => Some(noise(cfa.wrapping_add_signed(offset))),
            Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Expression(expression)) => {
                evaluate(&self.frames, &expression, Some(cfa), from).map(noise)
            }
            _ => None,
        };
        let bp = saved(X86_64::RBP, Some(from.bp));
        match (saved(X86_64::RA, None), saved(X86_64::RSP, Some(cfa))) {
            (Some(ip), Some(sp)) => Opinion::Caller { ip, sp, bp },
            _ => Opinion::Unknowable,
        }
    }
}

fn evaluate(
    frames: &EhFrame<Bytes<'_>>,
    expression: &UnwindExpression<usize>,
    cfa: Option<u64>,
    from: Registers,
) -> Option<u64> {
    let encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    let expression = expression.get(frames).unwrap();
    let mut evaluation = expression.evaluation(encoding);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut result = evaluation.evaluate().unwrap();
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(value(register, from)?);
                evaluation.resume_with_register(value).unwrap()
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                let value = Value::Generic(noise(address));
                evaluation.resume_with_memory(value).unwrap()
            }
            other => panic!("unforeseen: {other:?}"),
        };
    }
    evaluation.value_result()?.to_u64(u64::MAX).ok()
}

fn value(register: Register, from: Registers) -> Option<u64> {
    match register {
        X86_64::RSP => Some(from.sp),
        X86_64::RBP => Some(from.bp),
        X86_64::RA => Some(from.ip),
        _ => None,
    }
}
