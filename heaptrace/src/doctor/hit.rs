//! What a hit of a probe costs.
//!
//! Stage: probes.

use super::Check;
use crate::kernel::tracefs::{Definitions, Tracefs};
use crate::probes::calibration;

const NAME: &str = "probe hits";

/// Measures it; nothing where the rights for it are missing, of which other checks tell.
pub(super) fn examine() -> Option<Check> {
    let mut definitions = Definitions::new(Tracefs::open().ok()?);
    let (hit, open) = calibration::hit(&mut definitions).ok()?;
    drop(open);
    Some(Check::ok(
        NAME,
        format!(
            "{} ns each, by the trap alone; --max-overhead goes by it",
            hit.as_nanos()
        ),
    ))
}
