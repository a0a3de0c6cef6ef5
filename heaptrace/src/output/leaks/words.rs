//! Rates of growth and probabilities in words.
//!
//! Stage: output.

use crate::text::bytes;

/// Bytes per second, or per minute or hour where that is a number that says something.
pub(in crate::output) fn rate(bytes_per_second: f64) -> String {
    let units = [("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let large = units.iter().find(|it| bytes_per_second * it.1 >= 1024.0);
    let (unit, seconds) = large.unwrap_or(&units[2]);
    format!(
        "{}/{unit}",
        bytes((bytes_per_second * seconds).round() as u64)
    )
}

/// A probability of chance as one of truth, never rounded up to certainty.
pub(in crate::output) fn confidence(chance: f64) -> String {
    if chance < 1e-4 {
        return "over 99.99 %".to_owned();
    }
    format!("{:.2} %", ((1.0 - chance) * 1e4).floor() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rates have the unit in which they are read best, and that nothing is certain.
    #[test]
    fn rates_and_confidence_in_words() {
        for (rate_of, expected) in [
            (5_000.0, "4.9 KiB/s"),
            (1.0, "3.5 KiB/h"),
            (20.0, "1.2 KiB/min"),
            (0.001, "4 B/h"),
        ] {
            assert_eq!(rate(rate_of), expected);
        }
        assert_eq!(confidence(1e-9), "over 99.99 %");
        assert_eq!(confidence(0.01), "99.00 %");
        assert_eq!(confidence(0.00111), "99.88 %");
    }
}
