//! Decodes the strings that the kernel program sends.
//!
//! Part of `python`. The characters are untrusted. They are not escaped here: each output does that.

use heaptrace_common::wire::PythonText;

/// Stands at the end of a string that was cut.
const CUT: char = '…';

/// The text of a string, with "…" at its end if only its beginning was sent. Empty if it could not be read.
///
/// A character that is none becomes U+FFFD. Python has such characters where a path is not valid UTF-8.
pub fn text<const BYTES: usize>(sent: &PythonText<BYTES>) -> String {
    let characters = usize::try_from(sent.characters).unwrap_or(usize::MAX);
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    let bytes = sent.bytes.as_slice();
    let (mut text, room): (String, usize) = match sent.width {
        1 => {
            // The first 256 characters of Unicode are those of Latin-1.
            let codes = bytes.iter().take(characters);
            (codes.map(|code| char::from(*code)).collect(), BYTES)
        }
        2 => {
            let codes = bytes.as_chunks::<2>().0;
            let text = codes.iter().take(characters);
            let text = text.map(|code| character(u16::from_le_bytes(*code).into()));
            (text.collect(), codes.len())
        }
        4 => {
            let codes = bytes.as_chunks::<4>().0;
            let text = codes.iter().take(characters);
            let text = text.map(|code| character(u32::from_le_bytes(*code)));
            (text.collect(), codes.len())
        }
        _ => return String::new(),
    };
    if characters > room {
        text.push(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(width: u32, characters: u32, content: &[u8]) -> PythonText<16> {
        let mut bytes = [0; 16];
        bytes[..content.len()].copy_from_slice(content);
        PythonText {
            width,
            characters,
            bytes,
        }
    }

    /// Check that strings of each width are decoded, and that no character beyond the string is.
    #[test]
    fn each_width_is_decoded() {
        assert_eq!(text(&sent(1, 4, b"mainxyz")), "main");
        assert_eq!(text(&sent(1, 4, b"caf\xe9")), "café");
        assert_eq!(text(&sent(2, 2, &[0x2c, 0x67, 0x41, 0])), "本A");
        assert_eq!(text(&sent(4, 2, &[0x00, 0xf4, 1, 0, 0x41, 0, 0, 0])), "🐀A");
        assert_eq!(text(&sent(1, 16, b"exactly_sixteen_")), "exactly_sixteen_");
    }

    /// Check that a string that was cut says so, and that invalid characters and widths do no harm.
    #[test]
    fn cut_and_invalid_strings_are_marked() {
        assert_eq!(text(&sent(1, 17, b"exactly_sixteen_")), "exactly_sixteen_…");
        assert_eq!(text(&sent(2, u32::MAX, &[0x41; 16])), "䅁䅁䅁䅁䅁䅁䅁䅁…");
        // A half of a pair, which stands for a byte that is not UTF-8.
        assert_eq!(text(&sent(2, 1, &[0xff, 0xdc])), "\u{fffd}");
        assert_eq!(text(&sent(4, 1, &[0xff; 4])), "\u{fffd}");
        for width in [0, 3, 5, u32::MAX] {
            assert_eq!(text(&sent(width, 3, b"abc")), "");
        }
    }
}
