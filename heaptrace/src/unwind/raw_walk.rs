//! Continues a walk that the kernel program could not continue, because a table was not there yet.
//!
//! Stage: unwind. Follows the kernel program's walk frame by frame (`heaptrace-ebpf/src/unwind.rs`), with the words that it has sent
//! in place of the stack. Must not know where code is mapped, nor where tables are.

use heaptrace_common::unwind::{LOST_BP, Memory, Registers, Rule, cfa, outcome, step_either};
use heaptrace_common::wire::{is_zero_below, walk, word_address, word_slot};

/// A stack as the kernel program has sent it.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    /// Registers of the last frame that is known.
    pub registers: Registers,
    /// Whether its address is a return address.
    pub is_return_address: bool,
    /// Whether a rule led to it.
    pub is_by_rule: bool,
    /// How many bytes of the stack were searched, from its stack pointer on.
    pub bytes: u64,
    /// The words that were found there, each packed with its slot, in the order of slots.
    pub words: &'a [u64],
}

/// What is known of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Code of a file with a table.
    Rule {
        /// The rule of the table.
        rule: Rule,
        /// The end of the mapping.
        end: u64,
        /// Whether it is Python's function that interprets bytecode.
        is_loop: bool,
    },
    /// Its file has no table, or it has no file.
    NoTable,
    /// Nothing is mapped there.
    Unmapped,
    /// It is the kernel's trampoline: the real return address is not known.
    Trampoline,
}

/// The process whose stack is walked.
pub trait Process {
    /// Why a walk can't go on now.
    type Error;

    /// What is known of the code at an address.
    fn code(&self, address: u64) -> Result<Code, Self::Error>;

    /// Notes that a frame, by its number in the stack, is one of Python's function that interprets bytecode.
    fn note_loop(&mut self, frame: usize);

    /// Notes a frame of code without a rule, by its number in the stack, and its frame pointer.
    fn note_without_rule(&mut self, frame: usize, bp: u64);

    /// Steps from a frame whose code belongs to no file to its caller. Returns a constant of [`outcome`]; [`outcome::NO_RULE`] if nothing
    /// is known of the code.
    fn step_generated(
        &mut self,
        frame: usize,
        pc: u64,
        registers: &mut Registers,
        stack: &mut impl Memory,
    ) -> u32;
}

impl<'a> RawFrame<'a> {
    /// The sent words in place of the stack.
    pub fn stack(&self) -> SentWords<'a> {
        SentWords {
            sp: self.registers.sp,
            bytes: self.bytes,
            words: self.words,
        }
    }
}

/// The sent words in place of the stack.
#[derive(Clone, Copy, Debug)]
pub struct SentWords<'a> {
    sp: u64,
    bytes: u64,
    words: &'a [u64],
}

impl Memory for SentWords<'_> {
    /// A word that was searched and not sent is no address that matters, or 0. A saved frame pointer may be any value, and often no
    /// step needs it.
    fn read(&mut self, address: u64) -> Option<u64> {
        let at = address.wrapping_sub(self.sp);
        if at >= self.bytes || !at.is_multiple_of(8) {
            return None;
        }
        let slot = at / 8;
        let before = self.words.partition_point(|word| word_slot(*word) < slot);
        let next = self.words.get(before).copied();
        Some(match next {
            Some(word) if word_slot(word) == slot => word_address(word),
            Some(word) if is_zero_below(word, word_slot(word).wrapping_sub(slot)) => 0,
            _ => LOST_BP,
        })
    }
}

