//! How much tracing may cost, as a word of the command line.
//!
//! Part of the command line, no stage of the flow.

/// Reads a percentage: ten-thousandths, 0 for `off`.
pub(super) fn parse(text: &str) -> Result<u32, String> {
    const HINT: &str = "write it as 5, 2.5 or off";
    if text == "off" {
        return Ok(0);
    }
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no percentage; {HINT}"))?;
    match (percent * 100.0).round() {
        0.0 if percent == 0.0 => Ok(0),
        share @ 10.0..=9_000.0 => Ok(share as u32),
        _ => Err("it must be between 0.1 and 90, or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check every way to write a percentage, and what is none.
    #[test]
    fn percentages() {
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
