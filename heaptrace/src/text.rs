//! Formats numbers, and escapes strings of traced processes, for people.
//!
//! No stage of the flow: any stage may use it. Must not know any stage.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Makes a string from a traced process safe to print.
///
/// A process chooses its own name. With control characters it could control the terminal, and with marks that
/// reorder text it could show another name. Both are written as escapes.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_unsafe(c) && c.is_ascii() => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if is_unsafe(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((_, name)) => name,
        None => path,
    }
}

/// Whether a character of a process's string must be escaped.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}')
}

/// A number of bytes with a unit: `17 B`, `1.5 KiB`, `23.0 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        // A value that rounds to 1024.0 is shown as 1.0 of the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// A number with separated thousands: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things: `1 process`, `1,234 processes`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{} {many}", count(n)),
    }
}

/// The standard error to print after an estimate; empty for an exact number.
pub fn plus_minus(error: u64, format: impl Fn(u64) -> String) -> String {
    match error {
        0 => String::new(),
        error => format!(" ± {}", format(error)),
    }
}

/// The name of a size class: zero bytes, or the sizes from a power of two to below the next.
pub fn size_class(class: usize) -> String {
    match class {
        0 => bytes(0),
        1 => bytes(1),
        class => format!("{} and more", bytes(1 << (class - 1).min(63))),
    }
}

/// A time with units: `0.25 s`, `12.5 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    if seconds < 9.995 {
        return format!("{seconds:.2} s");
    }
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = (ns.saturating_add(500_000_000)) / 1_000_000_000;
    if whole < 3600 {
        format!("{} min {} s", whole / 60, whole % 60)
    } else {
        format!("{} h {} min", whole / 3600, whole % 3600 / 60)
    }
}

/// A time of any length: `512 ns`, `1.3 µs`, `12.0 ms`, `2.50 s`.
pub fn lifetime(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{:.1} µs", value / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", value / 1e6),
        _ => duration(ns),
    }
}

/// The share of `part` in `whole`: `12.3 %`; `-` if `whole` is zero.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times of any length have a unit in which they are short.
    #[test]
    fn lifetimes_are_short() {
        for (ns, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_250, "1.2 µs"),
            (999_949, "999.9 µs"),
            (999_950, "1.0 ms"),
            (12_000_000, "12.0 ms"),
            (1_000_000_000, "1.00 s"),
            (7_200_000_000_000, "2 h 0 min"),
        ] {
            assert_eq!(lifetime(ns), expected);
        }
    }

    /// Check that escape sequences, line ends and reordering marks can't reach a terminal.
    #[test]
    fn hostile_strings_are_escaped() {
        assert_eq!(escape("a\x1b[2Jb\nc\td\re"), "a\\x1b[2Jb\\nc\\td\\re");
        assert_eq!(escape("x\u{9b}31m"), "x\\u{9b}31m");
        assert_eq!(escape("evil\u{202e}gpj"), "evil\\u{202e}gpj");
        assert_eq!(escape("\x7f\0"), "\\x7f\\x00");
    }

    /// Check that an ordinary name, in any alphabet, is neither changed nor copied.
    #[test]
    fn ordinary_strings_are_unchanged() {
        for text in ["operator new(unsigned long)", "Größe::größer<日本>"] {
            assert!(matches!(escape(text), Cow::Borrowed(t) if t == text));
        }
    }

    /// Check that each size has the right unit, also where rounding would give 1024 of a unit.
    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    /// Check that thousands are separated at every length where a separator appears.
    #[test]
    fn thousands_are_separated() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1234567), "1,234,567");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    /// Check that times have the right units, around the points where the unit changes.
    #[test]
    fn durations_have_units() {
        assert_eq!(duration(0), "0.00 s");
        assert_eq!(duration(250_000_000), "0.25 s");
        assert_eq!(duration(12_500_000_000), "12.5 s");
        assert_eq!(duration(59_990_000_000), "1 min 0 s");
        assert_eq!(duration(200_000_000_000), "3 min 20 s");
        assert_eq!(duration(7_500_000_000_000), "2 h 5 min");
        assert_eq!(duration(u64::MAX), "5124095 h 34 min");
    }

    /// Check that a share of zero is no number.
    #[test]
    fn shares_are_percentages() {
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(0, 0), "-");
    }
}
