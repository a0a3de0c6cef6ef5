//! Whether a series of numbers grows, how fast, and how sure that is.
//!
//! Stage: output. Must not know what the numbers are.
//!
//! The test is Mann and Kendall's: it counts in how many pairs of moments the later one is the larger. It does not assume that
//! growth is steady. For so few moments, the probability that chance orders them so is counted exactly.

/// Most moments of a series: the orders of more would not fit into 64 bits.
pub(super) const MOST: usize = 20;

/// The slope of a series, and the range that holds the true one with a probability of 95 %; per unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slope {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Pairs of moments, each with the later one second.
fn pairs<T: Copy>(series: &[T]) -> impl Iterator<Item = (T, T)> {
    series.iter().enumerate().flat_map(|(at, first)| {
        let later = series.iter().skip(at + 1);
        later.map(|second| (*first, *second))
    })
}

/// The probability that chance orders numbers without a trend so that they grow as much as these or more. Equal numbers make it
/// larger. At most [`MOST`] numbers.
pub(super) fn chance(series: &[u64]) -> f64 {
    let series = &series[..series.len().min(MOST)];
    let falling = |(first, second): &(u64, u64)| second <= first;
    let inversions = pairs(series).filter(falling).count();
    let orders = orders(series.len());
    let all: u64 = orders.iter().sum();
    let so_ordered: u64 = orders.iter().take(inversions + 1).sum();
    so_ordered as f64 / all as f64
}

/// How many orders of `n` things have each number of pairs that are out of order.
fn orders(n: usize) -> Vec<u64> {
    let mut orders = vec![1];
    for size in 1..n {
        let mut next = vec![0; orders.len() + size];
        for (inversions, count) in orders.iter().enumerate() {
            for slot in next.iter_mut().skip(inversions).take(size + 1) {
                *slot += count;
            }
        }
        orders = next;
    }
    orders
}

/// Sen's slope: the median of the slopes of all pairs of moments. `None` without two moments of different times.
pub(super) fn slope(times: &[u64], series: &[u64]) -> Option<Slope> {
    let moments: Vec<_> = times.iter().copied().zip(series.iter().copied()).collect();
    let mut slopes: Vec<f64> = pairs(&moments)
        .filter(|(first, second)| second.0 > first.0)
        .map(|(first, second)| {
            (second.1 as f64 - first.1 as f64) / (second.0 as f64 - first.0 as f64)
        })
        .collect();
    slopes.sort_by(f64::total_cmp);
    let count = slopes.len() as f64;
    let n = moments.len() as f64;
    // The standard deviation of Kendall's sum, of which 1.96 hold 95 %.
    let spread = 1.96 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let at = |rank: f64| {
        let last = slopes.len().saturating_sub(1);
        slopes.get((rank.max(0.0) as usize).min(last)).copied()
    };
    Some(Slope {
        middle: at(count / 2.0)?,
        low: at((count - spread) / 2.0 - 1.0)?,
        high: at((count + spread) / 2.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the exact probabilities against those that can be counted by hand.
    #[test]
    fn chances_are_counted() {
        // One of 24 orders.
        assert!((chance(&[1, 2, 3, 4]) - 1.0 / 24.0).abs() < 1e-12);
        // Three more have one pair out of order.
        assert!((chance(&[1, 2, 4, 3]) - 4.0 / 24.0).abs() < 1e-12);
        assert!((chance(&[4, 3, 2, 1]) - 1.0).abs() < 1e-12);
        // Nothing grows.
        assert!((chance(&[5; 12]) - 1.0).abs() < 1e-12);
        assert!((chance(&[]) - 1.0).abs() < 1e-12);
        let twenty: Vec<u64> = (0..30).collect();
        assert!(chance(&twenty) > 0.0 && chance(&twenty) < 1e-17);
    }

    /// Check that the probabilities are those of random orders: of many series without a trend, one in a hundred seems to have
    /// one with a chance of one in a hundred.
    #[test]
    fn chances_are_those_of_random_orders() {
        let mut seed = 1u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let trials = 20_000;
        let seeming = (0..trials).filter(|_| {
            let series: Vec<u64> = (0..12).map(|_| random()).collect();
            chance(&series) <= 0.01
        });
        let share = seeming.count() as f64 / f64::from(trials);
        assert!((0.005..=0.0125).contains(&share), "{share}");
    }

    /// Check that the slope is that of a line, also with one wild number, and that its range holds it.
    #[test]
    fn slopes_are_robust() {
        let times: Vec<u64> = (0..12).map(|at| at * 10).collect();
        let mut series: Vec<u64> = times.iter().map(|at| 100 + 3 * at).collect();
        let line = slope(&times, &series).unwrap();
        assert!((line.middle - 3.0).abs() < 1e-9 && (line.low - line.high).abs() < 1e-9);
        series[5] = 1_000_000;
        let wild = slope(&times, &series).unwrap();
        assert!((wild.middle - 3.0).abs() < 1e-9, "{wild:?}");
        assert!(wild.low <= 3.0 && wild.high >= 3.0);
        assert_eq!(slope(&[7, 7], &[1, 2]), None);
        assert_eq!(slope(&[], &[]), None);
    }
}
