//! Follows functions that do nothing but jump to another one.
//!
//! Stage: probes. Some libraries export such functions (mimalloc's `posix_memalign`), and the address of a function of a library
//! can be that of a program's linkage stub. A call of it is a call of the function that it leads to. The code is read in the
//! process: what is there is what would run. Jumps by words are followed only if these never change. Must not know which functions are wanted.

/// Bytes of code that are looked at.
pub(super) const CODE: usize = 16;

/// Most jumps that are followed: one to a linkage stub, and the stub's.
const MOST_JUMPS: usize = 2;

/// The instruction at the beginning of functions that may be called by their addresses (`endbr64`).
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// A prefix of jumps (`bnd`).
const BOUND: u8 = 0xf2;

/// The addresses that a call of an address reaches by jumps alone, one after the other.
pub(super) fn reached(
    address: u64,
    code: impl Fn(u64) -> Option<[u8; CODE]>,
    constant: impl Fn(u64) -> Option<u64>,
) -> impl Iterator<Item = u64> {
    let next = move |at: &u64| jumps_to(*at, &code(*at)?, &constant);
    std::iter::successors(next(&address), next).take(MOST_JUMPS)
}

/// Where code jumps at once. `None` if it does anything else.
fn jumps_to(at: u64, code: &[u8], constant: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let jump = code.strip_prefix(&LANDING).unwrap_or(code);
    let jump = jump.strip_prefix(&[BOUND]).unwrap_or(jump);
    let (is_by_word, behind) = match jump {
        [0xe9, behind @ ..] => (false, behind),
        [0xff, 0x25, behind @ ..] => (true, behind),
        _ => return None,
    };
    let (displacement, rest) = behind.split_first_chunk()?;
    let end = at.checked_add((code.len() - rest.len()) as u64)?;
    let target = end.checked_add_signed(i32::from_le_bytes(*displacement).into())?;
    if is_by_word {
        constant(target)
    } else {
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reached from address 0x1000, with this code there and at 0x2000, and a word of 0x7777 at 0x3000.
    fn from(first: &[u8], second: &[u8]) -> Vec<u64> {
        let code = |at| {
            let mut code = [0x90; CODE];
            let bytes = match at {
                0x1000 => first,
                0x2000 => second,
                _ => return None,
            };
            code[..bytes.len()].copy_from_slice(bytes);
            Some(code)
        };
        reached(0x1000, code, |at| (at == 0x3000).then_some(0x7777)).collect()
    }

    /// Check that a direct jump, a linkage stub, and one behind the other are followed, with the prefixes that they may have.
    #[test]
    fn jumps_are_followed() {
        let direct = |end: usize| ((0x2000 - 0x1000 - end) as i32).to_le_bytes();
        let by_word = |from: usize, end: usize| ((0x3000 - from - end) as i32).to_le_bytes();
        let jump = [&[0xe9][..], &direct(5)].concat();
        let landed = [&LANDING[..], &[0xe9], &direct(9)].concat();
        let stub = |from| [&[0xff, 0x25][..], &by_word(from, 6)].concat();
        let bound = |from| [&LANDING[..], &[0xf2, 0xff, 0x25], &by_word(from, 11)].concat();
        assert_eq!(from(&jump, &[0x55]), [0x2000]);
        assert_eq!(from(&landed, &[0x55]), [0x2000]);
        assert_eq!(from(&stub(0x1000), &[]), [0x7777]);
        assert_eq!(from(&bound(0x1000), &[]), [0x7777]);
        assert_eq!(from(&jump, &stub(0x2000)), [0x2000, 0x7777]);
        assert_eq!(from(&landed, &bound(0x2000)), [0x2000, 0x7777]);
        // A circle.
        let back = (0x1000_i32 - 0x2005).to_le_bytes();
        let back = [&[0xe9][..], &back].concat();
        assert_eq!(from(&jump, &back), [0x2000, 0x1000]);
    }

    /// Check that code that does anything before it jumps is not followed, nor code with a breakpoint.
    #[test]
    fn other_code_is_not_followed() {
        for other in [
            &[0x90, 0xe9, 0, 0, 0, 0][..],
            &[0xcc, 0, 0, 0, 0],
            &[0xe8, 0, 0, 0, 0],
            &[0x48, 0x89, 0xf2, 0xe9],
            &[0xff, 0x15, 0, 0, 0, 0],
            &[0xeb, 0],
        ] {
            assert_eq!(from(other, &[]), [0_u64; 0], "{other:x?}");
        }
        assert_eq!(
            from(&[0xff, 0x25, 1, 0, 0, 0], &[]),
            [0_u64; 0],
            "no such word"
        );
    }
}
