//! Converts a row of DWARF's call frame information to a compact rule.
//!
//! Stage: unwind. For x86-64 only. Converts one row at a time; must not know at which addresses the row applies.

use gimli::{
    CfaRule, EndianSlice, LittleEndian, Operation, Register, RegisterRule, UnwindExpression,
    UnwindSection, UnwindTableRow, X86_64,
};
use heaptrace_common::unwind::{Rule, bp, cfa};

pub(super) type Bytes<'data> = EndianSlice<'data, LittleEndian>;

const ENCODING: gimli::Encoding = gimli::Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 4,
};

/// Most operations of an expression that a rule can represent; the expression of the linkage table (PLT) has nine.
const MAX_OPERATIONS: usize = 9;

/// The rule for a row; [`Rule::UNSUPPORTED`] if no rule can represent it.
pub(super) fn compact<'data, S: UnwindSection<Bytes<'data>>>(
    row: &UnwindTableRow<usize>,
    section: &S,
) -> Rule {
    to_rule(row, section).unwrap_or(Rule::UNSUPPORTED)
}

fn to_rule<'data, S: UnwindSection<Bytes<'data>>>(
    row: &UnwindTableRow<usize>,
    section: &S,
) -> Option<Rule> {
    match row.register(X86_64::RA)? {
        RegisterRule::Undefined => return Some(Rule::OUTERMOST),
        RegisterRule::Offset(-8) => {}
        RegisterRule::Expression(expression) => {
            let saved_ip = is_load(&expression, section, X86_64::RSP, 168);
            let cfa = row.cfa();
            let signal = matches!(cfa, CfaRule::Expression(expression)
                if dereferenced(expression, section) == Some((X86_64::RSP, 160)));
            let saved_bp = matches!(row.register(X86_64::RBP),
                Some(RegisterRule::Expression(expression))
                    if is_load(&expression, section, X86_64::RSP, 120));
            return (saved_ip && signal && saved_bp).then_some(Rule::SIGNAL);
        }
        _ => return None,
    }
    // Without a rule of its own, the caller's stack pointer is the canonical frame address.
    match row.register(X86_64::RSP) {
        None | Some(RegisterRule::ValOffset(0)) => {}
        _ => return None,
    }
    let (cfa, cfa_offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let kind = match *register {
                X86_64::RSP => cfa::SP,
                X86_64::RBP => cfa::BP,
                _ => return None,
            };
            (kind, i32::try_from(*offset).ok()?)
        }
        CfaRule::Expression(expression) => frame_address(expression, section)?,
    };
    let lost = (bp::UNDEFINED, 0);
    let (bp, bp_offset) = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => (bp::SAME, 0),
        Some(RegisterRule::Offset(offset)) => {
            i16::try_from(offset).map_or(lost, |offset| (bp::AT_CFA, offset))
        }
        Some(RegisterRule::Expression(expression)) => {
            match operations(&expression, section).as_deref() {
                Some(
                    &[
                        Operation::RegisterOffset {
                            register, offset, ..
                        },
                    ],
                ) if register == X86_64::RBP => {
                    i16::try_from(offset).map_or(lost, |offset| (bp::AT_BP, offset))
                }
                _ => lost,
            }
        }
        Some(_) => lost,
    };
    Some(Rule {
        cfa,
        bp,
        bp_offset,
        cfa_offset,
    })
}

/// The kind and offset of a canonical frame address that is defined by an expression.
fn frame_address<'data, S: UnwindSection<Bytes<'data>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<(u8, i32)> {
    if let Some((register, offset)) = dereferenced(expression, section) {
        let kind = match register {
            X86_64::RSP => cfa::DEREF_SP,
            X86_64::RBP => cfa::DEREF_BP,
            _ => return None,
        };
        return Some((kind, i32::try_from(offset).ok()?));
    }
    // A PLT stub has a push of 5 bytes at offset 6, and its last instruction is a jump. In stubs that begin with a landing
    // pad, the push is a byte earlier.
    match operations(expression, section)?.as_slice() {
        &[
            Operation::RegisterOffset {
                register: X86_64::RSP,
                offset: 8,
                ..
            },
            Operation::RegisterOffset {
                register: X86_64::RA,
                offset: 0,
                ..
            },
            Operation::UnsignedConstant { value: 15 },
            Operation::And,
            Operation::UnsignedConstant { value: pushed },
            Operation::Ge,
            Operation::UnsignedConstant { value: 3 },
            Operation::Shl,
            Operation::Plus,
        ] => Some((cfa::PLT, i32::try_from(pushed).ok()?)),
        _ => None,
    }
}

/// The register and offset of an expression that loads the word at that address.
fn dereferenced<'data, S: UnwindSection<Bytes<'data>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<(Register, i64)> {
    match operations(expression, section)?.as_slice() {
        &[
            Operation::RegisterOffset {
                register, offset, ..
            },
            Operation::Deref {
                size: 8,
                space: false,
                ..
            },
        ] => Some((register, offset)),
        _ => None,
    }
}

/// Whether an expression is the address at an offset from a register.
fn is_load<'data, S: UnwindSection<Bytes<'data>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
    base: Register,
    at: i64,
) -> bool {
    matches!(operations(expression, section).as_deref(),
        Some(&[Operation::RegisterOffset { register, offset, .. }])
            if register == base && offset == at)
}

fn operations<'data, S: UnwindSection<Bytes<'data>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<Vec<Operation<Bytes<'data>>>> {
    let mut operations = expression.get(section).ok()?.operations(ENCODING);
    let mut found = Vec::new();
    while let Some(operation) = operations.next().ok()? {
        if found.len() == MAX_OPERATIONS {
            return None;
        }
        found.push(operation);
    }
    Some(found)
}
