//! Generates unwind information that no compiler writes: the usual parts in any order and number, in a minimal ELF file.

use heaptrace_tests::Random;

/// The offset of the code in the file.
pub(crate) const CODE: usize = 0x100;

/// How invalid the unwind information may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Every entry has a correct length, and a function of its own.
    Little,
    /// Functions overlap, and lengths are wrong.
    Much,
}

/// Generates an ELF file with code and unwind information.
pub(crate) fn file(random: &mut Random, harm: Harm) -> Vec<u8> {
    let code = 1 << (7 + random.below(11));
    let start = (CODE + code).next_multiple_of(8);
    let frames = section(random, start, code, harm);
    let mut file = vec![0; start];
    file.extend(&frames);
    let names = file.len();
    file.extend(b"\0.eh_frame\0.names\0");
    let headers = file.len().next_multiple_of(8);
    file.resize(headers, 0);
    for [name, kind, at, size] in [
        [0, 0, 0, 0],
        [1, 1, start, frames.len()],
        [11, 3, names, 18],
    ] {
        for word in [name as u32, kind as u32] {
            file.extend(word.to_le_bytes());
        }
        for number in [2, at, at, size, 0, 1, 0] {
            file.extend((number as u64).to_le_bytes());
        }
    }
    let size = file.len() as u64;
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    // A shared library of this machine.
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(32, &64u64.to_le_bytes());
    put(40, &(headers as u64).to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    // One executable segment with the whole file.
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(96, &size.to_le_bytes());
    put(104, &size.to_le_bytes());
    file
}

/// Generates entries: shared ones, and functions that refer to an earlier shared one.
fn section(random: &mut Random, start: usize, code: usize, harm: Harm) -> Vec<u8> {
    let mut section = Vec::new();
    let mut shared = Vec::new();
    let functions = 1 + random.below(60);
    for number in 0..functions {
        let at = section.len();
        let mut entry = Vec::new();
        if shared.is_empty() || random.one_in(6) {
            shared.push(at);
            entry.extend(0u32.to_le_bytes());
            entry.push(1);
            entry.extend(b"zR\0");
            entry.push(1 + random.below(2) as u8);
            entry.extend([0x78, 16, 1, 0x1b]);
            if !random.one_in(8) {
                // The beginning by every compiler: the frame is at the stack pointer plus 8, the return address below.
                entry.extend([0x0c, 7, 8, 0x90, 1]);
            }
            instructions(random, &mut entry, 8);
        } else {
            let cie = shared[random.below(shared.len())];
            entry.extend(((at + 4 - cie) as u32).to_le_bytes());
            let (function, size) = match harm {
                Harm::Little => (code / functions * number, code / functions),
                Harm::Much => (random.below(code), random.below(code * 2)),
            };
            let relative = (CODE + function) as i64 - (start + at + 8) as i64;
            entry.extend((relative as i32).to_le_bytes());
            entry.extend((size as u32).to_le_bytes());
            entry.push(0);
            let count = if random.one_in(10) { 4000 } else { 20 };
            instructions(random, &mut entry, count);
        }
        let is_wrong = harm == Harm::Much && random.one_in(50);
        let wrong = if is_wrong { random.below(9) } else { 0 };
        section.extend(((entry.len() + wrong) as u32).to_le_bytes());
        section.extend(entry);
    }
    section.extend([0; 4]);
    section
}

/// Generates instructions, some with wrong operands.
fn instructions(random: &mut Random, entry: &mut Vec<u8>, most: usize) {
    for _ in 0..random.below(most + 1) {
        let (code, operands) = [
            (0x40 | random.byte() & 0x3f, 0), // advance_loc
            (0x80 | random.byte() & 0x1f, 1), // offset
            (0xc0 | random.byte() & 0x1f, 0), // restore
            (0x02, 1),                        // advance_loc1
            (0x03, 2),                        // advance_loc2
            (0x05, 2),                        // offset_extended
            (0x07, 1),                        // undefined
            (0x08, 1),                        // same_value
            (0x0a, 0),                        // remember_state
            (0x0b, 0),                        // restore_state
            (0x0c, 2),                        // def_cfa
            (0x0d, 1),                        // def_cfa_register
            (0x0e, 1),                        // def_cfa_offset
            (0x14, 2),                        // val_offset
            (random.byte(), random.below(3)),
        ][random.below(15)];
        entry.push(code);
        entry.extend((0..operands).map(|_| random.byte()));
        if random.one_in(12) {
            // An expression for the frame's address, or for a register.
            let length = random.below(12);
            match random.one_in(2) {
                true => entry.extend([0x0f, length as u8]),
                false => entry.extend([0x10, random.byte() & 0x1f, length as u8]),
            }
            entry.extend((0..length).map(|_| random.byte() | 0x70));
        }
    }
}
