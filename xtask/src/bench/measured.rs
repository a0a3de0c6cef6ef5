//! What one run of a program gave: its own figures, and those of the tracer.
//!
//! Part of bench. It must not know how the program was run.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::stats::Spread;
use crate::{process, workspace};

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Nanoseconds per operation, as the program says.
    pub nanoseconds: f64,
    /// Processor time of the program, where it says it.
    pub cpu_ns: Option<f64>,
    /// Most memory of the program, where it says it.
    pub peak_bytes: Option<f64>,
    /// What heaptrace says, where it recorded the run.
    pub tracing: Option<Tracing>,
}

/// What heaptrace says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tracing {
    /// Allocations and frees.
    pub events: u64,
    /// Events that were lost, for whatever reason.
    pub lost: u64,
    /// Processor time of the agent.
    pub agent_cpu_ns: u64,
    /// Most memory of the agent.
    pub agent_peak_bytes: u64,
    /// The kernel's maps.
    pub kernel_map_bytes: u64,
    /// The data file.
    pub file_bytes: u64,
}

/// The runs of one program in one mode, one a round.
#[derive(Clone, Debug, Default)]
pub struct Runs(pub Vec<Measured>);

impl Measured {
    /// Of what the program printed.
    pub fn read(printed: &str, tracing: Option<Tracing>) -> Result<Self> {
        Ok(Self {
            nanoseconds: figure(printed, "ns_per_operation")
                .with_context(|| format!("the program printed no ns_per_operation: {printed}"))?,
            cpu_ns: figure(printed, "cpu_ns"),
            peak_bytes: figure(printed, "peak_bytes"),
            tracing,
        })
    }
}

fn figure(printed: &str, name: &str) -> Option<f64> {
    let mut lines = printed.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

impl Tracing {
    /// Of a data file.
    pub fn of(data: &Path) -> Result<Self> {
        let mut command = Command::new(workspace::heaptrace_binary());
        // Of the sites none is looked at, and there may be a million.
        command
            .args(["report", "--format", "json", "--top", "1"])
            .arg(data);
        let file_bytes = fs::metadata(data).map_or(0, |meta| meta.len());
        Ok(Self {
            file_bytes,
            ..Self::read(&process::output(&mut command)?)?
        })
    }

    fn read(report: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(report).context("the report is no JSON")?;
        let quality = &report["quality"];
        // A report without the counters is none without losses.
        let lost = quality["lost"].as_object();
        let lost = lost.context("the report has no quality.lost")?;
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        Ok(Self {
            events: number(&report["totals"]["allocations"]) + number(&report["totals"]["frees"]),
            lost: lost.values().filter_map(Value::as_u64).sum(),
            agent_cpu_ns: number(&quality["agent_cpu_ns"]),
            agent_peak_bytes: number(&quality["agent_peak_bytes"]),
            kernel_map_bytes: number(&quality["kernel_map_bytes"]),
            file_bytes: 0,
        })
    }
}

impl Runs {
    /// Nanoseconds per operation, by round.
    pub fn nanoseconds(&self) -> Vec<f64> {
        self.0.iter().map(|it| it.nanoseconds).collect()
    }

    /// Processor time of the program, by round.
    pub fn cpu(&self) -> Vec<f64> {
        self.0.iter().filter_map(|it| it.cpu_ns).collect()
    }

    /// A figure of the tracer's, by round.
    pub fn tracing(&self, figure: fn(&Tracing) -> u64) -> Vec<f64> {
        let tracing = self.0.iter().filter_map(|it| it.tracing.as_ref());
        tracing.map(|it| figure(it) as f64).collect()
    }

    /// Events lost in all rounds: a fast tracer that loses is no fast tracer.
    pub fn lost(&self) -> u64 {
        self.0
            .iter()
            .filter_map(|it| it.tracing)
            .map(|it| it.lost)
            .sum()
    }

    /// Times of an operation as ratios to those of the same rounds in another mode.
    pub fn ratio_to(&self, base: &Self) -> Option<Spread> {
        Spread::of_ratios(&self.nanoseconds(), &base.nanoseconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program's figures are found among its other lines, and that the absence of its time is an error.
    #[test]
    fn figures_are_read() {
        let printed = "hello\nns_per_operation 7.250\noperations 9\ncpu_ns 12\n";
        let measured = Measured::read(printed, None).unwrap();
        assert!((measured.nanoseconds - 7.25).abs() < 1e-9);
        assert_eq!(measured.cpu_ns, Some(12.0));
        assert_eq!(measured.peak_bytes, None);
        assert!(Measured::read("operations 9\n", None).is_err());
    }

    /// Check that every reason of loss counts, and that a report without the counters is not taken for one without loss.
    #[test]
    fn losses_of_all_reasons_add_up() {
        let report = r#"{"totals": {"allocations": 5, "frees": 4}, "quality": {"lost": {"ring_full": 2, "live_full": 3}}}"#;
        let tracing = Tracing::read(report).unwrap();
        assert_eq!((tracing.events, tracing.lost), (9, 5));
        assert!(Tracing::read(r#"{"quality": {}}"#).is_err());
    }
}
