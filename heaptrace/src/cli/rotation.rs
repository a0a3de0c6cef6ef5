//! `--rotate`: when a new data file begins, and how many are kept.
//!
//! Part of the command line. Must not know how files are written or renamed.

use std::time::Duration;

use super::values;

/// A rotation of data files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// When a new file begins.
    pub limit: Limit,
    /// How many files are kept, with the current one.
    pub keep: u32,
}

/// The size or time after which a new file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes written, without those that the file began with.
    Bytes(u64),
    /// Time of the run.
    Time(Duration),
}

impl Rotation {
    /// How many files are kept by default.
    pub const DEFAULT_KEEP: u32 = 5;
    /// The smallest size that is accepted.
    const MIN_BYTES: u64 = 4096;

    /// Reads `SIZE|TIME[,KEEP]`: `64MiB`, `1h`, `1h,24`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const HINT: &str = "write it as 64MiB, 1h or 1h,24";
        let (limit, keep) = match text.split_once(',') {
            Some((limit, keep)) => (limit, Some(keep)),
            None => (text, None),
        };
        if limit.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{limit}` has no unit; {HINT}"));
        }
        let limit = match (values::duration(limit), values::size(limit)) {
            // 5m is a time everywhere; 5M is a size.
            (Ok(time), _) => Limit::Time(time),
            (_, Ok(bytes)) if bytes >= Self::MIN_BYTES => Limit::Bytes(bytes),
            (_, Ok(_)) => return Err("the size must be at least 4KiB".to_owned()),
            _ => return Err(format!("`{limit}` is neither a size nor a time; {HINT}")),
        };
        let keep = match keep.map(str::parse) {
            None => Self::DEFAULT_KEEP,
            Some(Ok(keep @ 2..=10_000)) => keep,
            Some(_) => return Err(format!("keep from 2 to 10000 files; {HINT}")),
        };
        Ok(Self { limit, keep })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sizes, times and numbers of files are read, and that ambiguous or small limits are refused.
    #[test]
    fn limits_are_read() {
        let rotation = |limit, keep| Ok(Rotation { limit, keep });
        let seconds = |n| Limit::Time(Duration::from_secs(n));
        assert_eq!(Rotation::parse("1h"), rotation(seconds(3600), 5));
        assert_eq!(Rotation::parse("5m,24"), rotation(seconds(300), 24));
        assert_eq!(Rotation::parse("5M"), rotation(Limit::Bytes(5 << 20), 5));
        assert_eq!(
            Rotation::parse("64MiB,2"),
            rotation(Limit::Bytes(64 << 20), 2)
        );
        for (text, reason) in [
            ("100", "no unit"),
            ("", "neither"),
            ("soon", "neither"),
            ("1h,", "keep from"),
            ("1h,1", "keep from"),
            ("1h,x", "keep from"),
            ("1K", "at least"),
            ("0s", "neither"),
        ] {
            let error = Rotation::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
