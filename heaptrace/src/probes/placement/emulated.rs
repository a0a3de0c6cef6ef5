//! The instructions that the kernel emulates under a uprobe on x86-64, as a table.
//!
//! Stage: probes. The kernel executes any other instruction out of line, in one step, which costs a second
//! trap. This file reads the bytes of one instruction, and must not know functions.

/// Major and minor version of a kernel.
pub type KernelVersion = (u32, u32);

/// A kind of instruction that the kernel emulates.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The first kernel that emulates it.
    pub since: KernelVersion,
    /// Whether an instruction is of this kind.
    matches: fn(&Encoding<'_>) -> bool,
}

/// All kinds.
///
/// Longer `nop`s are left out on purpose. Older kernels refuse a probe on a `nop` with an operand-size
/// prefix. Newer kernels may replace a `nop` of five bytes by a call, which writes below the stack pointer,
/// where the function may have data.
pub const RULES: &[Rule] = &[
    Rule {
        name: "nop",
        since: (3, 16),
        // With other prefixes the same byte is `pause`, or an exchange of registers.
        matches: |it| it.is_plain() && it.opcode == [0x90],
    },
    Rule {
        name: "near jump",
        since: (3, 16),
        matches: |it| !it.has(OPERAND_SIZE) && matches!(it.opcode, [0xe9 | 0xeb, ..]),
    },
    Rule {
        name: "near call",
        since: (3, 16),
        matches: |it| !it.has(OPERAND_SIZE) && matches!(it.opcode, [0xe8, ..]),
    },
    Rule {
        name: "conditional jump",
        since: (3, 16),
        matches: |it| {
            let is_jump = matches!(it.opcode, [0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..]);
            !it.has(OPERAND_SIZE) && is_jump
        },
    },
    Rule {
        name: "push of a register",
        since: (4, 16),
        matches: |it| {
            let is_known_prefix = matches!(it.rex, None | Some(0x41));
            it.legacy.is_empty() && is_known_prefix && matches!(it.opcode, [0x50..=0x57])
        },
    },
];

const OPERAND_SIZE: u8 = 0x66;

/// Prefixes of instructions on which the kernel refuses a probe: segments and `lock`.
const REFUSED: [u8; 5] = [0x26, 0x2e, 0x36, 0x3e, 0xf0];

/// The parts of an instruction.
struct Encoding<'a> {
    legacy: &'a [u8],
    rex: Option<u8>,
    /// The opcode and the bytes after it.
    opcode: &'a [u8],
}

impl<'a> Encoding<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let is_legacy = |byte: &u8| {
            let sizes_and_repeats = matches!(byte, 0x64..=0x67 | 0xf2 | 0xf3);
            sizes_and_repeats || REFUSED.contains(byte)
        };
        let end = bytes.iter().take_while(|byte| is_legacy(byte)).count();
        let (legacy, rest) = bytes.split_at(end);
        match rest {
            [rex @ 0x40..=0x4f, opcode @ ..] => Self {
                legacy,
                rex: Some(*rex),
                opcode,
            },
            opcode => Self {
                legacy,
                rex: None,
                opcode,
            },
        }
    }

    fn has(&self, prefix: u8) -> bool {
        self.legacy.contains(&prefix)
    }

    fn is_plain(&self) -> bool {
        self.legacy.is_empty() && self.rex.is_none()
    }
}

/// The rule by which a kernel emulates an instruction, if it does.
pub fn rule(kernel: KernelVersion, instruction: &[u8]) -> Option<&'static Rule> {
    let encoding = Encoding::of(instruction);
    if REFUSED.iter().any(|prefix| encoding.has(*prefix)) {
        return None;
    }
    RULES
        .iter()
        .find(|rule| kernel >= rule.since && (rule.matches)(&encoding))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECENT: KernelVersion = (6, 18);

    fn name(bytes: &[u8]) -> Option<&'static str> {
        rule(RECENT, bytes).map(|rule| rule.name)
    }

    /// Check that each rule matches its own instructions, and none that look similar.
    #[test]
    fn instructions_are_told_apart() {
        assert_eq!(name(&[0x55]), Some("push of a register"));
        assert_eq!(name(&[0x41, 0x57]), Some("push of a register"));
        // A push with another prefix, of memory, of a constant; a pop.
        for other in [&[0x48, 0x55][..], &[0x66, 0x55], &[0x6a, 0], &[0x58]] {
            assert_eq!(name(other), None, "{other:x?}");
        }
        assert_eq!(name(&[0xff, 0x35, 0, 0, 0, 0]), None);
        assert_eq!(name(&[0xeb, 0]), Some("near jump"));
        assert_eq!(name(&[0xf2, 0xe9, 0, 0, 0, 0]), Some("near jump"));
        assert_eq!(name(&[0xe8, 0, 0, 0, 0]), Some("near call"));
        assert_eq!(name(&[0x74, 0]), Some("conditional jump"));
        assert_eq!(name(&[0x0f, 0x8f, 0, 0, 0, 0]), Some("conditional jump"));
        assert_eq!(name(&[0x66, 0x0f, 0x84, 0, 0]), None);
        assert_eq!(name(&[0x0f, 0x90, 0xc0]), None);
        assert_eq!(name(&[0x90]), Some("nop"));
        // `pause`, an exchange with r8, a wide nop, endbr64, a jump with a branch hint.
        for other in [&[0xf3, 0x90][..], &[0x41, 0x90], &[0x66, 0x90]] {
            assert_eq!(name(other), None, "{other:x?}");
        }
        assert_eq!(name(&[0xf3, 0x0f, 0x1e, 0xfa]), None);
        assert_eq!(name(&[0x3e, 0x74, 0]), None);
        assert_eq!(name(&[]), None);
    }

    /// Check that a kernel does not have rules that came later.
    #[test]
    fn older_kernels_emulate_less() {
        assert!(rule((4, 15), &[0x55]).is_none());
        assert!(rule((4, 16), &[0x55]).is_some());
        assert!(rule((3, 15), &[0xeb, 0]).is_none());
    }
}
