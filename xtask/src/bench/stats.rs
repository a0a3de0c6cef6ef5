//! The median and the range of a few measurements.
//!
//! Part of bench. It must not know what was measured.

/// The median, the smallest and the largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of the values, or `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = match sorted.get(middle.wrapping_sub(1)) {
            Some(lower) if sorted.len().is_multiple_of(2) => f64::midpoint(*lower, upper),
            _ => upper,
        };
        Some(Self {
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// The spread of the ratios of values that were measured in the same round.
    pub fn of_ratios(values: &[f64], bases: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = values
            .iter()
            .zip(bases)
            .map(|(value, base)| value / base)
            .collect();
        Self::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the median of unsorted values is correct, for odd and even numbers of values, and that no
    /// values give `None`.
    #[test]
    fn medians_are_the_middle() {
        let odd = Spread::of(&[5.0, 1.0, 3.0]);
        assert_eq!(
            odd,
            Some(Spread {
                median: 3.0,
                min: 1.0,
                max: 5.0
            })
        );
        assert_eq!(
            Spread::of(&[4.0, 1.0, 2.0, 9.0]).map(|s| s.median),
            Some(3.0)
        );
        assert_eq!(Spread::of(&[]), None);
    }

    /// Check that ratios are computed within a round, not between the medians.
    #[test]
    fn ratios_are_taken_by_round() {
        let spread = Spread::of_ratios(&[10.0, 40.0, 90.0], &[10.0, 20.0, 30.0]);
        assert_eq!(spread.map(|s| s.median), Some(2.0));
        assert_eq!(spread.map(|s| s.max), Some(3.0));
    }
}
