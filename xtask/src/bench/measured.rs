//! The results of one run of a program: its own figures, and those of the tracer.
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
    /// Nanoseconds per operation, as the program printed.
    pub nanoseconds: f64,
    /// The program's processor time, if it printed it.
    pub cpu_ns: Option<f64>,
    /// The program's peak memory, if it printed it.
    pub peak_bytes: Option<f64>,
    /// heaptrace's figures, if it recorded the run.
    pub tracing: Option<Tracing>,
}

/// heaptrace's figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tracing {
    /// The number of allocations and frees.
    pub events: u64,
    /// The number of events that were lost, for any reason.
    pub lost: u64,
    /// The agent's processor time.
    pub agent_cpu_ns: u64,
    /// The agent's peak memory.
    pub agent_peak_bytes: u64,
    /// The memory of the kernel's maps.
    pub kernel_map_bytes: u64,
    /// The size of the data file.
    pub file_bytes: u64,
}

/// The runs of one program in one mode, one per round.
#[derive(Clone, Debug, Default)]
pub struct Runs(pub Vec<Measured>);

impl Measured {
    /// Reads the program's output.
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
    /// Reads a data file.
    pub fn of(data: &Path) -> Result<Self> {
        let mut command = Command::new(workspace::heaptrace_binary());
        // The sites are not needed, and there may be a million.
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
        let report: Value = serde_json::from_str(report).context("the report is not JSON")?;
        let quality = &report["quality"];
        // A report without these counters does not mean that nothing was lost.
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
    /// Nanoseconds per operation, for each round.
    pub fn nanoseconds(&self) -> Vec<f64> {
        self.0.iter().map(|it| it.nanoseconds).collect()
    }

    /// The program's processor time, for each round.
    pub fn cpu(&self) -> Vec<f64> {
        self.0.iter().filter_map(|it| it.cpu_ns).collect()
    }

    /// One of the tracer's figures, for each round.
    pub fn tracing(&self, figure: fn(&Tracing) -> u64) -> Vec<f64> {
        let tracing = self.0.iter().filter_map(|it| it.tracing.as_ref());
        tracing.map(|it| figure(it) as f64).collect()
    }

    /// The events lost in all rounds. Losing events makes a tracer look faster than it is.
    pub fn lost(&self) -> u64 {
        self.0
            .iter()
            .filter_map(|it| it.tracing)
            .map(|it| it.lost)
            .sum()
    }

    /// The ratios of the times per operation to those of the same rounds in another mode.
    pub fn ratio_to(&self, base: &Self) -> Option<Spread> {
        Spread::of_ratios(&self.nanoseconds(), &base.nanoseconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program's figures are found among its other lines, and that a missing time is an error.
    #[test]
    fn figures_are_read() {
        let printed = "hello\nns_per_operation 7.250\noperations 9\ncpu_ns 12\n";
        let measured = Measured::read(printed, None).unwrap();
        assert!((measured.nanoseconds - 7.25).abs() < 1e-9);
        assert_eq!(measured.cpu_ns, Some(12.0));
        assert_eq!(measured.peak_bytes, None);
        assert!(Measured::read("operations 9\n", None).is_err());
    }

    /// Check that losses of every reason are added, and that a report without the counters is an error.
    #[test]
    fn losses_of_all_reasons_add_up() {
        let report = r#"{"totals": {"allocations": 5, "frees": 4}, "quality": {"lost": {"ring_full": 2, "live_full": 3}}}"#;
        let tracing = Tracing::read(report).unwrap();
        assert_eq!((tracing.events, tracing.lost), (9, 5));
        assert!(Tracing::read(r#"{"quality": {}}"#).is_err());
    }
}
