//! Tests of placement: prologues of real allocators, misleading functions, and arbitrary bytes whose
//! placements a second implementation of the rules checks.

mod arbitrary;
mod checker;
mod hostile;
mod real;
mod relocate;

use heaptrace_common::cookie::Register;

use super::x86::X86;
use super::{Architecture as _, Function, Needs, Placement};

/// A kernel that has every rule.
const KERNEL: (u32, u32) = (6, 18);

fn needs(program: &str) -> Needs {
    let needs = Needs::of(program);
    assert_ne!(needs, Needs::ALL, "{program}");
    needs
}

fn place(code: &[u8], size: Option<u64>, needs: Needs) -> Placement {
    X86 { kernel: KERNEL }.place(Function { code, size }, needs)
}

/// Places a probe on a complete function, and checks the placement.
fn place_whole(code: &[u8], program: &str) -> Placement {
    let placement = place(code, Some(code.len() as u64), needs(program));
    checker::check(code, needs(program), &placement.clone().into());
    placement
}

fn register(number: u8) -> Register {
    Register::of_encoding(number).unwrap()
}

const RAX: u8 = 0;
const RBX: u8 = 3;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R8: u8 = 8;
