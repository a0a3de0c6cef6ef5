//! A moment of a run, as options name it: a time after its beginning or before its end, or a time of day.
//!
//! Part of the command line. Must not know files: what a moment means depends on facts that the caller has.

use std::fmt;
use std::time::Duration;

use super::values;

const SECONDS_OF_DAY: u64 = 86_400;
const NS: u64 = 1_000_000_000;

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// So long after its beginning.
    AfterBegin(Duration),
    /// So long before its end.
    BeforeEnd(Duration),
    /// The first time at which clocks showed this time of day, in seconds.
    TimeOfDay(u32),
}

/// What a moment depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// When it began, nanoseconds since the Unix epoch.
    pub(super) started_unix_ns: u64,
    /// Seconds by which local time is ahead of UTC then.
    pub(super) ahead_s: i64,
    /// How long it took, as far as is known.
    pub(super) duration_ns: u64,
}

/// Parses a moment: `90s`, `2m`, `0` for the beginning; `-30s` before the end; `14:30` or `14:30:05` for a time of day.
pub(super) fn parse(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    if text.contains(':') {
        return time_of_day(text).ok_or_else(|| {
            format!("`{text}` is not a time of day; write it as 14:30 or 14:30:05")
        });
    }
    if let Some(text) = text.strip_prefix('-') {
        return values::time(text).map(Moment::BeforeEnd);
    }
    values::time(text).map(Moment::AfterBegin)
}

fn time_of_day(text: &str) -> Option<Moment> {
    let number = |text: &str, below: u32| {
        let is_short = matches!(text.len(), 1 | 2) && text.bytes().all(|it| it.is_ascii_digit());
        let number: u32 = text.parse().ok().filter(|_| is_short)?;
        (number < below).then_some(number)
    };
    let mut parts = text.split(':');
    let hours = number(parts.next()?, 24)?;
    let minutes = number(parts.next()?, 60)?;
    let seconds = parts.next().map_or(Some(0), |text| number(text, 60))?;
    parts.next().is_none().then_some(())?;
    Some(Moment::TimeOfDay((hours * 60 + minutes) * 60 + seconds))
}

impl Moment {
    /// Whether the run must be known to say when it is.
    pub(super) fn needs_run(self) -> bool {
        !matches!(self, Self::AfterBegin(_))
    }

    /// The moment, nanoseconds since the run began. What is before the beginning is the beginning.
    pub(super) fn elapsed_ns(self, run: &Run) -> Result<u64, String> {
        match self {
            Self::AfterBegin(time) => Ok(nanoseconds(time)),
            Self::BeforeEnd(time) => Ok(run.duration_ns.saturating_sub(nanoseconds(time))),
            Self::TimeOfDay(wanted) => {
                let begin = run.of_day(0);
                let day = SECONDS_OF_DAY * NS;
                let wanted = u64::from(wanted) * NS;
                let after = (wanted + day - begin % day) % day;
                // The last moments of a run are shown with their second.
                if after <= run.duration_ns.saturating_add(NS) {
                    return Ok(after);
                }
                // Users round the time at which a run began.
                let rounded = day - after;
                if rounded < 60 * NS {
                    return Ok(0);
                }
                Err(format!(
                    "it was not recorded at {self}: the run went from {} to {}",
                    clock(run.of_day(0)),
                    clock(run.of_day(run.duration_ns))
                ))
            }
        }
    }
}

impl Run {
    /// The local time of day, in nanoseconds.
    fn of_day(&self, elapsed_ns: u64) -> u64 {
        let day = i128::from(SECONDS_OF_DAY * NS);
        let ahead = i128::from(self.ahead_s) * i128::from(NS);
        let now = i128::from(self.started_unix_ns) + i128::from(elapsed_ns) + ahead;
        u64::try_from(now.rem_euclid(day)).unwrap_or(0)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn clock(of_day_ns: u64) -> String {
    let seconds = of_day_ns / NS;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterBegin(time) => write!(f, "{} s", time.as_secs_f64()),
            Self::BeforeEnd(time) => write!(f, "{} s before its end", time.as_secs_f64()),
            Self::TimeOfDay(seconds) => f.write_str(&clock(u64::from(*seconds) * NS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Result<Moment, String> {
        Ok(Moment::AfterBegin(Duration::from_secs(seconds)))
    }

    /// Check that each way to name a moment is read, and that what is none is refused with a reason.
    #[test]
    fn moments_are_read() {
        assert_eq!(parse("90"), after(90));
        assert_eq!(parse("2m"), after(120));
        for begin in ["0", "0s", "0ms", "0m0s"] {
            assert_eq!(parse(begin), after(0), "{begin}");
        }
        let before = Moment::BeforeEnd(Duration::from_secs(30));
        assert_eq!(parse("-30s"), Ok(before));
        assert_eq!(parse("9:05"), Ok(Moment::TimeOfDay(9 * 3_600 + 300)));
        assert_eq!(parse("23:59:59"), Ok(Moment::TimeOfDay(86_399)));
        for (text, reason) in [
            ("24:00", "time of day"),
            ("12:60", "time of day"),
            ("12:00:00:00", "time of day"),
            ("12:+5", "time of day"),
            (":", "time of day"),
            ("-", "no time given"),
            ("--to", "not a unit"),
            ("soon", "not a unit"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    /// Check that moments are found in a run by its end and by local time, also over midnight, and that those outside it are refused.
    #[test]
    fn moments_are_found() {
        // 22:13:20 UTC, 23:13:20 local time.
        let run = Run {
            started_unix_ns: 1_700_000_000 * NS,
            ahead_s: 3_600,
            duration_ns: 7_200 * NS,
        };
        let at = |text: &str| parse(text).unwrap().elapsed_ns(&run);
        assert_eq!(at("90s"), Ok(90 * NS));
        assert_eq!(at("-30s"), Ok(7_170 * NS));
        assert_eq!(at("-3h"), Ok(0));
        assert_eq!(at("23:14"), Ok(40 * NS));
        assert_eq!(at("23:13"), Ok(0));
        assert_eq!(at("0:00"), Ok(2_800 * NS));
        assert_eq!(at("1:13:20"), Ok(7_200 * NS));
        let error = at("12:00").unwrap_err();
        assert!(error.contains("from 23:13:20 to 01:13:20"), "{error}");
    }
}
