//! A second, different implementation of the rules of a location: it runs the instructions before the
//! location on invented values.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::super::{Needs, Placed};

/// Fails unless a probe at the location sees every call exactly once, with all needed arguments.
pub(super) fn check(code: &[u8], needs: Needs, placement: &Placed) {
    let at = placement.offset as usize;
    if !placement.is_stepped {
        assert!(is_emulated(&code[at..]), "{:x?} at {at}", &code[at..]);
    } else {
        assert_eq!(at, 0);
    }
    if at > 0 {
        runs_straight(code, at, needs);
        nothing_jumps_there(code, at);
    }
    let values = values_at(code, at);
    for (argument, is_needed) in needs.arguments.into_iter().enumerate() {
        let number = placement.registers[argument].encoding();
        if is_needed {
            assert_eq!(values[usize::from(number)], argument as u64, "{at}");
        }
    }
    // The stack pointer and the frame pointer still have their values of the entry.
    assert_eq!((values[4], values[5]), (1004, 1005));
}

/// Whether kernels since 5.17 emulate the instruction, by its bytes.
fn is_emulated(bytes: &[u8]) -> bool {
    match bytes {
        [0x90 | 0xeb | 0xe9 | 0xe8, ..] => true,
        [0x50..=0x57 | 0x70..=0x7f, ..] => true,
        [0x41, 0x50..=0x57, ..] => true,
        [0x0f, 0x80..=0x8f, ..] => true,
        // Repeat, size, thread-segment and REX prefixes don't change what a branch is.
        [0xf2 | 0xf3 | 0x64 | 0x65 | 0x67 | 0x40..=0x4f, rest @ ..] => {
            !matches!(rest, [0x90 | 0x50..=0x57, ..]) && is_emulated(rest)
        }
        _ => false,
    }
}

/// Fails if an instruction before the location can branch off.
fn runs_straight(code: &[u8], at: usize, needs: Needs) {
    let mut before: Vec<_> = Decoder::new(64, code, DecoderOptions::NONE)
        .into_iter()
        .take_while(|instruction| instruction.ip() < at as u64)
        .collect();
    let last = before.pop().unwrap();
    assert_eq!(
        last.next_ip(),
        at as u64,
        "the location is inside an instruction"
    );
    before.push(last);
    for (index, instruction) in before.iter().enumerate() {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => {
                assert_eq!(instruction.mnemonic(), Mnemonic::Je);
                let pointer = needs.ignores_null.unwrap() as u64;
                let values = values_at(code, instruction.ip() as usize);
                let decides = before[..index]
                    .iter()
                    .rfind(|it| it.rflags_modified() != 0)
                    .unwrap();
                assert!(
                    matches!(decides.mnemonic(), Mnemonic::Test | Mnemonic::Cmp)
                        && decides.op0_register().size() == 8,
                );
                let tested = values_at(code, decides.ip() as usize);
                assert_eq!(tested[decides.op0_register().number()], pointer);
                assert_eq!(values[4], 1004);
            }
            other => panic!("{other:?} before the location"),
        }
    }
}

/// Fails if a branch of the function leads to an offset after the entry, up to the location.
fn nothing_jumps_there(code: &[u8], at: usize) {
    for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
        if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() {
            let target = instruction.near_branch_target();
            assert!(target == 0 || target > at as u64, "jumps to {target}");
        }
    }
}

/// The values of the registers at a location: the arguments 0 to 3, the values of the entry (from 1000 on),
/// or other values (from 2000 on).
fn values_at(code: &[u8], at: usize) -> [u64; 16] {
    let mut values: [u64; 16] = std::array::from_fn(|number| 1000 + number as u64);
    (values[7], values[6], values[2], values[1]) = (0, 1, 2, 3);
    let mut fresh = 2000;
    let mut info = InstructionInfoFactory::new();
    for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
        if instruction.ip() >= at as u64 {
            break;
        }
        let is_copy = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op_kind(0) == OpKind::Register
            && instruction.op_kind(1) == OpKind::Register
            && instruction.op_register(0).is_gpr64()
            && instruction.op_register(1).is_gpr64();
        let source = is_copy.then(|| values[instruction.op_register(1).number()]);
        for used in info.info(&instruction).used_registers() {
            let reads = [
                OpAccess::None,
                OpAccess::Read,
                OpAccess::CondRead,
                OpAccess::NoMemAccess,
            ];
            let register: Register = used.register().full_register();
            if !reads.contains(&used.access()) && register.is_gpr64() {
                fresh += 1;
                values[register.number()] = fresh;
            }
        }
        if let Some(value) = source {
            values[instruction.op_register(0).number()] = value;
        }
    }
    values
}
