//! The cookie: a number that the agent attaches to each probe, with facts about the probe location.
//!
//! The lower 48 bits hold how far the allocator's code reaches, in units of 16 bytes: the lower half after
//! the probe, the upper half before it. Above them, four bits for each of the first four arguments name the
//! register that holds the argument at the probe; by then the function may have moved it.

/// How many arguments are followed to a probe location.
pub const ARGUMENTS: usize = 4;

/// Bits of a reach, in units.
const REACH_BITS: u32 = 24;

/// Bytes of a unit.
const UNIT: u64 = 16;

const REGISTER_BITS: u32 = 4;

/// A register that may hold an argument: any general register except the stack pointer. The number is the
/// index in the registers that the kernel saves (`pt_regs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

impl Register {
    /// The registers in which the calling convention passes the first arguments: rdi, rsi, rdx, rcx.
    pub const PASSED: [Self; ARGUMENTS] = [Self(14), Self(13), Self(12), Self(11)];

    /// Its offset in bytes in the saved registers.
    #[inline(always)]
    pub const fn saved_at(self) -> u64 {
        self.0 as u64 * 8
    }

    /// The register with this number in instructions. The stack pointer gives `None`: it never holds an
    /// argument.
    pub const fn of_encoding(number: u8) -> Option<Self> {
        Some(Self(match number {
            0 => 10,
            1 => 11,
            2 => 12,
            3 => 5,
            5 => 4,
            6 => 13,
            7 => 14,
            8 => 9,
            9 => 8,
            10 => 7,
            11 => 6,
            12 => 3,
            13 => 2,
            14 => 1,
            15 => 0,
            _ => return None,
        }))
    }

    /// Its number in instructions.
    pub const fn encoding(self) -> u8 {
        let mut number = 0;
        while number < 16 {
            if let Some(register) = Self::of_encoding(number)
                && register.0 == self.0
            {
                break;
            }
            number += 1;
        }
        number
    }
}

/// In place of the fourth argument's register, this marks a probe in the fast path's code. There, `r8` and `r9` hold where the
/// allocator's code begins and ends, and the other arguments are in their own registers.
const IN_FAST_CODE: u64 = 0xf;

/// The cookie of probes in the fast path's code.
pub const FAST_CODE: u64 =
    pack(0, 0, Register::PASSED) & !(0xf << shift(3)) | IN_FAST_CODE << shift(3);

/// Whether the probe with this cookie is in the fast path's code.
#[inline(always)]
pub const fn is_in_fast_code(cookie: u64) -> bool {
    cookie >> shift(3) & 0xf == IN_FAST_CODE
}

/// Packs how far code reaches before and after a probe, and the registers of the arguments. A reach that does
/// not fit is limited, and a partial unit counts as a whole one.
pub const fn pack(before: u64, after: u64, arguments: [Register; ARGUMENTS]) -> u64 {
    const MOST: u64 = (1 << REACH_BITS) - 1;
    let before = before.div_ceil(UNIT);
    let after = after.div_ceil(UNIT);
    let before = if before > MOST { MOST } else { before };
    let after = if after > MOST { MOST } else { after };
    let mut cookie = before << REACH_BITS | after;
    let mut index = 0;
    while index < ARGUMENTS {
        cookie |= (arguments[index].0 as u64) << shift(index);
        index += 1;
    }
    cookie
}

const fn shift(argument: usize) -> u32 {
    2 * REACH_BITS + REGISTER_BITS * argument as u32
}

/// How far code reaches before and after the probe with this cookie, in bytes.
pub const fn reach(cookie: u64) -> (u64, u64) {
    const MASK: u64 = (1 << REACH_BITS) - 1;
    ((cookie >> REACH_BITS & MASK) * UNIT, (cookie & MASK) * UNIT)
}

/// The register of an argument at the probe with this cookie, as an offset in bytes in the saved registers.
#[inline(always)]
pub const fn argument_at(cookie: u64, index: usize) -> u64 {
    (cookie >> shift(index) & 0xf) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a probe in the fast path's code is told from all others, and has its arguments in their registers.
    #[test]
    fn probes_in_fast_code_are_known() {
        assert!(is_in_fast_code(FAST_CODE));
        for before in [0, u64::MAX] {
            let cookie = pack(before, u64::MAX, Register::PASSED);
            assert!(!is_in_fast_code(cookie));
        }
        let at = [0, 1, 2].map(|index| argument_at(FAST_CODE, index));
        assert_eq!(at, [112, 104, 96]);
    }

    /// Check that both reaches are unpacked in whole units, and that a large one changes neither the other
    /// reach nor the arguments.
    #[test]
    fn packs_the_reach() {
        let most = ((1 << 24) - 1) * 16;
        let packed = |before, after| pack(before, after, Register::PASSED);
        assert_eq!(reach(packed(0x1230, most)), (0x1230, most));
        assert_eq!(reach(packed(7, 1 << 40)), (16, most));
        assert_eq!(reach(packed(u64::MAX, 0)), (most, 0));
        for cookie in [packed(0, 0), packed(u64::MAX, u64::MAX)] {
            let at = [0, 1, 2, 3].map(|index| argument_at(cookie, index));
            assert_eq!(at, [112, 104, 96, 88]);
        }
    }

    /// Check that each register has the offset that the kernel saves it at, and keeps its number.
    #[test]
    fn packs_every_register() {
        // Offsets in `struct pt_regs` on x86-64, by the registers' numbers in instructions.
        let saved = [
            80, 88, 96, 40, 152, 32, 104, 112, 72, 64, 56, 48, 24, 16, 8, 0,
        ];
        for (number, offset) in (0..16).zip(saved) {
            let register = Register::of_encoding(number);
            assert_eq!(register.is_none(), number == 4);
            let Some(register) = register else { continue };
            assert_eq!(register.encoding(), number);
            for index in 0..ARGUMENTS {
                let mut arguments = Register::PASSED;
                arguments[index] = register;
                assert_eq!(argument_at(pack(5, 6, arguments), index), offset);
            }
        }
        assert_eq!(Register::of_encoding(16), None);
    }
}
