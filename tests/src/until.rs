//! Waits for a condition instead of for a time.
//!
//! Part of the harness. A sleep of a fixed length is too short on a busy machine and too long on an idle one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Long enough for everything that tests wait for, on a loaded machine with two cores.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The first pause between two looks, and the longest: pauses grow, because a look may cost a process.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Waits until a condition holds. `what` names it, in words that fit behind "waited for".
///
/// Fails when the limit has passed, and at once if the condition itself fails. To wait through errors, the
/// condition must turn them into `Ok(false)`.
pub fn until(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    let mut pause = PAUSES.0;
    loop {
        if condition()? {
            return Ok(());
        }
        if begin.elapsed() > limit {
            bail!("waited {limit:?} for {what}, in vain");
        }
        thread::sleep(pause);
        pause = PAUSES.1.min(pause + pause / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the wait ends when the condition holds, when it fails, and when the time is up, with its name.
    #[test]
    fn waits_as_long_as_needed() {
        let mut looks = 0;
        let third = |looks: &mut u32| {
            *looks += 1;
            Ok(*looks == 3)
        };
        until("a third look", MINUTE, || third(&mut looks)).unwrap();
        assert_eq!(looks, 3);
        let failed = until("an error", MINUTE, || bail!("broken")).unwrap_err();
        assert_eq!(failed.to_string(), "broken");
        let late = until("the end of time", Duration::ZERO, || Ok(false)).unwrap_err();
        assert!(late.to_string().contains("the end of time"), "{late}");
    }
}
