//! Numbers with units, as people write them on a command line: sizes and times.
//!
//! No stage of the flow: any stage may use it. Pure functions, whose errors are for users.

use std::time::Duration;

/// Parses a number of bytes: `65536`, `512K`, `64MiB`, `1GB`.
pub fn size(text: &str) -> Result<u64, String> {
    const HINT: &str = "write it as 512K, 64MiB or 1GiB";
    let (number, unit, after) = number_and_unit(text.trim());
    if number.is_empty() {
        return Err(format!("`{text}` does not begin with a number; {HINT}"));
    }
    if !after.is_empty() {
        return Err(format!(
            "`{after}` after the size is not understood; {HINT}"
        ));
    }
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(format!("`{unit}` is not a unit of size; {HINT}")),
    };
    let count: u64 = number
        .parse()
        .map_err(|_| format!("`{number}` is not a whole number; {HINT}"))?;
    count
        .checked_mul(scale)
        .ok_or_else(|| "that size is too large".to_owned())
}

/// Parses a time, which may be zero: `30s`, `5m`, `1h30m`, `500ms`, `1.5s`; a plain number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    const HINT: &str = "write it as 30s, 5m, 1h30m or 500ms";
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(format!("no time given; {HINT}"));
    }
    let mut total = Duration::ZERO;
    // Units must go from the largest to the smallest, each at most once: `30s1h` is most likely a mistake.
    let mut below = f64::INFINITY;
    while !rest.is_empty() {
        let (number, unit, after) = number_and_unit(rest);
        let seconds = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" | "min" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            // Only without a number before it: the 30 of `1h30` is ambiguous.
            "" if total.is_zero() => 1.0,
            "" => return Err(format!("`{number}` has no unit; {HINT}")),
            other => return Err(format!("`{other}` is not a unit of time; {HINT}")),
        };
        if seconds >= below {
            return Err(format!("units are out of order; {HINT}"));
        }
        below = seconds;
        let value: f64 = number
            .parse()
            .map_err(|_| format!("`{number}` is not a number; {HINT}"))?;
        total = Duration::try_from_secs_f64(value * seconds)
            .ok()
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| "that time is too long".to_owned())?;
        rest = after;
    }
    Ok(total)
}

/// Splits a text to its first number, the unit of that number, and the rest.
pub fn number_and_unit(text: &str) -> (&str, &str, &str) {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let number_end = text.find(|c| !is_digit(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(is_digit).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    (number, unit.trim(), rest)
}