/// Continues a walk from the last of its frames on, and appends the frames that it finds, up to so many in total. Returns how it
/// ended, as a constant of [`walk`]. The walk ends with the error of the process, if it has one.
pub fn continue_walk<P: Process>(
    raw: RawFrame<'_>,
    frames: &mut Vec<u64>,
    most_frames: usize,
    process: &mut P,
) -> Result<u32, P::Error> {
    let RawFrame {
        mut registers,
        mut is_return_address,
        mut is_by_rule,
        ..
    } = raw;
    let mut memory = raw.stack();
    loop {
        let ip = registers.ip;
        let pc = ip.wrapping_sub(is_return_address.into());
        let frame = frames.len().saturating_sub(1);
        let rule = match process.code(pc)? {
            Code::Unmapped => None,
            Code::Trampoline => return Ok(walk::STEP + outcome::NO_RULE),
            Code::NoTable => Some(Rule::default()),
            Code::Rule { rule, end, is_loop } => {
                if is_loop {
                    process.note_loop(frame);
                }
                // A return address that was put on the stack by hand is the beginning of a function.
                if rule.cfa == cfa::NONE
                    && is_return_address
                    && is_by_rule
                    && ip < end
                    && matches!(process.code(ip)?, Code::Rule { rule, .. } if rule.cfa != cfa::NONE)
                {
                    if let Some(frame) = frames.last_mut() {
                        *frame = ip.wrapping_add(1);
                    }
                    return Ok(walk::COMPLETE);
                }
                Some(rule)
            }
        };
        let (outcome, by_rule) = match rule {
            Some(rule) => {
                if rule.cfa == cfa::NONE {
                    process.note_without_rule(frame, registers.bp);
                }
                step_either(rule, &mut registers, &mut memory)
            }
            None => match process.step_generated(frame, pc, &mut registers, &mut memory) {
                outcome::NO_RULE => return Ok(walk::UNMAPPED),
                outcome => (outcome, true),
            },
        };
        is_by_rule = by_rule;
        is_return_address = match outcome {
            outcome::CALLER => true,
            outcome::CALLER_EXACT => false,
            outcome::OUTERMOST => return Ok(walk::COMPLETE),
            other => return Ok(walk::STEP + other),
        };
        if frames.len() >= most_frames {
            return Ok(walk::TRUNCATED);
        }
        // An address that is not a return address is recorded plus one, because readers subtract one.
        frames.push(registers.ip.wrapping_add((!is_return_address).into()));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use heaptrace_common::unwind::bp;
    use heaptrace_common::wire::{mark_zeros, pack_word};

    use super::*;

    const SP: u64 = 0x7ffc_0000_1000;

    /// A frame whose size is the address of its code without the last two digits, and which does or does not restore the frame
    /// pointer.
    fn rule_at(pc: u64) -> Rule {
        Rule {
            cfa: cfa::SP,
            bp: if pc & 1 == 1 { bp::AT_CFA } else { bp::SAME },
            bp_offset: -16,
            cfa_offset: (pc >> 8) as i32,
        }
    }

    /// A process with a loop at 0x4000, and generated code at 0xa000, whose frames have three words. Keeps the frames of both, and those
    /// without a rule with their frame pointers.
    #[derive(Default)]
    struct Numbered(Vec<usize>, Vec<(usize, u64)>);

    impl Process for Numbered {
        type Error = Infallible;

        fn code(&self, pc: u64) -> Result<Code, Infallible> {
            let rule = |rule, end| Code::Rule {
                rule,
                end,
                is_loop: pc >> 8 == 0x40,
            };
            Ok(match pc {
                0x9000.. => Code::Unmapped,
                0x8000.. => rule(Rule::OUTERMOST, 0x9000),
                0x7000.. => Code::NoTable,
                0x6000.. => Code::Trampoline,
                0x5010.. => rule(Rule::OUTERMOST, 0x6000),
                0x5000.. => rule(Rule::NONE, 0x6000),
                _ => rule(rule_at(pc), 0x5000),
            })
        }

        fn note_loop(&mut self, frame: usize) {
            self.0.push(frame);
        }

        fn note_without_rule(&mut self, frame: usize, bp: u64) {
            self.1.push((frame, bp));
        }

        fn step_generated(
            &mut self,
            frame: usize,
            pc: u64,
            registers: &mut Registers,
            stack: &mut impl Memory,
        ) -> u32 {
            let Some(ip) = stack.read(registers.sp + 16).filter(|_| pc >> 8 == 0xa0) else {
                return outcome::NO_RULE;
            };
            self.0.push(frame);
            registers.ip = ip;
            registers.sp += 24;
            outcome::CALLER
        }
    }

    /// The walk from code at an address, with words at distances from the stack pointer.
    fn walked(ip: u64, words: &[(u64, u64)], most: usize) -> (u32, Vec<u64>) {
        let words: Vec<u64> = words
            .iter()
            .map(|(at, it)| pack_word(at / 8, *it))
            .collect();
        let raw = RawFrame {
            registers: Registers { ip, sp: SP, bp: 1 },
            is_return_address: true,
            is_by_rule: true,
            bytes: 4096,
            words: &words,
        };
        let mut frames = vec![ip];
        let walk = continue_walk(raw, &mut frames, most, &mut Numbered::default());
        (walk.unwrap_or_else(|never| match never {}), frames)
    }

    /// Check that a walk follows the sent words to the outermost frame, that a saved frame pointer that was not sent ends it only
    /// where it is needed, and that the limit of frames holds.
    #[test]
    fn sent_words_are_followed() {
        let words = [(0x18, 0x1002), (0x28, 0x8001)];
        // The second frame restores a frame pointer, which was no address.
        let complete = (walk::COMPLETE, vec![0x2001, 0x1002, 0x8001]);
        assert_eq!(walked(0x2001, &words, 128), complete);
        assert_eq!(
            walked(0x2001, &words, 2),
            (walk::TRUNCATED, vec![0x2001, 0x1002])
        );
        let by_pointer = [(0x18, 0x7001)];
        let lost = walk::STEP + outcome::LOST_FRAME_POINTER;
        assert_eq!(
            walked(0x2001, &by_pointer, 128),
            (lost, vec![0x2001, 0x7001])
        );
    }

    /// Check that a walk goes through generated code, and tells which frames are those and which interpret bytecode.
    #[test]
    fn frames_of_languages_are_noted() {
        let words = [
            (0x18, 0xa001),
            (0x30, 0x4001),
            (0x70, 0x1002),
            (0x80, 0x8001),
        ];
        let words = words.map(|(at, it)| pack_word(at / 8, it));
        let raw = RawFrame {
            registers: Registers {
                ip: 0x2001,
                sp: SP,
                bp: 1,
            },
            is_return_address: true,
            is_by_rule: true,
            bytes: 4096,
            words: &words,
        };
        let mut process = Numbered::default();
        // Two frames of the stack are further in.
        let mut frames = vec![1, 2, 0x2001];
        let walk = continue_walk(raw, &mut frames, 128, &mut process);
        assert_eq!(walk, Ok(walk::COMPLETE));
        assert_eq!(frames, [1, 2, 0x2001, 0xa001, 0x4001, 0x1002, 0x8001]);
        assert_eq!(process.0, [3, 4]);
    }

    /// Check that frames without a rule are told with their frame pointers.
    #[test]
    fn frames_without_a_rule_are_noted() {
        // The frame at 0x7001 has the frame pointer, below which its own words are.
        let words = [(0x28, SP + 0x40), (0x30, 0x7005), (0x48, 0x8001)];
        let words = words.map(|(at, it)| pack_word(at / 8, it));
        let raw = RawFrame {
            registers: Registers {
                ip: 0x7001,
                sp: SP,
                bp: SP + 0x28,
            },
            is_return_address: true,
            is_by_rule: true,
            bytes: 4096,
            words: &words,
        };
        let mut process = Numbered::default();
        let mut frames = vec![1, 0x7001];
        let walk = continue_walk(raw, &mut frames, 128, &mut process);
        assert_eq!((walk, frames.len()), (Ok(walk::COMPLETE), 4));
        assert_eq!(process.1, [(1, SP + 0x28), (2, SP + 0x40)]);
    }

    /// Check that a saved frame pointer of 0 ends a stack, if the next word that was sent tells of it.
    #[test]
    fn a_frame_pointer_of_0_ends_a_stack() {
        // The frame at 0x2001 has saved the frame pointer one word below its return address.
        let raw = |zeros| {
            let words = [mark_zeros(pack_word(3, 0x7001), zeros)];
            let raw = RawFrame {
                registers: Registers {
                    ip: 0x2002,
                    sp: SP,
                    bp: 1,
                },
                is_return_address: true,
                is_by_rule: true,
                bytes: 4096,
                words: &words,
            };
            continue_walk(raw, &mut vec![0x2002], 128, &mut Numbered::default())
        };
        assert_eq!(raw(1), Ok(walk::COMPLETE));
        let lost = walk::STEP + outcome::LOST_FRAME_POINTER;
        assert_eq!([raw(0), raw(2)], [Ok(lost), Ok(lost)]);
    }

    /// Check that a walk ends as broken where a return address was not sent, beyond the part that was searched, and at the
    /// trampoline, and as complete at an address that was put on the stack by hand.
    #[test]
    fn walks_end_as_in_the_kernel() {
        assert_eq!(walked(0x9001, &[], 128), (walk::UNMAPPED, vec![0x9001]));
        // The word in place of a return address that was not sent is nowhere mapped in a process.
        assert_eq!(walked(0x2001, &[], 128).1, [0x2001, LOST_BP]);
        let far = RawFrame {
            registers: Registers {
                ip: 0x2001,
                sp: SP,
                bp: 1,
            },
            is_return_address: true,
            is_by_rule: true,
            bytes: 0x18,
            words: &[],
        };
        let ended = continue_walk(far, &mut Vec::new(), 128, &mut Numbered::default());
        assert_eq!(ended, Ok(walk::STEP + outcome::UNREADABLE));
        let (trampoline, frames) = walked(0x2001, &[(0x18, 0x6001)], 128);
        assert_eq!(
            (trampoline, frames.len()),
            (walk::STEP + outcome::NO_RULE, 2)
        );
        assert_eq!(walked(0x5010, &[], 128), (walk::COMPLETE, vec![0x5011]));
    }
}
