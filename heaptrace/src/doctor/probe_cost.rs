//! Check of the cost of a probe hit.
//!
//! Part of `doctor`. Measures it as a run does at its start.

use super::check::Check;
use crate::kernel::tracefs::{Definitions, Tracefs};
use crate::probes::calibration;

const NAME: &str = "probe hits";

/// Measures the cost. Returns `None` if the rights for it are missing, which other checks report.
pub(super) fn examine() -> Option<Check> {
    let mut definitions = Definitions::new(Tracefs::open().ok()?);
    let (hit, open) = calibration::hit(&mut definitions).ok()?;
    drop(open);
    Some(Check::ok(
        NAME,
        format!(
            "{} ns each for the trap alone; --max-overhead is computed from it",
            hit.as_nanos()
        ),
    ))
}
