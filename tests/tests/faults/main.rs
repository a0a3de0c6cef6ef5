//! What goes wrong around a run: limits, full disks, clocks, processes that end, file systems that are missing. Each is
//! told in one message or counted, and no target is harmed.

mod limits;
mod processes;
mod surroundings;

use anyhow::Result;
use heaptrace_tests::{Child, Fixture, ready_pid};

/// Starts a fixture and waits until it says that it is ready.
fn ready(fixture: &Fixture, arguments: &[&str]) -> Result<(Child, u32)> {
    let mut target = Child::spawn(fixture.command().args(arguments))?;
    let pid = ready_pid(&target.line()?)?;
    Ok((target, pid))
}
