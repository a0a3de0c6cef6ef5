//! Parses the machine's console: one section for each fixture. Compares each report with its fixture's truth.
//!
//! Part of `cargo xtask vm`. It must not know where the text comes from.

use anyhow::{Context, Result, ensure};
use heaptrace_tests::{KilledAt, Report, Truth, all_match, truths};

/// The fixture with a child that the kernel kills for lack of memory.
pub(super) const VICTIM: &str = "victim";

/// The fixture of a control group whose processes are killed at once.
pub(super) const VICTIMS: &str = "victims";

/// A line that says what the following lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The begin of a fixture's section, with its name.
    Run,
    /// The output of `record` and of the fixture.
    Record,
    /// The report.
    Report,
    /// The errors of both.
    Errors,
    /// The exit status of `record`, in the same line.
    Status,
    /// The section is complete.
    End,
}

impl Mark {
    pub(super) const ALL: [Self; 6] = [
        Self::Run,
        Self::Record,
        Self::Report,
        Self::Errors,
        Self::Status,
        Self::End,
    ];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Run => "@@ run ",
            Self::Record => "@@ record",
            Self::Report => "@@ report",
            Self::Errors => "@@ errors",
            Self::Status => "@@ status ",
            Self::End => "@@ end",
        }
    }

    /// The mark in a line, and the text behind it.
    pub(super) fn of(line: &str) -> Option<(Self, &str)> {
        Self::ALL
            .into_iter()
            .find_map(|mark| Some((mark, line.strip_prefix(mark.text())?)))
    }
}

/// One run of a fixture.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) fixture: String,
    output: String,
    report: String,
    errors: String,
    status: Option<i32>,
}

/// Returns the complete sections.
pub(super) fn parse(console: &str) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let (mut run, mut part) = (Run::default(), Mark::End);
    for line in console.lines() {
        let line = line.trim_end_matches('\r');
        match Mark::of(line) {
            Some((Mark::Run, name)) => {
                run = Run {
                    fixture: name.to_owned(),
                    ..Run::default()
                };
            }
            Some((Mark::Status, code)) => {
                run.status = Some(code.trim().parse().context("the status is not a number")?);
            }
            Some((Mark::End, _)) => runs.push(std::mem::take(&mut run)),
            Some(_) => {}
            None => {
                let text = match part {
                    Mark::Record => &mut run.output,
                    Mark::Report => &mut run.report,
                    Mark::Errors => &mut run.errors,
                    _ => continue,
                };
                text.push_str(line);
                text.push('\n');
            }
        }
        if let Some((mark, _)) = Mark::of(line) {
            part = mark;
        }
    }
    Ok(runs)
}

impl Run {
    /// The number of allocations on which the fixture and the report agree. For a fixture without counts, the
    /// number of complete stacks.
    pub(super) fn verdict(&self) -> Result<u64> {
        self.compare().map_err(|error| match self.errors.trim() {
            "" => error,
            errors => error.context(format!("heaptrace printed:\n{errors}\n    and")),
        })
    }

    fn compare(&self) -> Result<u64> {
        ensure!(
            self.status == Some(0),
            "record ended with status {:?}",
            self.status
        );
        let report = Report::parse(self.report.trim())?;
        report.check_nothing_lost()?;
        let truths = truths(&self.output)?;
        if truths.is_empty() {
            return unwound(&report, &self.fixture);
        }
        all_match(&truths, &report)?;
        match self.fixture.as_str() {
            VICTIM => killed_at(&truths, &report, VICTIM, 32 << 20, 1)?,
            // Its three processes are killed as one, and the kernel counts the first one twice.
            VICTIMS => killed_at(&truths, &report, VICTIMS, 64 << 20, 4)?,
            _ => {}
        }
        Ok(truths.iter().map(|truth| truth.allocations).sum())
    }
}

/// Checks that the kernel killed all processes for lack of memory, at the limit of a group, and had counted at most so many kills.
fn killed_at(
    truths: &[Truth],
    report: &Report,
    group: &str,
    limit_bytes: u64,
    most_kills: u64,
) -> Result<()> {
    for truth in truths {
        let process = report.process(truth.pid)?;
        let kind = process.end.as_ref().map(|it| it.kind.as_str());
        ensure!(kind == Some("oom"), "it ended by {:?}", process.end);
        let killed = process.killed_at.as_ref();
        // Others may be killed before the counter is read, and one of them can be the first whose end is known.
        let kills = killed.map_or(0, |it| it.oom_kills);
        let expected = KilledAt {
            cgroup: format!("/{group}"),
            limit_bytes,
            oom_kills_before: 0,
            oom_kills: kills,
        };
        ensure!(
            killed == Some(&expected) && (1..=most_kills).contains(&kills),
            "it was killed at {killed:?}"
        );
    }
    Ok(())
}

/// Checks a fixture without counts by its stacks. All must be complete, except one that is too deep and, in
/// the fixture of all frames, one with a frame that is too large.
fn unwound(report: &Report, fixture: &str) -> Result<u64> {
    let intended = if fixture.starts_with("frames") {
        (1, 1)
    } else {
        (0, 0)
    };
    let quality = &report.quality;
    let found = (quality.stacks_truncated, quality.stacks_broken);
    ensure!(
        quality.stacks_complete > 0 && found == intended,
        "{} complete stacks, {} truncated, {} broken: {:?}",
        quality.stacks_complete,
        found.0,
        found.1,
        quality.noted
    );
    Ok(quality.stacks_complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "SeaBIOS\r\n@@ run hooks\r\n@@ record\r\n{\"role\":1}\r\n@@ report\r\n{}\r\n\r\n\
                           @@ errors\r\nheaptrace: oh\r\n\r\n@@ status 3\r\n@@ end\r\n@@ run forks\r\n@@ record\r\n";

    /// Check that the parts of a section are separated, and that an incomplete section is dropped.
    #[test]
    fn sections_are_parsed() {
        let runs = parse(CONSOLE).unwrap();
        let [run] = runs.as_slice() else {
            panic!("{runs:?}");
        };
        assert_eq!((run.fixture.as_str(), run.status), ("hooks", Some(3)));
        assert_eq!(run.output, "{\"role\":1}\n");
        assert_eq!(run.report.trim(), "{}");
        assert_eq!(run.errors.trim(), "heaptrace: oh");
    }

    /// Check that a failed record is an error that quotes heaptrace's output.
    #[test]
    fn failures_quote_heaptrace() {
        let runs = parse(CONSOLE).unwrap();
        let text = format!("{:#}", runs[0].verdict().unwrap_err());
        assert!(
            text.contains("heaptrace: oh") && text.contains("status Some(3)"),
            "{text}"
        );
    }
}
