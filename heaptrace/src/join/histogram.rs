//! The buckets of histograms: ranges of sizes and of times.
//!
//! Stage: join. Small numbers have buckets of their own; above them, each doubling has four. So a bucket is at most a
//! quarter wider than its beginning, and a histogram of any numbers has at most [`BUCKETS`] of them. Knows nothing of sites.

/// The number of buckets.
pub const BUCKETS: usize = 252;

/// The bucket of a number.
pub fn bucket_of(number: u64) -> u8 {
    match number.checked_ilog2() {
        None | Some(0 | 1) => number as u8,
        Some(power) => (4 * (power - 1)) as u8 + ((number >> (power - 2)) & 3) as u8,
    }
}

/// The first and the last number of a bucket; those of the last bucket if there is no such one.
pub fn range_of(bucket: u8) -> (u64, u64) {
    let bucket = u32::from(bucket).min(BUCKETS as u32 - 1);
    if bucket < 4 {
        return (u64::from(bucket), u64::from(bucket));
    }
    let shift = bucket / 4 - 1;
    let first = (4 + u64::from(bucket % 4)) << shift;
    (first, first + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that buckets follow each other without gaps, and that each number is in its bucket.
    #[test]
    fn buckets_cover_all_numbers() {
        let mut next = Some(0_u64);
        for bucket in 0..BUCKETS as u8 {
            let (first, last) = range_of(bucket);
            assert_eq!(Some(first), next, "{bucket}");
            for number in [first, first + (last - first) / 2, last] {
                assert_eq!(bucket_of(number), bucket, "{number}");
            }
            assert!(last - first <= first / 4);
            next = last.checked_add(1);
        }
        assert_eq!(next, None);
    }
}
