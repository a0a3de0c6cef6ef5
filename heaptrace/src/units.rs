//! Numbers with units, as people write them on a command line: sizes.
//!
//! No stage of the flow: any stage may use it. Pure functions, whose errors are for users.

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

/// Splits a text to its first number, the unit of that number, and the rest.
pub fn number_and_unit(text: &str) -> (&str, &str, &str) {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let number_end = text.find(|c| !is_digit(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(is_digit).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    (number, unit.trim(), rest)
}
