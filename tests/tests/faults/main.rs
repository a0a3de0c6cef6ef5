//! Tests of faults around a run: low limits, full disks, stepping clocks, killed processes, missing file systems.
//!
//! Each fault must be reported in one message or counted, and must not harm a target.

mod limits;
mod processes;
mod surroundings;

use anyhow::Result;
use heaptrace_tests::{Child, Fixture, ready_pid};

/// Starts a fixture, and waits until it is ready.
fn ready(fixture: &Fixture, arguments: &[&str]) -> Result<(Child, u32)> {
    let mut target = Child::spawn(fixture.command().args(arguments))?;
    let pid = ready_pid(&target.line()?)?;
    Ok((target, pid))
}
