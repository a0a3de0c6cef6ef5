//! The value of `--max-overhead`: a percentage, or `off`.
//!
//! Part of the command line. Must not know what the limit is used for.

/// Parses a percentage to ten-thousandths; `off` is 0.
pub(super) fn parse(text: &str) -> Result<u32, String> {
    const HINT: &str = "write it as 5, 2.5 or off";
    if text == "off" {
        return Ok(0);
    }
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a percentage; {HINT}"))?;
    match (percent * 100.0).round() {
        0.0 if percent == 0.0 => Ok(0),
        share @ 10.0..=9_000.0 => Ok(share as u32),
        _ => Err("it must be between 0.1 and 90, or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every way to write a percentage is read, and that other values are refused.
    #[test]
    fn percentages_are_read() {
        for (text, share) in [
            ("5", 500),
            ("2.5", 250),
            ("10%", 1000),
            ("0", 0),
            ("off", 0),
        ] {
            assert_eq!(parse(text), Ok(share), "{text}");
        }
        for text in ["", "five", "-1", "100", "0.01", "nan", "inf"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
