//! Counts passed and failed tests, and reads and writes them in cargo's format.
//!
//! Part of the task test. It must not run anything.

use std::fmt;
use std::time::Duration;

/// The number of tests with each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that are marked to be ignored.
    pub ignored: u64,
    /// Tests that the filters excluded.
    pub filtered: u64,
}

impl Counts {
    /// Adds the counts of a `test result:` line; other lines are ignored.
    pub fn read(&mut self, line: &str) {
        // "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        let Some((_, fields)) = line
            .trim()
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for field in fields.split("; ") {
            let Some((number, what)) = field.split_once(' ') else {
                continue;
            };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                "filtered out" => self.filtered += number,
                _ => {}
            }
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.filtered += other.filtered;
    }

    /// The closing line in cargo's format. `ok` can be false without a failed test, if something else failed.
    pub fn as_cargo_says_it(&self, ok: bool, time: Duration) -> String {
        format!(
            "test result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            if ok { "ok" } else { "FAILED" },
            self.passed,
            self.failed,
            self.ignored,
            self.filtered,
            time.as_secs_f64()
        )
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)?;
        if self.ignored > 0 {
            write!(formatter, ", {} ignored", self.ignored)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that written counts are read back, and that the results of several programs add up.
    #[test]
    fn written_counts_are_read_back() {
        let one = Counts {
            passed: 3,
            failed: 1,
            ignored: 2,
            filtered: 4,
        };
        let line = one.as_cargo_says_it(false, Duration::from_millis(1500));
        assert!(line.ends_with("finished in 1.50s"), "{line}");
        let mut sum = Counts::default();
        sum.read(&line);
        assert_eq!(sum, one);
        sum.read("test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n");
        assert_eq!((sum.passed, sum.failed), (10, 1));
    }

    /// Check that other lines are ignored, even if they mention results.
    #[test]
    fn other_lines_do_not_count() {
        let mut counts = Counts::default();
        counts.read("running 5 tests\n");
        counts.read("the test result: ok. 9 passed; 0 failed\n");
        counts.read("test result: \n");
        assert_eq!(counts, Counts::default());
    }
}
