//! Changes inputs: bytes and numbers are replaced, parts are removed, doubled or combined.

use heaptrace_tests::Random;

/// Words of all input formats. Random bytes would seldom form them.
const WORDS: &[&[u8]] = &[
    b"\x7fELF",
    b".eh_frame\0",
    b".debug_frame\0",
    b".gnu_debuglink\0",
    b".gnu_debugdata\0",
    b".symtab\0",
    b"malloc\0",
    b"free\0",
    b"_Znwm\0",
    b"_ZN",
    b"St",
    b"S_",
    b"S0_",
    b"I_",
    b"_RNvC",
    b"B_",
    b"17h0123456789abcdefE",
    b"/",
    b"../",
    b".slice",
    b".scope",
    b".service",
    b"docker-",
    b"kubepods-pod",
    b"\\x2d",
    b"r-xp",
    b" (deleted)",
    b"[vdso]",
    b"CapEff:\t",
    b"\n",
    b"\0",
    b"\x1b[2J",
    b"\xf0\x9f\x98\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
];

/// Bytes at the edges of ranges.
const EDGES: [u8; 9] = [0, 1, 2, 0x1f, 0x20, 0x7f, 0x80, 0xfe, 0xff];

/// Numbers at the edges of ranges.
const NUMBERS: [u64; 12] = [
    0,
    1,
    8,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// A changed copy of an input, which may get parts of another one.
pub(crate) fn changed(random: &mut Random, input: &[u8], other: &[u8], longest: usize) -> Vec<u8> {
    let mut data = input.to_vec();
    // Mostly a single change: inputs with many changes are refused at once.
    let most = random.below(5) * random.below(2);
    for _ in 0..=most {
        change(random, &mut data, other);
        if data.len() > longest {
            data.truncate(longest);
        }
    }
    data
}

fn change(random: &mut Random, data: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(data.len() + 1);
    let most = 1 << random.below(9);
    let length = 1 + random.below(most);
    let end = data.len().min(at + length);
    match random.below(13) {
        0 | 1 => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = random.number() as u8;
            }
        }
        3 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = EDGES[random.below(EDGES.len())];
            }
        }
        4 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = byte.wrapping_add(random.below(71) as u8).wrapping_sub(35);
            }
        }
        5 | 6 => {
            let width = 1 << random.below(4);
            let number = match random.below(3) {
                0 => NUMBERS[random.below(NUMBERS.len())],
                1 => (data.len() as u64 + random.below(33) as u64).wrapping_sub(16),
                _ => random.number() >> random.below(64),
            };
            // Fields are at multiples of their size.
            let at = at / width * width;
            for (byte, new) in data
                .iter_mut()
                .skip(at)
                .take(width)
                .zip(number.to_le_bytes())
            {
                *byte = new;
            }
        }
        7 => {
            data.drain(at..end);
        }
        8 => {
            let part = data[at..end].to_vec();
            let to = random.below(data.len() + 1);
            data.splice(to..to, part);
        }
        9 => {
            let from = random.below(other.len() + 1);
            let part = &other[from..other.len().min(from + length)];
            let end = if random.below(2) == 0 { at } else { end };
            data.splice(at..end, part.iter().copied());
        }
        10 => {
            let word = WORDS[random.below(WORDS.len())];
            let end = if random.below(2) == 0 {
                at
            } else {
                data.len().min(at + word.len())
            };
            data.splice(at..end, word.iter().copied());
        }
        11 => {
            let byte = random.number() as u8;
            data.splice(at..at, std::iter::repeat_n(byte, length));
        }
        _ if random.below(4) == 0 => data.truncate(at),
        _ => {
            let part = data[at..end].to_vec();
            let to = random.below(data.len() + 1);
            for (byte, new) in data.iter_mut().skip(to).zip(part) {
                *byte = new;
            }
        }
    }
}
