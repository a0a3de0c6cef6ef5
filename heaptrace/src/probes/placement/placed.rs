//! A placement as plain values, for the reader's answer and for reports.
//!
//! Stage: probes. A reader's answer is checked before it becomes one of these.

use std::fmt;

use heaptrace_common::cookie::{ARGUMENTS, Register};

use super::model::Placement;

/// The location of a probe, and what reports say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset from the function's entry, in bytes.
    pub offset: u64,
    /// The registers that hold the arguments there.
    pub registers: [Register; ARGUMENTS],
    /// The instruction there.
    pub instruction: String,
    /// Whether the kernel has to execute the instruction out of line.
    pub is_stepped: bool,
    /// Why the probe is there.
    pub reason: String,
}

impl From<Placement> for Placed {
    fn from(placement: Placement) -> Self {
        Self {
            offset: placement.offset,
            registers: placement.registers,
            is_stepped: placement.is_stepped(),
            reason: placement.reason.to_string(),
            instruction: placement.instruction,
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}", self.offset)?;
        if !self.instruction.is_empty() {
            write!(f, " ({})", self.instruction)?;
        }
        if self.is_stepped {
            write!(f, ", stepped: {}", self.reason)?;
        }
        Ok(())
    }
}
